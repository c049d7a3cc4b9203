"""Requests to other nodes: the link, and sending a request to whoever leads.

Begin with `link` (what parts use of the connection to a peer), then `forwarding` (find the
leader, repeat where that is safe, end by the deadline) and `repetition` (which requests may be
repeated). `leaders` asks many leaders at once, `clocks` compares the peers' clocks with ours.
What requests look like in bytes is in `node.rpc`.
"""
