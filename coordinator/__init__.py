"""The cluster's own state machine: brokers, topics, placement. Pure: no I/O, clock or randomness.

`commands` and `queue_commands` are what the cluster group replicates, `state` is what every node
applies, `topics` what may be configured, `groups`, `schedules` and `redrives` what the queue knows
cluster-wide, `schedule_times` when schedules run, `placement` who gets which replicas, `formation`
how empty nodes become one cluster.

The cluster grows and shrinks by `placement_commands`: `layout` knows what should be where and what
is, `planner` plans, `reassignments` are plans under way, `mover` drives them by `steps`.
"""
