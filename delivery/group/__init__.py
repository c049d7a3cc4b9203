"""One consumer group in one partition: what is ready, in flight, delayed, dead or done.

Read `state` first: operations, applied in the order of the log. `messages` moves a message from one
place to another, with `leases`, `failures` and `key_order` as the places that have rules of their
own. `attempts` decides what becomes of a failed attempt. `lag` and `counters` tell how far the
group has come, and what it has done.
"""
