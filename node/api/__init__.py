"""The node as its HTTP front and its other rooms see it: Protocols, and the views they return.

Nothing here does anything: the methods of `broker.Broker` are carried out in `node.broker`, and
called in `node.http`. Both import this room, and neither imports the other.

Read `broker` first, which puts the other Protocols together; then `topics` and `records`, and
`queue`, `groups` and `members` for consumers. The others hold one subject each. A method is
declared once, together with its rule (`rules`): what a call is held against. `spans`, `times` and
`receiving` are what both sides must agree on besides.
"""
