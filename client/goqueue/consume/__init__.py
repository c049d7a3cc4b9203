"""The consumer: a member of a group that receives ahead of its handlers.

Read `consumer` first. `membership` joins and sends heartbeats, and `assignment` decides what to do
about partitions that come and go. `fetcher` keeps receives open for what `prefetch` has room for;
`deliveries` has each message until it is settled, with `in_flight` for what was handed out and
`settle_queue` for settles on their way. `sigterm` ends it in order.
"""
