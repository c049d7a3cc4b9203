"""The life of one message, told from the log of its partition.

Read `message` first: entries in, a timeline out. `story` is the queue's part of it: operations
judged again, by the rules in `judge`, for the message in one group (`groups`). `frames` tells who
had an entry, and when. `message_entry_index` finds the entries that may concern a message.
"""
