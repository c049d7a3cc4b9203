"""How many partitions a topic has: asked once, remembered for a while."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

KEPT_S = 30.0
TOPICS_MAX = 10_000


class PartitionCounts:
    """A bounded cache over the cluster's answer. A count only matters for choosing a partition: a
    stale one sends a key where it used to go, or is refused as an unknown partition."""

    def __init__(self, ask: Callable[[str], Awaitable[int]]) -> None:
        self._ask = ask
        self._kept: dict[str, tuple[float, int]] = {}

    async def get(self, topic: str) -> int:
        """At least 1. Raises what asking raises, `UnknownTopic` above all."""
        now_s = asyncio.get_running_loop().time()
        kept = self._kept.get(topic)
        if kept is not None and now_s - kept[0] < KEPT_S:
            return kept[1]
        count = await self._ask(topic)
        self.put(topic, count)
        return count

    def put(self, topic: str, count: int) -> None:
        while len(self._kept) >= TOPICS_MAX:
            del self._kept[next(iter(self._kept))]
        self._kept[topic] = (asyncio.get_running_loop().time(), count)

    def forget(self, topic: str) -> None:
        """Ask again next time."""
        self._kept.pop(topic, None)
