"""One change in several partitions, each of which makes it or does not."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from typing import TypeVar

from goqueue.wire.errors import GoQueueError

T = TypeVar("T")


async def all_of(changes: Iterable[Awaitable[T]]) -> list[T]:
    """What each came to. Where one fails, its error comes once all have ended, and its outcome is
    unknown where another one was made, or may have been."""
    ends = await asyncio.gather(*changes, return_exceptions=True)
    done: list[T] = []
    failed: list[GoQueueError] = []
    for end in ends:
        if isinstance(end, GoQueueError):
            failed.append(end)
        elif isinstance(end, BaseException):
            raise end
        else:
            done.append(end)
    if not failed:
        return done
    if done or any(error.outcome == "unknown" for error in failed):
        failed[0].outcome = "unknown"
    raise failed[0]
