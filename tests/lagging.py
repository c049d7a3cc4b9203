"""A broker whose answers come from a replica that lags, and that no leader confirms."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from goqueue.wire.types import Offset
from node.api.records import Slice
from node.api.topics import TopicView
from node.broker.node import NodeBroker


class Lagging:
    """In the place of a broker's `read` and `topic`, for partition 0 of its topics."""

    def __init__(self, broker: NodeBroker) -> None:
        self._end, self._answers = 0, 0
        self._read, self._topic = broker.records.read, broker.topics.topic
        broker.records.read = self.read  # type: ignore[method-assign]
        broker.topics.topic = self.topic  # type: ignore[method-assign]

    def hide(self, end: int, answers: int) -> None:
        """So many answers come from a replica that has come to `end`."""
        self._end, self._answers = end, answers

    async def read(
        self, topic: str, partition: int, offset: Offset, *, current: bool = False, **more: Any
    ) -> Slice:
        if partition or not self._answers:
            return await self._read(topic, partition, offset, current=current, **more)
        self._answers -= 1
        found = await self._read(topic, partition, offset, **{**more, "wait_s": 0.0})
        end = Offset(self._end)
        return replace(
            found,
            batches=[stored for stored in found.batches if stored.base_offset < end],
            next_offset=min(found.next_offset, end),
            end_offset=end,
            stale=current or found.next_offset >= end,
        )

    async def topic(self, name: str) -> TopicView:
        view = await self._topic(name)
        if not self._answers:
            return view
        self._answers -= 1
        first, *others = view.partitions
        lags = replace(first, next=Offset(self._end), stale=True)
        return replace(view, partitions=(lags, *others))
