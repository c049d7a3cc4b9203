"""Production coroutines on virtual time: as much of an asyncio loop as they ask for.

What waits for a worker thread waits for a time drawn from the seed, and the work is done at its
end: everything may happen in between. Nothing goes on in a process that is dead or paused.
"""

from __future__ import annotations

import asyncio
from asyncio import events
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any, TypeVar

from tests.sim.loop import ProcessTime, Timer

T = TypeVar("T")


class Coroutines:
    """One process's coroutines; `work_s` says how long a worker takes."""

    def __init__(self, time: ProcessTime, work_s: Callable[[], float]) -> None:
        self._time = time
        self._work_s = work_s

    def start(self, work: Coroutine[Any, Any, T], done: Callable[[T], object]) -> None:
        """Run it; `done` is told what it returned, and what it raises ends the simulation."""
        loop: Any = self  # all that a task asks for, of what a loop is
        task = asyncio.Task(work, loop=loop)
        task._log_destroy_pending = False  # type: ignore[attr-defined]  # its process may die
        task.add_done_callback(lambda ended: done(ended.result()))

    # as a task and a future see it

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

    def run_in_executor(self, _workers: object, work: Callable[[], T]) -> asyncio.Future[T]:
        future: asyncio.Future[T] = self.create_future()

        def finish() -> None:
            try:
                future.set_result(work())
            except Exception as error:  # noqa: BLE001 - told by the future, as a thread does
                future.set_exception(error)

        self._time.call_later(self._work_s(), self._run, finish, (), None)
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
