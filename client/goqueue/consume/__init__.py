"""The consumer: a member of a group that receives ahead of its handlers.

Read `consumer` first. `membership` joins and sends heartbeats, and `assignment` decides what to do
about partitions that come and go. `streams` has messages pushed for what `prefetch` has room for,
as `credit` says it, and where there is no stream `fetcher` keeps receives open; both ask `source`,
and `line` says which way settles and heartbeats go. `deliveries` has each message until it is
settled, with `in_flight` for what was handed out and `settle_queue` for settles on their way.
`sigterm` ends it in order.
"""
