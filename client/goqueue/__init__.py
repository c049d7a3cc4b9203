"""The client library of GoQueue."""
