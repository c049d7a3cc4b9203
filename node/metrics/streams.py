"""Streams: consumers that messages are pushed to."""

from __future__ import annotations

from node.metrics.declare import Declarations
from node.metrics.meaning import Moves, Teller


class StreamMetrics:
    """Of `GET /v1/groups/{group}/stream` at the node that was asked."""

    def __init__(self, of: Declarations) -> None:
        self.open = of.gauge(
            "goqueue_streams_open",
            "Streams of groups that this node serves now",
            told=Teller.NODE,
            moves=Moves.STREAM,
        )
        self.messages = of.counter(
            "goqueue_stream_messages_total",
            "Messages given to consumers on streams",
            ("topic",),
            told=Teller.FRONT,
            moves=Moves.STREAM,
        )
        self.ended = of.counter(
            "goqueue_streams_ended_total",
            "Streams that are over: closed by their client, lost with its connection, silent,"
            " refused for an error, moved as the node stops, or failed with the node",
            ("how",),
            told=Teller.FRONT,
            moves=Moves.STREAM,
        )
