"""Reads of one replica's log: batches, single messages, and the indexes beside its segments.

Begin with `reader` (batches by offset and time) and `message_reader` (decoded messages). An index
is kept by `segment_follower`: `search_hashes` for ids, trace ids and headers,
`message_entry_index` for the entries that concern a message. `stored_ids` proves that a hash is
of the id asked for.
"""
