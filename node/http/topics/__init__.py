"""Topics: made, listed, changed and deleted, their archives, their compaction.

Read `catalog` first. `archived` takes reports of archives, `compaction` shows and starts the
compaction of keys, `as_queue` shows a topic as the queue that its groups work on. How a topic gets
more partitions is in `placement`; its dead letters are in `queue`.
"""
