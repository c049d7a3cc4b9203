"""Streams: messages pushed to a consumer over a WebSocket, by credit, and settled up the same way.

Read `frames` first: what both sides say. `door` lets a client in, and `session` is one stream, with
its parts: `credit`, what it may still be given; `delivery`, what is given; `settling`, what comes
back, confirmed in order; `member`, the assignment of a member. `registry` holds the streams of
a front, pings them, and ends those that are silent.
"""
