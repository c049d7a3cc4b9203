"""The cluster's own state machine: brokers, topics, placement. Pure: no I/O, clock or randomness.

Start with `commands`, what the cluster group replicates, and `cluster`, the state that every node
applies them to. Between the two stand the parts of that state, each in its room: `topics`,
`brokers`, `groups`, `placement`, `jobs` and `access`. `errors` has all refusals.

Rooms import downwards: `cluster` uses all others; `placement` uses `brokers`, `topics` and
`groups`; all of them use `commands`.
"""
