"""What only clients of GoQueue ask for; all of it is there in another spelling, too.

`settle` and `poll` are its way to the queue, `cooperative` its names for members and rebalances,
`traces` with `trace_ids` its view of timelines, `load_tools` the routes of its k6 scripts. Each
stands alone.
"""
