"""Figures over a topic's messages and events: SQL one can read, tables, and a report to look at."""
