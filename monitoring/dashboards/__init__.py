"""Grafana dashboards, declared once.

Read `model` (what they are made of), `catalogue` (all of them, in the order in which people look at
them) and `grafana`, which renders them. The other modules are one dashboard each, or a row of one.
"""
