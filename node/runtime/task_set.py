"""Tasks under way: those of one leadership, which end by themselves or with it, and how any end."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Coroutine, Iterator
from typing import Any


async def ended(tasks: Collection[asyncio.Task[Any]]) -> None:
    """Cancel these, and wait until they are over, however they end."""
    waited = list(tasks)
    for task in waited:
        task.cancel()
    if waited:
        await asyncio.wait(waited)


class UnderWay:
    """Tasks that nobody waits for. Loop thread only."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def __iter__(self) -> Iterator[asyncio.Task[None]]:
        return iter(self._tasks)

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def cancel(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def settled(self) -> None:
        """Wait until nothing is under way."""
        while self._tasks:
            await asyncio.wait(list(self._tasks))
