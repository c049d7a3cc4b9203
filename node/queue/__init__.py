"""The queue of a node: receiving and settling, over partitions led by any node.

Begin with `receiver` (a receive, told by its `poll`, from several leaders) and `service` (leases,
as the leader), then `settle` with `receipts` and `receipt` (the handle of a lease; `receipt_keys`
has the keys made). `calls` and `views` are both ends of questions to a partition's leader; `lag`
says who is behind. `stream_leases` is what a stream may have in flight, and `stream_watch` ends
what nobody else does. `group_admin`, `dead_letters`, `redrive_admin` and `schedule_admin` serve
what people ask; `redrive_worker` and `schedule_worker` work where the cluster group is led.
"""
