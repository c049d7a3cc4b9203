"""Messages that a server pushes: one subscription of a group over one WebSocket.

Read `frames` (what goes over it), `connection` (one subscription, as long as its connection lives),
and `credit`, which says how much may come.
"""
