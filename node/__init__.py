"""One broker process: parts wired once, started bottom up, stopped top down. HTTP is in `http/`."""
