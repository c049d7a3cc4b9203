"""An event loop in a thread of its own, for programs that have none."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncGenerator, Coroutine
from concurrent.futures import CancelledError, Future
from typing import Any, TypeVar

from goqueue.models.failures import Closed

CANCEL_S_MAX = 1.0

T = TypeVar("T")


class LoopThread:
    """An event loop in a daemon thread, started when first needed."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._lock = threading.RLock()  # a signal's handler may come in between
        self._closed = False
        self._process = 0
        """Whose thread it is; a forked child has none."""

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The coroutine's result; interrupting the wait cancels it and waits for its end. Raises
        Closed after `stop`, and in a forked child; of unknown outcome where `stop` came first."""
        ended = threading.Event()
        future = self._begin(work, ended)
        try:
            return future.result()
        except CancelledError:
            if not self._closed:
                raise
            raise _closed_before() from None
        except BaseException:
            if future.cancel():
                ended.wait(CANCEL_S_MAX)
            raise

    async def run_awaited(self, work: Coroutine[Any, Any, T]) -> T:
        """As `run`, awaited on another loop; cancelling the wait cancels it."""
        future = self._begin(work, threading.Event())
        waiting = asyncio.current_task()
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            if not self._closed or (waiting is not None and waiting.cancelling()):
                raise
            raise _closed_before() from None

    def stop(self) -> None:
        """End the loop and its thread. Idempotent."""
        with self._lock:
            self._closed = True
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is not None and thread is not None:
            asyncio.run_coroutine_threadsafe(_end_tasks(), loop).result()
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()

    def _begin(self, work: Coroutine[Any, Any, T], ended: threading.Event) -> Future[T]:
        if self._process not in (0, os.getpid()):
            work.close()
            raise Closed("the client is the parent's of this forked process: make another one")
        with self._lock:  # what is begun before a stop is ended by it, and nothing is begun after
            loop = self._started(work)
            return asyncio.run_coroutine_threadsafe(_telling(work, ended), loop)

    def _started(self, work: Coroutine[Any, Any, object]) -> asyncio.AbstractEventLoop:
        if self._closed:
            work.close()
            raise Closed("the client is closed")
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(
                target=self._loop.run_forever, name="goqueue-client", daemon=True
            )
            self._thread.start()
            self._process = os.getpid()
        return self._loop


def _closed_before() -> Closed:
    return Closed("the client was closed before the answer came", outcome="unknown")


async def anext_or_none(items: AsyncGenerator[T, None]) -> T | None:
    """The next item, None after the last."""
    return await anext(items, None)


async def _telling(work: Coroutine[Any, Any, T], ended: threading.Event) -> T:
    try:
        return await work
    finally:
        ended.set()


async def _end_tasks() -> None:
    """Nothing is left half done on a loop that stops: an iteration that nobody finished, say."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()
