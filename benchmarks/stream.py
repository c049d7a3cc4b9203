"""A WebSocket of a group, as benchmarks talk to it, and when a cluster has it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from benchmarks.processes import DevCluster
from goqueue import AsyncClient
from log.levels import Feature

BYTES_MAX = 4 << 20


class Stream:
    """One WebSocket that has subscribed; whatever is not asked for is not looked at."""

    GROUP = "g"

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._number = 0

    @classmethod
    @asynccontextmanager
    async def open(
        cls, session: aiohttp.ClientSession, url: str, topic: str, credit: int
    ) -> AsyncIterator[Stream]:
        async with session.ws_connect(f"{url}/v1/groups/{cls.GROUP}/stream", compress=0) as socket:
            stream = cls(socket)
            credits = {"messages": credit, "bytes": BYTES_MAX}
            await socket.send_json({"type": "subscribe", "topics": [topic], "credit": credits})
            await stream.next("subscribed")
            yield stream

    async def next(self, kind: str) -> dict[str, Any]:
        """The next frame of this type; others before it are dropped. Raises on an error."""
        while True:
            frame = await self.frame()
            if frame["type"] == "error":
                raise RuntimeError(f"the stream was told {frame}")
            if frame["type"] == kind:
                return frame

    async def frame(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(await self._socket.receive_str())
        return found

    async def ack(self, messages: list[dict[str, Any]]) -> None:
        """Sent, and not waited for."""
        self._number += 1
        settles = [{"receipt": one["receipt"], "action": "ack"} for one in messages]
        await self._socket.send_json({"type": "settle", "id": self._number, "settles": settles})


async def finished(cluster: DevCluster) -> None:
    """All nodes know that the cluster has finished the level that streams need."""
    async with asyncio.timeout(60.0):
        for url in cluster.urls:
            async with AsyncClient([url]) as client:
                while await client.admin.level() < Feature.STREAMS:  # noqa: ASYNC110 - a poll
                    await asyncio.sleep(0.2)
