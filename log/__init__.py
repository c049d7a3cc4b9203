"""The durable log of one node: a shared write-ahead log, segments per group, recovery.

Synchronous and without threads of its own: the caller decides where flush, spill and checkpoint
jobs run, and hands in disk, clock readings and randomness.
"""
