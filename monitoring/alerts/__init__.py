"""Alert and recording rules for Prometheus, declared once.

Read `model` (what they are made of), `catalogue` (all of them, by file) and `rules`, which renders
them. The other modules are one group of rules each.
"""
