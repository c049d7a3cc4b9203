"""A real node with a clock that moves when told to."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import Future
from contextlib import asynccontextmanager
from pathlib import Path

from goqueue.local.directory import DirectoryChannel
from node.http.server.app import HttpFront
from node.http.server.local import LocalAnswer
from tests.one_node import Clock, one_node, serving

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

    @asynccontextmanager
    async def open(self, directory: Path) -> AsyncIterator[DirectoryChannel]:
        """As a directory, which is in memory: nothing is there but the socket for others."""
        async with one_node(self._clock, **{"broker.autoCreateTopics": True}) as node:
            engine = FrontEngine(node.front)
            yield DirectoryChannel(directory, lambda _: engine)
            for listening in engine.listening:
                listening.close()


class FrontEngine:
    """The node of this loop as the engine of a directory."""

    failure = None

    def __init__(self, front: HttpFront) -> None:
        self._front = front
        self._loop = asyncio.get_running_loop()
        self.listening: list[socket.socket] = []

    def ask(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes
    ) -> Future[LocalAnswer]:
        asked = self._front.ask(method, target, headers, body)
        return asyncio.run_coroutine_threadsafe(asked, self._loop)

    def serve(self, listening: socket.socket, may_come: Callable[[socket.socket], bool]) -> None:
        self.listening.append(listening)

    def close(self) -> None:
        return None
