"""Requests of one turn of the loop do together what is cheaper once than many times.

Nothing waits for company: what has come by the next turn goes, be it one or fifty. So a lone
request takes no longer, and of many at once the work is shared.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from goqueue.background import TaskSet

ITEMS_MAX = 1000
BYTES_MAX = 1 << 20
"""Of what goes together; the rest goes beside it."""

T = TypeVar("T")
R = TypeVar("R")


@dataclass(slots=True)
class _Group:
    """What has come for one key in this turn, and who waits for it."""

    key: Hashable
    work: Callable[[Sequence[Any]], Awaitable[Sequence[Any]]]
    parts: list[tuple[Any, asyncio.Future[Any]]] = field(
        default_factory=list[tuple[Any, "asyncio.Future[Any]"]]
    )
    items: int = 0
    size_bytes: int = 0

    def fits(self, items: int, size_bytes: int) -> bool:
        return self.items + items <= ITEMS_MAX and self.size_bytes + size_bytes <= BYTES_MAX


class OneTurn:
    """Of one front. Loop thread only."""

    def __init__(self) -> None:
        self._groups: dict[Hashable, _Group] = {}
        self._tasks = TaskSet(None)

    async def join(
        self,
        key: Hashable,
        part: T,
        work: Callable[[Sequence[T]], Awaitable[Sequence[R]]],
        *,
        items: int,
        size_bytes: int,
    ) -> R:
        """What the work has for this part. It is done for all parts of the key that come in this
        turn, in their order, by the `work` of whoever was first, and answers in that order; what it
        raises, all of them raise. Who is cancelled before takes its part with it. `items` and
        `size_bytes` are what the part holds."""
        loop = asyncio.get_running_loop()
        group = self._groups.get(key)
        if group is None or not group.fits(items, size_bytes):
            group = self._groups[key] = _Group(key, work)
            loop.call_soon(self._leave, group)
        told: asyncio.Future[R] = loop.create_future()
        group.parts.append((part, told))
        group.items += items
        group.size_bytes += size_bytes
        return await told

    async def stop(self) -> None:
        """Break off what is on its way. Idempotent."""
        await self._tasks.stop()

    # -- private

    def _leave(self, group: _Group) -> None:
        if self._groups.get(group.key) is group:
            del self._groups[group.key]
        group.parts = [part for part in group.parts if not part[1].done()]
        if group.parts:
            self._tasks.begin(_run(group))


async def _run(group: _Group) -> None:
    try:
        found = await group.work([part for part, _ in group.parts])
        for (_, told), result in zip(group.parts, found, strict=True):
            if not told.done():
                told.set_result(result)
    except Exception as error:  # noqa: BLE001 - it is told to each of those who wait
        for _, told in group.parts:
            if not told.done():
                told.set_exception(error)
    finally:
        for _, told in group.parts:
            told.cancel()  # those that nobody has told anything: the work was broken off
