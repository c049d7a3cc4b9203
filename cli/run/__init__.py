"""One run of a command: which cluster it asks, with which options, and how it ends.

Read `options` (what every command takes, and how a command is registered), `session` (the
connection), `context` and `known_servers` (which servers). Then what several commands share:
`progress` follows what the cluster does by itself, `dry_runs` what would be done, `sigterm` ends
what goes on for ever; `release` is the version that is installed.
"""
