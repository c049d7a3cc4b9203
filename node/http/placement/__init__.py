"""Where partitions are: brokers, moves between them, and topics that grow.

Read `plans` first, how moves are shown and asked for. `brokers` lists and drains them,
`reassignments` moves partitions, `scaling` adds some to a topic.
"""
