"""Redis' protocol, RESP2 and RESP3: streams, queues as lists, miniqueue's words, over the broker.

`listener` is the port and `session` one connection, which takes commands out of bytes (`scan`),
finds them (`commands`, `command`) and writes `replies`. Each family has a module: `publishing`,
`streams` with `entries` and `ids`, `groups` and `pending`, `lists`, `miniqueue`, `connection`.
"""
