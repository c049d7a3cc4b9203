"""Grafana dashboards, declared once: `model` says what they are made of, `grafana` renders them,
and the other modules are one dashboard each. Nothing here needs a node."""
