"""Alert and recording rules for Prometheus, declared once: `model` says what they are made of,
`rules` renders them, and the other modules are one group of rules each. Needs no node."""
