"""What a partition does with its entries: a pure state machine, without I/O, clock or randomness.

`records` is the body of a records entry, `partition` the state that every replica applies,
`appender` the leader's decisions before an entry exists, `producers` and `requests` what is
remembered so that nothing is stored twice.
"""
