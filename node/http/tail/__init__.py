"""Tails: one partition of a topic, or all of them, as server-sent events for as long as one reads.

Read `stream` first: the events of one reader. `places` is where it begins and how far it has come,
`filters` what it wants, `lines` how stored batches become messages to send, and `followers` how
one read of the end of a log serves all who tail it.
"""
