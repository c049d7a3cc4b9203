"""The queue: messages leased to consumers, settled, delayed, scheduled, and dead.

Read `receive` first, then `settle`; `views` are messages of the queue as all answers show them.
`dead_letters` are a group's, and `dead_topic` the same read as a topic. `delayed` and `schedules`
are messages that come later; `stats` adds up the figures of all partitions.
"""
