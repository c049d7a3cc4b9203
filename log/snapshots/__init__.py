"""Local snapshots of the state machines of groups: a state in one checksummed file.

Read `file` first: the format, writing, reading and deleting. `kept` knows which of them a group
has, and which is the newest sound one.
"""
