"""The web console in a real browser, over a real cluster."""
