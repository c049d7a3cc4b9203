"""The broker as HTTP sees it: implements the Protocols of `node.api`, from any node.

A request is answered here, or sent on to whoever leads its partition. Begin with `node`: NodeBroker
has parts, one for each Protocol, and does nothing itself. `records` (with `reads`) and `topics` are
the log, `queue` takes messages; the other parts of the queue and of groups are in `node.queue` and
`node.groups`. `search` and `traces` look messages up; `placement`, `compaction`, `archive`, `scrub`
and `upgrade` are for operators. `partitions` and `producer_flights` are what they share; `sticky`
picks a partition where any will do.
"""
