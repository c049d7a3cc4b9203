"""Publishing: from a message to a record batch, and from the answer to where it stands.

Read `outgoing` (a message as columns or as JSON), `request` (one publish call) and `singles` (calls
with one message share requests), then `producer`, which gathers messages into `batches` and has a
`sender` for each partition. `metadata` remembers what there is to know of a topic; `round_robin`
chooses partitions for messages without a key.
"""
