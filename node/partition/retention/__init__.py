"""What of a partition's log may go: by age and size, by key, and once it is archived.

Begin with `trimming` (retention by age and size), with `archiving` (what must wait for an
archive) and `reappended` (messages that were appended once more, as their entries went).
`compaction` keeps the last message of each key; `compaction_scan` does its work on threads.
"""
