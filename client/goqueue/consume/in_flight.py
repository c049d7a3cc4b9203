"""What a consumer has handed out and what is not settled yet."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass

from goqueue.consume.prefetch import Held
from goqueue.models.groups import TopicPartition
from goqueue.models.queued import Received


@dataclass(slots=True)
class Work:
    """A message that somebody works on. `by` is who, None once nobody says so; `is_handled` if a
    handler does, whose end is known. A settle that ends it is on its way when it `is_ending`."""

    held: Held
    by: object | None
    is_handled: bool
    begun_s: float
    is_ending: bool = False


class InWork:
    """By receipt."""

    def __init__(self) -> None:
        self._works: dict[str, Work] = {}
        self._waiters: list[tuple[Callable[[Work], bool], asyncio.Event]] = []

    def __len__(self) -> int:
        return len(self._works)

    def all(self) -> list[Work]:
        return list(self._works.values())

    def get(self, receipt: str) -> Work | None:
        return self._works.get(receipt)

    def begin(self, held: Held, by: object, now_s: float, *, is_handled: bool) -> Received:
        """Hand it out."""
        self._works[held.message.receipt] = Work(held, by, is_handled, now_s)
        return held.message

    def end(self, receipt: str) -> None:
        """It is settled, or its lease is over."""
        if self._works.pop(receipt, None) is not None:
            self._look()

    def let_lapse(self, work: Work) -> None:
        """Nobody works on it, and it could not be settled: its lease is to end by itself."""
        work.by, work.is_handled, work.is_ending = None, False, False
        self._look()

    def lose(self, places: Collection[TopicPartition]) -> None:
        """These partitions are somebody else's: what is worked on there is so in vain."""
        for receipt, work in list(self._works.items()):
            if work.held.place in places:
                del self._works[receipt]
        self._look()

    def expire(self, now_s: float) -> None:
        """Forget what was handed out, never settled, and comes again by now."""
        for receipt, work in list(self._works.items()):
            if work.held.deadline_s <= now_s:
                del self._works[receipt]
        self._look()

    def put_aside(self, by: object) -> list[Work]:
        """`by` asks for the next one: what it had before is kept up no longer. Returns that, where
        it is not settled."""
        found = [work for work in self._works.values() if work.by == by and not work.is_handled]
        for work in found:
            work.by = None
        return found

    def has(self, place: TopicPartition) -> bool:
        """Whether anything of the partition is worked on."""
        return any(work.held.place == place for work in self._works.values())

    async def ended(self, which: Callable[[Work], bool]) -> None:
        """Wait until no work of which this is true is left."""
        if not any(map(which, self._works.values())):
            return
        waiter = (which, asyncio.Event())
        self._waiters.append(waiter)
        try:
            await waiter[1].wait()
        finally:
            self._waiters.remove(waiter)

    def _look(self) -> None:
        for which, event in self._waiters:
            if not any(map(which, self._works.values())):
                event.set()
