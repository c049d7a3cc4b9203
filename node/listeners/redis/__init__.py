"""Redis' protocol, RESP2 and RESP3: streams, queues as lists, and miniqueue's words.

`listener` is the port.
"""
