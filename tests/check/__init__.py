"""Checkers: they judge a history of operations, whoever made it."""
