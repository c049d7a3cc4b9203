"""Settles of one consumer, together: those of a partition that come while a request is on its way
share the next one. Partitions do not wait for each other: one without a leader delays only its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

from goqueue.models.failures import Closed
from goqueue.models.groups import TopicPartition
from goqueue.models.settles import SETTLES_MAX, Settle, SettleResult
from goqueue.wire.errors import GoQueueError

_Entry = tuple[Settle, "asyncio.Future[SettleResult]"]


class SettleQueue:
    """`send` settles many of one partition at once; `spawn` runs what belongs to nobody who waits
    for it."""

    def __init__(
        self,
        send: Callable[[Sequence[Settle], TopicPartition], Awaitable[list[SettleResult]]],
        spawn: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        self._send = send
        self._spawn = spawn
        self._waiting: dict[TopicPartition, list[_Entry]] = {}
        self._unanswered: set[asyncio.Future[SettleResult]] = set()
        self._closed = False

    @property
    def unanswered(self) -> int:
        """How many were put and have no result yet."""
        return len(self._unanswered)

    def put(self, settle: Settle, place: TopicPartition) -> asyncio.Future[SettleResult]:
        """Its result, an error among them; cancelling it does not call the settle off."""
        result: asyncio.Future[SettleResult] = asyncio.get_running_loop().create_future()
        if self._closed:
            result.set_result(Closed("the consumer is closed"))
            return result
        self._unanswered.add(result)
        result.add_done_callback(self._unanswered.discard)
        waiting = self._waiting.get(place)
        if waiting is not None:
            waiting.append((settle, result))
            return result
        self._waiting[place] = [(settle, result)]
        self._spawn(self._drain(place))
        return result

    async def flush(self) -> None:
        """Wait until all that was put is answered."""
        while self._unanswered:
            await asyncio.wait(set(self._unanswered))

    def close(self) -> None:
        """Nothing is sent any more; what was not answered gets `Closed`. Idempotent."""
        self._closed = True
        for result in list(self._unanswered):
            _tell(result, Closed("the consumer is closed"))

    async def _drain(self, place: TopicPartition) -> None:
        while entries := self._waiting[place][:SETTLES_MAX]:
            self._waiting[place] = self._waiting[place][SETTLES_MAX:]
            try:
                results = await self._send([settle for settle, _ in entries], place)
            except GoQueueError as error:
                results = [error] * len(entries)
            for (_, result), found in zip(entries, results, strict=True):
                _tell(result, found)
        del self._waiting[place]


def _tell(result: asyncio.Future[SettleResult], found: SettleResult) -> None:
    if not result.done():
        result.set_result(found)
