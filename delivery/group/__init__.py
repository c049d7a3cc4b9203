"""One consumer group in one partition: what is ready, in flight, delayed, dead or done.

Read `operations` first: what entries do to a group, in the order of the log. `rules` decides what
becomes of a message, here and for timelines; `attempts` does that with a failed attempt. `state`
moves a message from one place to another, with `leases`, `failures` and `key_order` as the places
that have rules of their own. `lag` and `counters` tell how far the group has come, and what it has
done.
"""
