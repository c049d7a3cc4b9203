"""Tasks have an owner: it holds them, logs how they failed, and waits for their end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Coroutine
from typing import Any, TypeVar

from goqueue.wire.errors import GoQueueError

T = TypeVar("T")


def is_cancelled() -> bool:
    """Whether the current task was asked to end. An error that came at the same time may have taken
    the place of the cancellation: TaskGroup of Python 3.11 raises the error, and so does cleaning
    up that fails."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def ended(tasks: Collection[asyncio.Task[Any]]) -> None:
    """Cancel these, and wait until they are over. How they end is seen, and told nobody."""
    waited = list(tasks)
    for task in waited:
        task.cancel()
    if waited:
        await asyncio.wait(waited)
    for task in waited:
        if not task.cancelled():
            task.exception()


class TaskSet:
    """Owns tasks that go on beside what began them; the only place that creates any. It is a
    service of a node, too. Loop thread only.

    A task that fails is logged as the event `failed` by the logger that is named: a GoQueueError
    at debug level, anything else with its traceback. None is named only where somebody waits for
    every task, and is told. With `tasks_max` tasks under way, `send` begins no more.
    """

    def __init__(
        self,
        logger: str | None,
        failed: str = "task_failed",
        *,
        tasks_max: int | None = None,
        grace_s: float = 0.0,
    ) -> None:
        self._log = None if logger is None else logging.getLogger(logger)
        self._failed = failed
        self._tasks_max = tasks_max
        self._grace_s = grace_s
        self._tasks: set[asyncio.Task[Any]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    async def start(self) -> None:
        return None

    async def stop(self) -> None:
        """Let what is under way go on for `grace_s`, then cancel it and wait for its end.
        Idempotent."""
        if self._tasks and self._grace_s:
            await asyncio.wait(list(self._tasks), timeout=self._grace_s)
        await ended(self._tasks)

    def begin(self, work: Coroutine[Any, Any, T], name: str | None = None) -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def send(self, work: Coroutine[Any, Any, object]) -> None:
        """Begin what nobody waits for, unless too much is under way: then it is not done."""
        if self._tasks_max is not None and len(self._tasks) >= self._tasks_max:
            work.close()
        else:
            self.begin(work)

    def cancel(self) -> list[asyncio.Task[Any]]:
        """Cancel what is under way, without waiting for its end: these are the tasks."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        return tasks

    async def settled(self) -> None:
        """Wait until nothing is under way."""
        while self._tasks:
            await asyncio.wait(list(self._tasks))

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() or self._log is None else task.exception()
        if error is None or self._log is None:
            return
        if isinstance(error, GoQueueError):
            self._log.debug(self._failed, extra={"problem": error.message})
        else:
            self._log.error(self._failed, exc_info=error)
