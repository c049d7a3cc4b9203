"""What any service of a node stands on: its life, time, background tasks, threads.

Begin with `service` (start and stop, in order), `clock` and `scheduler`. `periodic` is for work
that is done again and again (`goqueue.background` for what is done once beside a request),
`uncancellable` for work that must end, `gil_yield` and `throttle` for work that must give way,
`idle_gc` and `loop_lag` for the event loop, `closing` for what is only closed. `logger` is what a
node's words go to. `logs`, `heap`, `version` and `stored_level` are for the process as a whole.
"""
