"""What a client is opened on: a directory in this process, a directory by its owner's socket, and a
server."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import goqueue
from tests.one_node import serving


@pytest.fixture(params=["directory", "socket", "server"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    jobs = str(tmp_path / "jobs")
    if request.param == "directory":
        yield jobs
    elif request.param == "socket":
        with goqueue.open(jobs):
            yield jobs
    else:
        with Served() as url:
            yield url


class Served:
    """A node in a thread of its own, that programs without a loop ask."""

    def __enter__(self) -> str:
        self._ended = threading.Event()
        self._urls: list[str] = []
        ready = threading.Event()

        async def serve() -> None:
            async with serving() as url:
                self._urls.append(url)
                ready.set()
                await asyncio.to_thread(self._ended.wait)

        self._thread = threading.Thread(target=lambda: asyncio.run(serve()))
        self._thread.start()
        ready.wait()
        return self._urls[0]

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
