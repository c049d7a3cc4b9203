"""For those who run the cluster: health, keys, the audit log, scrubs and upgrades.

Any order will do. `health` is also what probes and Prometheus ask for; `cluster` tells who is in it
and whether all is well.
"""
