"""The cluster's own state machine: brokers, topics, placement. Pure: no I/O, clock or randomness.

`commands` is what the cluster group replicates, `state` what every node applies, `topics` what may
be configured, `placement` who gets which replicas, `formation` how empty nodes become one cluster.
"""
