"""The wire formats of GoQueue: what brokers, clients and archives all speak. The lowest floor.

`batch` is the record batch, `stream` the framing of batches in a read, `errors` what can go wrong,
`ids` and `types` the names of things, `partitioner` where a key belongs.
"""
