"""The HTTP front over a broker in memory, with a clock that moves when told to."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from node.http.fake.broker import FakeBroker
from node.http.server.app import HttpFront

T0_MS = 1_736_937_000_000  # 2025-01-15T10:30:00Z


class QueueCluster:
    """One node; `now_ms` is its time."""

    def __init__(self) -> None:
        self.now_ms = T0_MS
        self.broker = FakeBroker(clock_ms=lambda: self.now_ms)

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[str]:
        front = HttpFront(self.broker, port=0)
        await front.start()
        try:
            yield f"http://127.0.0.1:{front.port}"
        finally:
            await front.stop()
