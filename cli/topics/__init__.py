"""`goqueue-cli topic`: create, list, describe, alter and delete topics.

Read `command`, then `scaling` (partitions and replication factor), `compaction` and `archive`,
which add a few verbs each.
"""
