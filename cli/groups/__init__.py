"""`goqueue-cli group` and `dlq`: consumer groups, where they stand, and what they gave up.

Read `command`, then the verbs by their modules: `describe`, `settings`, `positions` (lag, offsets,
resets), `rebalances`, `keys` (what a group withholds). `columns` are the tables of them all. `dlq`
is a noun of its own.
"""
