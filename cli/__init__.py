"""The command line, floor 4: `goqueue-cli` noun verb, and `goqueue -config FILE`.

It speaks HTTP through the library `goqueue`; only `serve` and `dev` start nodes.

- `main`: the app and its nouns; `options`: what every command takes, and how errors become codes
- `topic`, `produce`, `consume`, `trace`, `cluster`, `config`: the commands that ask a cluster
- `serve`: one node in this process; `dev`: a whole cluster on this machine
- `output`, `errors`, `context`, `session`: formats, exit codes, contexts, the connection
"""
