"""What matters of a topic to those who publish: asked once, remembered for a while."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from goqueue.wire.errors import GoQueueError, Timeout

KEPT_S = 30.0
WAITED_S = 10.0
"""Who has waited less for another's question asks again where that one's time was over."""
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
    """A bounded cache over the cluster's answer; those who want to know at once share the question.
    A stale count only sends a key where it used to go, or is refused as an unknown partition."""

    def __init__(self, ask: Callable[[str], Awaitable[TopicFacts]]) -> None:
        self._ask = ask
        self._kept: dict[str, tuple[float, TopicFacts]] = {}
        self._asked: dict[str, asyncio.Future[TopicFacts | GoQueueError | None]] = {}
        """What is asked now, for those who wait: None where whoever asked was cancelled."""

    async def get(self, topic: str) -> TopicFacts:
        """Raises what asking raises, `UnknownTopic` above all."""
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        while True:
            now_s = loop.time()
            kept = self._kept.get(topic)
            if kept is not None and now_s - kept[0] < KEPT_S:
                return kept[1]
            asked = self._asked.get(topic)
            if asked is None:
                return await self._asking(topic)
            told = await asyncio.shield(asked)
            if isinstance(told, GoQueueError):
                if isinstance(told, Timeout) and loop.time() - began_s < WAITED_S:
                    continue
                raise GoQueueError.from_body(told.to_body()) from told
            if told is not None:
                return told

    def forget(self, topic: str) -> None:
        """Ask again next time, whatever is answered to those who have asked before."""
        self._kept.pop(topic, None)
        self._asked.pop(topic, None)

    async def _asking(self, topic: str) -> TopicFacts:
        loop = asyncio.get_running_loop()
        asked = self._asked[topic] = loop.create_future()
        told: TopicFacts | GoQueueError | None = None
        try:
            facts = told = await self._ask(topic)
        except GoQueueError as error:
            told = error
            raise
        finally:
            asked.set_result(told)
            if self._asked.get(topic) is asked:  # not forgotten meanwhile
                del self._asked[topic]
                if isinstance(told, TopicFacts):
                    self._keep(topic, loop.time(), told)
        return facts

    def _keep(self, topic: str, now_s: float, facts: TopicFacts) -> None:
        while len(self._kept) >= TOPICS_MAX:
            del self._kept[next(iter(self._kept))]
        self._kept[topic] = (now_s, facts)
