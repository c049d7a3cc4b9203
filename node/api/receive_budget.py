"""Room for what is taken from the queue: asked for by who takes, given by who will answer with it.

Between the two stand brokers that pass on what their callers want of messages, and nothing about
memory; so it goes with the task, in `TAKING`.
"""

from __future__ import annotations

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


TAKING: ContextVar[Taking | None] = ContextVar("taking", default=None)
