"""The replicas of this node, kept as the cluster's state says, and requests to them.

Begin with `local` (Replicas: started and stopped) and `reconciler` (after each change of the
state), then `topology` (who leads what) and `partition_service` (requests, this node's own and
its peers'). `offsets` gathers where partitions begin and end; `damaged` tells peers of damaged
replicas, `orphans` finds replicas that the cluster's state no longer names.
"""
