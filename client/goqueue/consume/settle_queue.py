"""Settles of one consumer, together: those of a partition that come while a request is on its way
share the next one. Partitions do not wait for each other: one without a leader delays only its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Any

from goqueue.models.failures import Closed
from goqueue.models.groups import TopicPartition
from goqueue.models.settles import SETTLES_MAX, Settle, SettleResult
from goqueue.wire.errors import GoQueueError

Told = Callable[[SettleResult], None]


class _Entry:
    """One settle, and who is told what becomes of it."""

    __slots__ = ("settle", "told")

    def __init__(self, settle: Settle, told: Told) -> None:
        self.settle = settle
        self.told = told


class SettleQueue:
    """`send` settles many of one partition at once; `spawn` runs what belongs to nobody who waits
    for it; `answered` is called when some of them have been told."""

    def __init__(
        self,
        send: Callable[[Sequence[Settle], TopicPartition], Awaitable[list[SettleResult]]],
        spawn: Callable[[Coroutine[Any, Any, None]], object],
        answered: Callable[[], None] = lambda: None,
    ) -> None:
        self._send = send
        self._spawn = spawn
        self._answered = answered
        self._waiting: dict[TopicPartition, list[_Entry]] = {}
        self._unanswered: dict[_Entry, None] = {}
        self._all_answered = asyncio.Event()
        self._closed = False

    @property
    def unanswered(self) -> int:
        """How many were put and have no result yet."""
        return len(self._unanswered)

    def put(self, settle: Settle, place: TopicPartition, told: Told) -> None:
        """`told` is called once with its result, an error among them."""
        if self._closed:
            told(Closed("the consumer is closed"))
            return
        entry = _Entry(settle, told)
        self._unanswered[entry] = None
        waiting = self._waiting.get(place)
        if waiting is not None:
            waiting.append(entry)
            return
        self._waiting[place] = [entry]
        self._spawn(self._drain(place))

    async def settled(self, settle: Settle, place: TopicPartition) -> SettleResult:
        """As `put`: its result. Cancelling it does not call the settle off."""
        result: asyncio.Future[SettleResult] = asyncio.get_running_loop().create_future()
        self.put(settle, place, teller(result))
        return await result

    async def flush(self) -> None:
        """Wait until all that was put is answered."""
        while self._unanswered:
            self._all_answered.clear()
            await self._all_answered.wait()

    def close(self) -> None:
        """Nothing is sent any more; what was not answered gets `Closed`. Idempotent."""
        self._closed = True
        closed = Closed("the consumer is closed")
        self._tell([(entry, closed) for entry in self._unanswered])

    async def _drain(self, place: TopicPartition) -> None:
        while entries := self._waiting[place][:SETTLES_MAX]:
            self._waiting[place] = self._waiting[place][SETTLES_MAX:]
            results: Sequence[SettleResult]
            try:
                results = await self._send([entry.settle for entry in entries], place)
            except GoQueueError as error:
                results = [error] * len(entries)
            self._tell(zip(entries, results, strict=True))
        del self._waiting[place]

    def _tell(self, found: Iterable[tuple[_Entry, SettleResult]]) -> None:
        """Those that were not told before."""
        for entry, result in found:
            if entry in self._unanswered:
                del self._unanswered[entry]
                entry.told(result)
        if not self._unanswered:
            self._all_answered.set()
        self._answered()


def teller(result: asyncio.Future[SettleResult]) -> Told:
    """Sets a future's result, unless nobody waits for it any more."""

    def told(found: SettleResult) -> None:
        if not result.done():
            result.set_result(found)

    return told
