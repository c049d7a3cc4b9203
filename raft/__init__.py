"""Raft groups: one replicated log a partition, and one for the cluster, on PySyncObj and `log/`.

One replica is a `RaftGroup`: parts with the names of the Raft paper (and of etcd's raft) around one
shared state. No part reads a clock, a socket or a random source of its own: all comes through
`interfaces`. Read in this order:

- `state`: figure 2 of the paper, and what a replica runs on; `peer`: the other replicas, with their
  flow control. `syncobj`: PySyncObj on that state, and the only file that knows it.
- `roles`, `timer`: follower, candidate, leader, stopped; `outbox`: what waits for the disk.
- `voting`: pre-votes and votes. `election`: when a leader is believed dead, and what follows from
  leading.
- `replication`: the leader's side, `following`: the follower's; `heartbeats`: beats and answers.
- `proposals`, `apply`: what callers append, and how they learn its outcome; `log_time`: its times.
- `read_index`, `transfer`: linearizable reads, and handing leadership over.
- `configuration`, `membership`: who belongs to a group, and how that changes.
- `group` wires the parts. Whoever asks about a replica asks the part that knows
  (`raft_group.membership.voters`, `raft_group.transfer.start`); the group itself answers who leads,
  and how far it is.
- `host` carries all groups of a node; `frames` are their messages, and `link/` brings them to other
  nodes.

`docs/internals/raft-holes.md` tells what PySyncObj does wrong, and which part closes it.
"""
