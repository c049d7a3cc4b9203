"""Topics as the cluster knows them: settings, partitions, and who may publish.

Read `settings` first: defaults, bounds and warnings. Then `partitions`, a topic with the replicas
of each of its partitions, and `compression`, a topic's default. `producers` gives out producer ids
and epochs.
"""
