"""Work of other threads, done on the engine's loop."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Generic, TypeVar, cast

from goqueue.wire.errors import Timeout

T = TypeVar("T")


class Hatch:
    """Where other threads hand in what is to be called on a loop, in their order. The loop is woken
    once for all that is there by then."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._handed: deque[Callable[[], object]] = deque()
        self._lock = threading.Lock()
        self._is_told = False
        self._is_shut = False

    def hand(self, call: Callable[[], object]) -> bool:
        """Whether it will be called: not once the hatch is shut. Any thread."""
        with self._lock:
            if self._is_shut:
                return False
            self._handed.append(call)
            told, self._is_told = self._is_told, True
        if not told:
            self._loop.call_soon_threadsafe(self._take)
        return True

    def shut(self) -> None:
        """What was handed in before is called now. Loop thread; idempotent."""
        with self._lock:
            self._is_shut = True
        self._take()

    def _take(self) -> None:
        with self._lock:
            self._is_told = False
            handed, self._handed = self._handed, deque()
        for call in handed:
            call()


class Handed(Generic[T]):
    """What work on the loop comes to, for the one thread that waits for it. By a lock: a
    `concurrent.futures.Future` costs more than most of what is waited for."""

    def __init__(
        self,
        hatch: Hatch,
        begin: Callable[[], asyncio.Future[T]],
        undo: Callable[[T], object] = lambda _result: None,
    ) -> None:
        """`begin` is called on the loop, and raises what is to be raised in the thread; `undo` is
        called there with the result where the thread has left before it could be told."""
        self._hatch = hatch
        self._begin = begin
        self._undo = undo
        self._is_left = False
        self._work: asyncio.Future[T] | None = None
        self._error: BaseException | None = None
        self._result: T | None = None
        self._ended = threading.Lock()
        self._ended.acquire()
        self.is_begun = hatch.hand(self._start)
        """Whether anything comes of it: not once the hatch is shut."""

    def wait(self, timeout_s: float) -> T:
        """Its result, or its error raised; CancelledError where the loop has cancelled it. Once
        only. After so many seconds, or interrupted, this leaves: the work is cancelled, or what it
        has done is undone. Raises Timeout then."""
        try:
            if not self._ended.acquire(timeout=timeout_s):
                raise Timeout("no answer in time: does the disk stand still?")
        except BaseException:
            with suppress(RuntimeError):  # the loop has ended, and the work before it
                self._hatch.hand(self._leave)
            raise
        if self._error is not None:
            raise self._error
        return cast(T, self._result)

    # the loop

    def _start(self) -> None:
        try:
            self._work = self._begin()
        except Exception as error:  # noqa: BLE001 - carried to the thread that waits
            self._error = error
            self._ended.release()
        else:
            self._work.add_done_callback(self._end)

    def _leave(self) -> None:
        self._is_left = True
        if self._work is not None and not self._work.cancel() and self._error is None:
            self._undo(cast(T, self._result))

    def _end(self, work: asyncio.Future[Any]) -> None:
        self._error = asyncio.CancelledError() if work.cancelled() else work.exception()
        if self._error is None:
            self._result = result = work.result()
            if self._is_left:  # it could not be cancelled any more
                self._undo(result)
        self._ended.release()
