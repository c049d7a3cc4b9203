"""Consumer groups: their members, who is alive, and how far each group has come.

Begin with `sessions` (coordination, where the cluster group is led) and `heartbeats` (signs of
life on the way there). `members` and `polls` serve what members ask, `partitions` asks the
leaders of partitions for coordination. `positions` and `position_views` read and set committed
positions. `member_views` shapes answers; `metrics` and `request_metrics` count.
"""
