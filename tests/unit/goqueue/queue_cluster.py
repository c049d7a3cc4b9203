"""A real node with a clock that moves when told to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.one_node import Clock, serving

T0_MS = 1_736_937_000_000  # 2025-01-15T10:30:00Z


class QueueCluster:
    """One node; `now_ms` is its time. Made on the loop that it is served on."""

    def __init__(self) -> None:
        self._clock = Clock(T0_MS, asyncio.get_running_loop())

    @property
    def now_ms(self) -> int:
        return self._clock.now_ms

    @now_ms.setter
    def now_ms(self, now_ms: int) -> None:
        self._clock.now_ms = now_ms

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[str]:
        async with serving(self._clock) as url:
            yield url
