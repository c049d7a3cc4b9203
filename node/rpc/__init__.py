"""Requests and answers between nodes, byte for byte, as msgpack over the peer link.

Begin with `partitions` (publishes, reads, ends, traces, and what other requests are built from);
then one module a subject: `queue`, `groups`, `positions`, `search`, `moves`, `transfer`, `scrub`.
A change here needs a feature level: docs/internals/feature-levels.md.
"""
