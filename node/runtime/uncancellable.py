"""Work of a thread whose outcome its caller must know, though nobody may wait for it any more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TypeVar

T = TypeVar("T")


async def run_uncancellable(workers: Executor, work: Callable[[], T]) -> T:
    """Its result. Who is cancelled meanwhile goes on once the work is over: what it changes is
    never changed by two at once, and never half known."""
    running = asyncio.get_running_loop().run_in_executor(workers, work)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        if not running.cancelled():
            running.exception()
        raise
