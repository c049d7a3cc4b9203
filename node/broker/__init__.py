"""The broker as HTTP sees it: implements the interfaces of `node.api`, from any node.

A request is answered here, or sent on to whoever leads its partition. Begin with `node`
(NodeBroker), which puts the other modules together: `reads` of partitions, `queue` and `members`
for consumers with `queue_parts` as what they stand on, then `placement`, `search`, `why`,
`events`, `archive`, `compaction`, `scrub` and `upgrade`, each a part of the broker with one
subject. `all_of` and `producer_flights` are what they share.
"""
