"""Archives of topics: how far each partition's is, of those that have one or wait for one."""

from __future__ import annotations

from node.metrics.declare import Declarations
from node.metrics.meaning import Moves, Teller
from node.metrics.storage import PARTITION


class ArchiveMetrics:
    """Told by leaders at each look."""

    def __init__(self, of: Declarations) -> None:
        leader, maintenance = Teller.LEADER, Moves.UPKEEP
        self.position = of.sampled(
            "goqueue_archive_position",
            "The offset below which all is archived, as it was reported",
            PARTITION,
            told=leader,
            moves=maintenance,
        )
        self.lag_messages = of.sampled(
            "goqueue_archive_lag_messages",
            "Messages that are not archived",
            PARTITION,
            told=leader,
            moves=maintenance,
        )
        self.lag_seconds = of.sampled(
            "goqueue_archive_lag_seconds",
            "How long ago the first message that is not archived was stored",
            PARTITION,
            told=leader,
            moves=maintenance,
        )
        self.required = of.sampled(
            "goqueue_archive_required",
            "1 where messages stay until they are archived",
            PARTITION,
            told=leader,
            moves=maintenance,
        )
