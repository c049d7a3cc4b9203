"""Damage on disk, found and mended from other replicas.

Begin with `healer` (single entries). `scrub` reads everything from time to time and has it
compared by `comparison`; `whole_replicas` handles what is beyond single entries, with copies.
"""
