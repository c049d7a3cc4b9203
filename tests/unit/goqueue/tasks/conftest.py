"""Tasks against a real node in this process, with a worker on the test's loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from goqueue import AsyncClient
from goqueue.tasks import Ended, Tasks, Worker
from tests.one_node import serving


@pytest.fixture
async def url() -> AsyncIterator[str]:
    async with serving() as url:
        yield url


@pytest.fixture
async def client(url: str) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(url) as client:
        yield client


@pytest.fixture
async def app(url: str) -> AsyncIterator[Tasks]:
    app = Tasks(url, partitions=1)
    yield app
    await asyncio.to_thread(app.close)


class Work:
    """What a worker of the app ended, as it comes."""

    running: asyncio.Task[None]

    def __init__(self) -> None:
        self.ended: list[Ended] = []
        self._news = asyncio.Event()

    def note(self, ended: Ended) -> None:
        self.ended.append(ended)
        self.wake()

    def wake(self) -> None:
        self._news.set()

    async def until(self, count: int) -> list[Ended]:
        """The first so many, in the order in which they ended. Raises what the worker failed of."""
        async with asyncio.timeout(30.0):
            while len(self.ended) < count:
                self._news.clear()
                await self._news.wait()
                if self.running.done():
                    self.running.result()
        return self.ended[:count]

    def outcomes(self) -> list[tuple[str, str]]:
        return [(one.task, one.outcome) for one in self.ended]


@asynccontextmanager
async def working(
    app: Tasks, *, concurrency: int = 4, path: str | None = None
) -> AsyncIterator[Work]:
    """A worker, stopped in order at the end."""
    work = Work()
    worker = Worker(app, concurrency=concurrency, ended=work.note, path=path)
    started = asyncio.Event()
    work.running = running = asyncio.ensure_future(worker.run_async(started.set))
    running.add_done_callback(lambda _: (started.set(), work.wake()))
    await started.wait()
    try:
        yield work
    finally:
        worker.stop()
        await asyncio.wait({running})
    running.result()
