"""Consumer groups: their settings, members, assignments and positions.

Read `catalog` first, with `settings`; then `members`, with `assignments` and `rebalances`.
`offsets` and `positions` are how far groups have come and how that is changed; `consumer_identity`
is who acts for one, in requests of this room and of `queue`.
"""
