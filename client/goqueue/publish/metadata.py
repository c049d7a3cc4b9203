"""What matters of a topic to those who publish: asked once, remembered for a while."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

KEPT_S = 30.0
TOPICS_MAX = 10_000


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """How many partitions there are, and how long the topic knows message ids again."""

    partitions: int
    ids_kept_s: float = 0.0

    @property
    def repeats_for_s(self) -> float:
        """How long a message with an id may safely be repeated; 0 for not at all. Half of what the
        topic promises, as an attempt that was given up may yet arrive."""
        return self.ids_kept_s / 2


class KnownTopics:
    """A bounded cache over the cluster's answer. A stale count only sends a key where it used to
    go, or is refused as an unknown partition."""

    def __init__(self, ask: Callable[[str], Awaitable[TopicFacts]]) -> None:
        self._ask = ask
        self._kept: dict[str, tuple[float, TopicFacts]] = {}

    async def get(self, topic: str) -> TopicFacts:
        """Raises what asking raises, `UnknownTopic` above all."""
        now_s = asyncio.get_running_loop().time()
        kept = self._kept.get(topic)
        if kept is not None and now_s - kept[0] < KEPT_S:
            return kept[1]
        facts = await self._ask(topic)
        while len(self._kept) >= TOPICS_MAX:
            del self._kept[next(iter(self._kept))]
        self._kept[topic] = (asyncio.get_running_loop().time(), facts)
        return facts

    def forget(self, topic: str) -> None:
        """Ask again next time."""
        self._kept.pop(topic, None)
