"""A proxy between nodes that holds every byte back for a while, and may hold it for ever."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import deque

_CHUNK = 1 << 16


class SlowLine:
    """Passes connections to one address on, `delay_s` later in each direction; bytes stay in
    order. Started on a port of `host` that it chooses."""

    def __init__(self, host: str, target: tuple[str, int], rng: random.Random) -> None:
        self._host = host
        self._target = target
        self._rng = rng
        self._server: asyncio.Server | None = None
        self._running: set[asyncio.Task[None]] = set()
        self.port = 0
        self.delay_s = (0.0, 0.0)
        self.is_cut = False
        self.passed = 0
        self.held = 0
        """Times that something was there and could not pass."""

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, self._host, 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Every connection ends."""
        if self._server is not None:
            self._server.close()
        self.reset()
        if self._running:
            await asyncio.wait(self._running)

    def reset(self) -> None:
        """Connections that stand end; others can be made."""
        for task in self._running:
            task.cancel()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._running.add(task)
        try:
            await self._pass(reader, writer)
        except (OSError, asyncio.CancelledError, BaseExceptionGroup):
            pass
        finally:
            self._running.discard(task)
            writer.transport.abort()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, onward = await asyncio.open_connection(*self._target)
        try:
            async with asyncio.TaskGroup() as tasks:
                for source, sink in ((reader, onward), (there, writer)):
                    line: deque[tuple[float, bytes]] = deque()
                    arrived = asyncio.Event()
                    tasks.create_task(self._take(source, line, arrived))
                    tasks.create_task(self._give(sink, line, arrived))
        finally:
            onward.transport.abort()

    async def _take(
        self, source: asyncio.StreamReader, line: deque[tuple[float, bytes]], arrived: asyncio.Event
    ) -> None:
        loop = asyncio.get_running_loop()
        due = 0.0
        while True:
            data = await source.read(_CHUNK)
            due = max(due, loop.time() + self._rng.uniform(*self.delay_s))
            line.append((due, data))
            arrived.set()
            if not data:
                return

    async def _give(
        self, sink: asyncio.StreamWriter, line: deque[tuple[float, bytes]], arrived: asyncio.Event
    ) -> None:
        loop = asyncio.get_running_loop()
        while True:
            while not line:
                arrived.clear()
                await arrived.wait()
            due, data = line.popleft()
            await asyncio.sleep(due - loop.time())
            self.held += self.is_cut
            while self.is_cut:  # noqa: ASYNC110 - as a cable that is out: nothing tells
                await asyncio.sleep(0.02)
            if not data:
                raise ConnectionResetError
            sink.write(data)
            self.passed += 1
            with contextlib.suppress(ConnectionResetError):
                await sink.drain()
