"""Sets and orders of offsets: what a queue of millions of messages is made of.

Read `bitmaps` first: sets. `lanes` are what is ready, by priority; `due` is what happens when;
`keys` are hashes of record keys; `store_times` tell how long something has waited.
"""
