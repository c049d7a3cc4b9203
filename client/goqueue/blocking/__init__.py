"""The same client, producer and consumer for programs without an event loop.

Read `loop_thread` (an event loop in a thread of its own), then `client` with `queue`, `producer`
and `consumer`: each runs its asynchronous twin there and waits.
"""
