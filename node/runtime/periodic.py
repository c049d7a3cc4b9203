"""Work that a node does again and again: one loop for all of it, and one way to stop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from structlog.typing import FilteringBoundLogger

from goqueue.background import TaskSet, is_cancelled


class Periodic:
    """A service that calls `round` every `every_s` seconds, and soon after `wake`. None means only
    when it is woken. Loop thread only.

    A round that returns a number is followed by the next one after so many seconds instead. The
    first round comes after `first_s`, an interval from the start where none is named. A round that
    fails is counted, and logged as the event `failed`; the next one comes after `retry_s`, or else
    an interval, and no wake-up brings it on sooner, unless a wake-up is all that brings any on.
    Rounds never overlap, and a wake-up during one leads to one more.
    """

    def __init__(
        self,
        name: str,
        round: Callable[[], Awaitable[float | None]],
        every_s: float | None,
        log: FilteringBoundLogger,
        failed: str,
        *,
        first_s: float | None = None,
        retry_s: float | None = None,
    ) -> None:
        self._name = name
        self._round = round
        self._every_s = every_s
        self._log = log
        self._failed = failed
        self._first_s = every_s if first_s is None else first_s
        self._retry_s = every_s if retry_s is None else retry_s
        self._tasks = TaskSet("node", failed)
        self.woken = asyncio.Event()
        """Set by `wake`, or by who is given it."""
        self.failures = 0
        """Rounds that failed since the node started."""

    async def start(self) -> None:
        if not self._tasks:
            self._tasks.begin(self._repeat(), self._name)

    async def stop(self) -> None:
        """A round under way is cancelled. Idempotent."""
        await self._tasks.stop()

    def wake(self) -> None:
        """Have a round soon; one more, where one is under way."""
        self.woken.set()

    async def _repeat(self) -> None:
        wait_s = self._first_s
        while True:
            await self._pause(wait_s)
            self.woken.clear()
            try:
                told_s = await self._round()
            except Exception:  # noqa: BLE001 - the outermost loop of all such work
                self.failures += 1
                self._log.exception(self._failed)
                if is_cancelled():
                    raise asyncio.CancelledError from None
                wait_s = self._retry_s
                if wait_s is not None:
                    await asyncio.sleep(wait_s)
                    wait_s = 0.0
            else:
                wait_s = self._every_s if told_s is None else told_s

    async def _pause(self, wait_s: float | None) -> None:
        if wait_s is not None and wait_s <= 0:
            await asyncio.sleep(0)
            return
        if wait_s is None:
            await self.woken.wait()
            return
        due = asyncio.get_running_loop().call_later(wait_s, self.woken.set)
        try:
            await self.woken.wait()
        finally:
            due.cancel()
