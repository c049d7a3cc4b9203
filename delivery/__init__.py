"""What a partition does with its entries: a pure state machine, without I/O, clock or randomness.

Start with `entries`, what the log of a partition holds, and `state`, what applied entries add up to
on every replica, with `config` and `errors`. Then follow a subject to its room: `leader` decides
before an entry exists; `dedup` keeps a batch from being stored twice; `group` is one consumer group
in one partition; `offsets` are the sets and orders it is made of; `history` is what outlives the
entries.

What people ask about messages is answered above the state: `lookup`, `timeline` and `events`.
Rooms import downwards, in the order of the contract in `pyproject.toml`.
"""
