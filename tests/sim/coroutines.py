"""Production coroutines on virtual time: as much of an asyncio loop as they ask for.

What waits for a worker thread waits for a time drawn from the seed, and the work is done at its
end: everything may happen in between. Nothing goes on in a process that is dead or paused.
"""

from __future__ import annotations

import asyncio
import warnings
from asyncio import events
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from contextlib import suppress
from contextvars import Context
from typing import Any, TypeVar

from goqueue.wire.errors import GoQueueError
from raft.link import RemoteError
from tests.sim.loop import ProcessTime, Timer

T = TypeVar("T")

EXPECTED = (GoQueueError, RemoteError, OSError)
"""What a task may end with: whoever waits for it handles that."""
CLOSINGS = 4
"""So often a coroutine may wait in what it does at its end."""


class Workers(Executor):
    """One thread: works are done one after the other."""

    def __init__(self, coroutines: Coroutines) -> None:
        self._coroutines = coroutines
        self.free_at_s = 0.0

    def submit(self, fn: Callable[..., Any], /, *args: Any, **named: Any) -> Any:
        return self._coroutines.run_in_executor(self, lambda: fn(*args, **named))


class Coroutines:
    """One process's coroutines; `work_s` says how long a worker takes."""

    def __init__(self, time: ProcessTime, work_s: Callable[[], float]) -> None:
        self._time = time
        self._work_s = work_s
        self._works: dict[Coroutine[Any, Any, Any], None] = {}
        """What is on its way: nothing else may end it, at a time that no seed says."""
        self.is_over = False

    def start(self, work: Coroutine[Any, Any, T], done: Callable[[T], object]) -> asyncio.Task[T]:
        """Run it; `done` is told what it returned, unless it is cancelled, and what it raises ends
        the simulation."""

        def ended(task: asyncio.Task[T]) -> None:
            if not task.cancelled():
                done(task.result())

        task = self.create_task(work)
        task.add_done_callback(ended)
        return task

    def within(self, work: Callable[[], object]) -> None:
        """Do it as if this loop had called it."""
        self._run(work, (), None)

    def close(self) -> None:
        """The process is over: what was on its way ends where it stands. What it would have done
        at its end, as production code does when it is let go of, has no effect any more."""
        self.is_over = True
        self.within(self._close_all)

    def _close_all(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # some had not begun
            while self._works:
                for work in list(self._works):
                    del self._works[work]
                    for _ in range(CLOSINGS):
                        with suppress(Exception):
                            work.close()

    # as a task and a future see it

    def create_task(
        self, work: Coroutine[Any, Any, T], *, name: str | None = None
    ) -> asyncio.Task[T]:
        loop: Any = self  # all that a task asks for, of what a loop is
        task = asyncio.Task(work, loop=loop, name=name)
        task._log_destroy_pending = False  # type: ignore[attr-defined]  # its process may die
        self._works[work] = None
        task.add_done_callback(lambda ended: self._ended(work, ended))
        return task

    def _ended(self, work: Coroutine[Any, Any, T], task: asyncio.Task[T]) -> None:
        self._works.pop(work, None)
        if task.cancelled():
            return
        error = task.exception()
        if error is not None and not isinstance(error, EXPECTED):
            raise error  # whoever waits for it might not look: it is a fault of the program

    def call_at(
        self,
        when_s: float,
        callback: Callable[..., object],
        *args: object,
        context: Context | None = None,
    ) -> Timer:
        delay_s = max(0.0, when_s - self._time.now())
        return self.call_later(delay_s, callback, *args, context=context)

    def time(self) -> float:
        return self._time.now()

    def get_debug(self) -> bool:
        return False

    def create_future(self) -> asyncio.Future[Any]:
        loop: Any = self
        return asyncio.Future(loop=loop)

    def call_soon(
        self, callback: Callable[..., object], *args: object, context: Context | None = None
    ) -> Timer:
        return self._time.call_soon(self._run, callback, args, context)

    def call_later(
        self,
        delay_s: float,
        callback: Callable[..., object],
        *args: object,
        context: Context | None = None,
    ) -> Timer:
        return self._time.call_later(delay_s, self._run, callback, args, context)

    def run_in_executor(self, workers: object, work: Callable[[], T]) -> asyncio.Future[T]:
        future: asyncio.Future[T] = self.create_future()
        if self.is_over:
            return future

        def finish() -> None:
            try:
                result = work()
            except Exception as error:  # noqa: BLE001 - told by the future, as a thread does
                if not future.done():
                    future.set_exception(error)
            else:
                if not future.done():
                    future.set_result(result)

        work_s = self._work_s()
        if isinstance(workers, Workers):
            begins_s = max(self.time(), workers.free_at_s)
            workers.free_at_s = begins_s + work_s
            work_s += begins_s - self.time()
        self._time.call_later(work_s, self._run, finish, (), None)
        return future

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Of tasks and futures that were let go of: their process is dead."""

    def _run(
        self, callback: Callable[..., object], args: tuple[object, ...], context: Context | None
    ) -> None:
        before = events._get_running_loop()
        loop: Any = self
        events._set_running_loop(loop)
        try:
            if context is None:
                callback(*args)
            else:
                context.run(callback, *args)
        finally:
            events._set_running_loop(before)
