"""Work of other threads, done on the engine's loop."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, TypeVar, cast

from goqueue.wire.errors import Timeout

T = TypeVar("T")


class Hatch:
    """Where other threads hand in what is to be called on a loop, in their order. Without a lock:
    the handler of a signal may hand something in while its thread is doing so."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._handed: deque[Callable[[], object]] = deque()
        self._takes = 0
        """Begun so far."""
        self._called_for = -1
        """How many were begun when the loop was last called: it takes once more, if not since."""
        self._is_shut = False

    def hand(self, call: Callable[[], object]) -> bool:
        """Whether it will be called: not once the hatch is shut. Any thread."""
        self._handed.append(call)
        if self._is_shut:
            try:
                self._handed.remove(call)
            except ValueError:  # `shut` has just found it
                return True
            return False
        takes = self._takes
        if self._called_for != takes:  # else what was handed in is found with what is called for
            with suppress(RuntimeError):  # it was shut since, and `shut` has called it
                self._loop.call_soon_threadsafe(self._take)
            self._called_for = takes
        return True

    def shut(self) -> None:
        """What was handed in before is called now. Loop thread; idempotent."""
        self._is_shut = True
        self._take()

    def _take(self) -> None:
        self._takes += 1
        while (call := self._next()) is not None:
            call()

    def _next(self) -> Callable[[], object] | None:
        try:
            return self._handed.popleft()
        except IndexError:
            return None


class Handed(Generic[T]):
    """What work on the loop comes to, for the one thread that waits for it. By a lock: a
    `concurrent.futures.Future` costs more than most of what is waited for."""

    def __init__(
        self,
        hatch: Hatch,
        begin: Callable[[], asyncio.Future[T]],
        undo: Callable[[T], object] = lambda _result: None,
        ended: Callable[[asyncio.Future[T]], object] = lambda _work: None,
    ) -> None:
        """`begin` is called on the loop, and raises what is to be raised in the thread; `undo` is
        called there with the result where the thread has left before it could be told, and `ended`
        with what `begin` came to, once it is done."""
        self._hatch = hatch
        self._begin = begin
        self._undo = undo
        self._when_ended = ended
        self._is_left = self._is_told = False
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
        if self._work is not None and not self._work.cancel() and self._is_told:
            self._undo_result()

    def _end(self, work: asyncio.Future[T]) -> None:
        self._when_ended(work)
        self._is_told = True
        self._error = asyncio.CancelledError() if work.cancelled() else work.exception()
        if self._error is None:
            self._result = work.result()
        if self._is_left:  # it could not be cancelled any more
            self._undo_result()
        self._ended.release()

    def _undo_result(self) -> None:
        if self._error is None:
            self._undo(cast(T, self._result))
