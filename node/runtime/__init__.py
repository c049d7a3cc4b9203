"""What any service of a node stands on: its life, time, background tasks, threads.

Begin with `service` (start and stop, in order), `clock` and `scheduler`. `task_set`,
`background_tasks` and `uncancellable` are for work beside requests, `gil_yield` and `throttle`
for work that must give way, `idle_gc` and `loop_lag` for the event loop, `closing` for what is
only closed. `logs`, `heap`, `version` and `stored_level` are for the process as a whole.
"""
