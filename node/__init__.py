"""One broker process: its parts wired once, started bottom up, stopped top down.

To follow a node's life read `server`, then `assembly` and `queue_assembly` (who knows whom, and
in which order things start), with `factories` for what is made from the configuration.

Each folder is a room with one subject; imports between rooms go down this list only:
- `embedded`: a node in a program's own process, beside `server`, which is one by itself
- `broker`: any request, answered here or by whoever leads; `kubernetes`: a node in a pod
- `observe`: what a node says of itself
- `lookup`, `placement`, `groups`: searches, replicas that move, members of consumer groups
- `queue`: receiving, settling, dead letters, redrives, schedules
- `storage`: the disk, copies of replicas, repair
- `replicas`, `security`: the replicas of this node, and who may come in
- `partition`, `cluster`: one partition's replica, and the cluster group
- `peers`, `runtime`: requests to other nodes, and what any service needs
- `config`, `rpc`, `metrics`
- `api`: what a broker offers, for HTTP to use and for `broker` to implement

`http` imports `api` only, and only this folder's own modules import `http`.
"""
