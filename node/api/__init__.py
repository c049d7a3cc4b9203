"""The node as its HTTP front and its other rooms see it: Protocols, and the views they return.

Nothing here does anything: the methods of `broker.Broker` are carried out in `node.broker`, and
called in `node.http`. Both import this room, and neither imports the other.

Read `broker` first, which puts the other Protocols together; then `queue` and `members`, for groups
of consumers, and `placement`. The others hold one subject each. `spans`, `times` and
`receive_budget` are what both sides must agree on besides.
"""
