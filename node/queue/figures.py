"""Figures of queues, from the leaders of their partitions."""

from __future__ import annotations

from goqueue.wire.types import PartitionId
from node.api.figures import PartitionQueueStats
from node.cluster.topic_finder import TopicFinder
from node.queue.calls import QueueCalls


class QueueFigures:
    """Implements `node.api.figures.Figures`. Loop thread only."""

    def __init__(self, finder: TopicFinder, calls: QueueCalls) -> None:
        self._finder = finder
        self._calls = calls

    async def queue_stats(self, topic: str | None = None) -> list[PartitionQueueStats]:
        topics = self._finder.all() if topic is None else [await self._finder.find(topic)]
        figures = await self._calls.figures(topics)
        told = {PartitionId.unpack(packed) for packed, _dead in figures.dead}
        stale = [
            self._calls.unconfirmed(found.name, id)
            for found in topics
            for number in range(len(found.partitions))
            if (id := PartitionId(found.id, number)) not in told
        ]
        return sorted((*figures.partitions, *stale), key=lambda one: (one.topic, one.partition))
