"""The wire formats of GoQueue: what brokers, clients and archives all speak. The lowest floor.

Read `errors` (everything a caller can be told), `types` and `ids` (the names of things), `layout`
(the header of a record batch), `batch` and `encoding` (taking one apart, building one), then
`records`, `compression`, `stream` (the framing of batches in a read), `events`, and `partitioner`
(where a key belongs).
"""
