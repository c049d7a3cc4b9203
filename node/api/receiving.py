"""What a receive asks for and tells on its way: room for what it takes, and when it only waits.

Between a front and who takes messages stand brokers that pass on what their callers want of
messages, and nothing about memory or about stops; so both go with the task, in `TAKING` and
`WAITING`.
"""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from typing import Protocol


class Taking(Protocol):
    """One request's room; it holds none while it waits for messages."""

    async def begin(self, bytes_max: int) -> int:
        """How many bytes may be leased and read now, at most so many. Raises OverBudget."""
        ...

    def end(self) -> None:
        """Nothing was taken."""
        ...


class Waiting:
    """When work for a caller may be cut off: a node that stops ends waits, and lets what is begun
    end. Messages that are leased for a receive that is cut off are given back, and in between
    others are given what comes after them. Work that says nothing does no more than wait."""

    def __init__(self) -> None:
        self._waits = asyncio.Event()
        self._waits.set()

    def begin(self) -> None:
        """From now on something is under way, until `rest()` or until the work returns."""
        self._waits.clear()

    def rest(self) -> None:
        """Nothing is under way."""
        self._waits.set()

    async def rests(self) -> None:
        """Return once nothing is under way."""
        await self._waits.wait()


TAKING: ContextVar[Taking | None] = ContextVar("taking", default=None)
WAITING: ContextVar[Waiting | None] = ContextVar("waiting", default=None)
