"""The durable log of one node: a shared write-ahead log, segments per group, recovery.

Synchronous and without threads of its own: the caller decides where flush, spill and checkpoint
jobs run, and hands in disk, clock readings and randomness.

Read it from the bottom up: `entry` (what is stored), `errors`, `config` and `levels`; then the
rooms `disk`, `wal`, `snapshots`, `segments`, `copy`, `partition` and `store`. Each imports only
those before it. `store` is what a node opens, `group` what Raft writes to.
"""
