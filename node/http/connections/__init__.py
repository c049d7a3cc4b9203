"""Connections: from accept to their end, with deadlines and caps that aiohttp leaves open.

Read `client` first: what handlers know of who asks. `protocol` is one connection, and the server
that makes and sweeps them. `listener` accepts
them, and counts those whose TLS is not done; `handshakes` and `idle` are those that may be cut to
make room; `arrivals` is what one has sent and nobody has read.
"""
