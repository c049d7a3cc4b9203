"""Streams: messages pushed to a consumer over a WebSocket, by credit, and settled up the same way.

Read `frames` first: what both sides say. `registry` lets clients in, pings them, and ends those
that are silent; `session` is one stream, with its parts: `source`, where messages come from;
`credit`, what it may still be given; `delivery`, what is given (`batches`: in binary frames);
`settling`, what comes back, confirmed in order; `member`, its assignment; `wire`, what is written.
"""
