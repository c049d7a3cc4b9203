"""The log of one Raft group: the newest entries in memory, older ones in segments.

Read `journal` first: term and vote, and what a group asks of the store that keeps it. Then `tail`
for the part in memory, and `log`, which joins it with segments, snapshots and the write-ahead log.
`range_hashes` hashes runs of entries, so that replicas can be compared.
"""
