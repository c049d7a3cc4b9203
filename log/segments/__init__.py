"""The entries of one group on disk: a chain of segments with their indexes.

Read `file_header`, `index` and `segment` for one segment, with `frame_reader` and `empty_runs`
beneath it; then `searches` and `chain` for all of a group's. `verify` reads segments again from the
medium, and mends their indexes. `incoming` renames copied files into place. `counters` is what all
this does to the disk, for statistics.

Beside a segment may lie files made from it: `block_file` is their common format, `hash_file` and
`message_entry_index` the two kinds, `le_columns` their columns of numbers.
"""
