"""What is kept of a partition beside its entries, or after they have gone.

`outcome_notes` are decisions that were made while applying and that the log does not tell.
`compacted_set` is what compaction has left. `archive` says how far a partition is archived, and
whether its messages wait for that. They may be read in any order.
"""
