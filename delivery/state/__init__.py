"""The replicated state of a partition: the same on every replica that applied the same entries.

Read `partition` first: it applies entries of every kind. `queue` applies the operations among them,
for all groups, and `queue_snapshot` is how it is written to a snapshot.
"""
