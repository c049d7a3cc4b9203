"""Consumer groups: their settings, their members, and which member has which partition.

Read `settings`, then `subscriptions` and `assignors` (who should have what), `holdings` (who has
what, and what is on its way), and `membership`, which joins them for one group and draws the states
of a partition's way between members. `memberships` has all groups, `rebalances` the records of past
ones. `coordinator` runs on the leader of the cluster group: sessions, and the next commands.
"""
