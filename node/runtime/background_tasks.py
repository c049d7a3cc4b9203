"""Small work that outlives the request it came from, owned and ended by the node."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import structlog

from goqueue.wire.errors import GoQueueError
from node.runtime.task_set import ended

ERRANDS_MAX = 10_000
STOP_S = 1.0
"""How long those on their way may take when the node stops."""

_log = structlog.get_logger("node")


class Errands:
    """A service; what can't be done soon when it stops is left undone."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        return None

    async def stop(self) -> None:
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=STOP_S)
        await ended(self._tasks)

    def send(self, work: Coroutine[Any, Any, object]) -> None:
        """Let it be done; with too many on their way, it is not."""
        if len(self._tasks) >= ERRANDS_MAX:
            work.close()
            return
        task = asyncio.ensure_future(self._run(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    @staticmethod
    async def _run(work: Coroutine[Any, Any, object]) -> None:
        try:
            await work
        except GoQueueError as error:
            _log.debug("errand_failed", problem=error.message)
        except Exception:  # noqa: BLE001 - the task's outermost guard
            _log.exception("errand_failed")
