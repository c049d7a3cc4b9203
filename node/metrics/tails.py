"""Tails: who reads topics as they are written."""

from __future__ import annotations

from node.metrics.declare import Declarations
from node.metrics.meaning import Moves, Teller


class TailMetrics:
    """Of `GET /v1/topics/{topic}/tail` at the node that was asked."""

    def __init__(self, of: Declarations) -> None:
        self.open = of.gauge(
            "goqueue_tails_open",
            "Tails of topics that are read from this node now",
            told=Teller.NODE,
            moves=Moves.TAIL,
        )
        self.messages = of.counter(
            "goqueue_tail_messages_total",
            "Messages sent to readers of tails",
            ("topic",),
            told=Teller.FRONT,
            moves=Moves.TAIL,
        )
        self.reads = of.counter(
            "goqueue_tail_reads_total",
            "Reads of partitions for tails: shared by all who are at the end, or a reader's own"
            " that is behind it",
            ("reader",),
            told=Teller.FRONT,
            moves=Moves.TAIL,
        )
