"""Input that nobody sane would send, to everything that reads bytes of others."""
