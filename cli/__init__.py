"""The command line, floor 4: `goqueue-cli` noun verb, and `goqueue -config FILE`.

It speaks HTTP through the library `goqueue`; only `serve` and `local.dev` start nodes. Read `main`
(the app) and `nouns` (its commands, each imported when it is asked for), then rooms by subject:

- `produce`, `consume`: messages in and out; `topics`, `groups`, `trace`, `cluster`: what a cluster
  is asked. In each, `command` is the noun or verb itself
- `local`: what happens on this machine; `serve` is one node in this process
- `run`: what each command takes and how it ends; `output`: how anything is printed
"""
