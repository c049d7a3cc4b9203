"""Questions about messages: search them, explain them, read their events in bulk.

Begin with `message_search` (by id, key, header, time and state) and `search_counts` (what its
hashes take); `why` explains why one message is not delivered. `event_reader` reads a partition's
events in pages: `event_page` is one of them in the making, `event_cursors` where the next one
goes on.
"""
