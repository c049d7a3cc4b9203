"""The whole state of the cluster group, and how it is written to a snapshot.

Read `state` first: one table says which command is applied by which part. `snapshot` is the layout
of a snapshot.
"""
