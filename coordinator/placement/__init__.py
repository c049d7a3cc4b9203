"""Which broker should hold which replicas, which does, and the steps from one to the other.

Read `new_topics` for the first placement of a topic, and `layout` for the state: what should be
where and what is. `planner` makes plans, `reassignments` are plans that are being carried out,
`dropped_replicas` what may still come back. `steps` is the next safe step of one partition,
`cluster_steps` that of the cluster group; `mover` drives them on the leader of the cluster group.
`partition_count` adds partitions to a topic.
"""
