"""Bodies of the entries in the log of a partition, as they are encoded.

Read `records` first: batches that producers stored, with `columns` for the part of a batch that the
queue looks at. `ops` are operations of the queue, the other large kind. `reappended` are messages
that outlive the entry they were stored in. Their fields are a disk and wire format.
"""
