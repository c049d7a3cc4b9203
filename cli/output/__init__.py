"""What people and programs get to see: all that is printed, and each error with its exit code.

Read `terminal` (the one place that writes), `formats` (tables, JSON lines, YAML) and `errors`
(texts, hints, exit codes). `moments` reads times as people type them; `stale` marks what no leader
has confirmed.
"""
