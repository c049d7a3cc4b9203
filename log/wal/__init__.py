"""The write-ahead log that all groups of a node share: one sequential file after the other.

Read `format` first: blocks, records, and the state that records add up to; `install` is the record
that puts a copied replica in place of a group's log. Then `pending_block` and `writer` for the way
to the disk, and `reader`, `tail_sync` and `recovery` for the way back at a start. `check` reads the
log of a running node again.
"""
