"""`goqueue-cli produce`, `schedule` and `delayed`: messages that go in, now or later.

Read `command`, then `lines` (a line of input becomes a message) and `publisher` (a message becomes
a record, and its place is told). `schedule` and `delayed` are nouns of their own.
"""
