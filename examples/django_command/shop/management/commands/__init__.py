"""`remind` and `work`."""
