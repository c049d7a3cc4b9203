"""The life of a node's parts: started bottom up, stopped top down, also after a failed start."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from node.runtime.logger import get_logger

_log = get_logger("node")


class Service(Protocol):
    """A part of a node.

    `start` returns when the part is usable, or raises and leaves nothing half open. `stop` is
    idempotent, bounded in time, and never raises for operating errors.
    """

    async def start(self) -> None: ...

    async def stop(self) -> None: ...


class ServiceStack:
    """The parts of a node in order, lowest first."""

    def __init__(self, parts: Sequence[tuple[str, Service]], *, stop_timeout_s: float) -> None:
        self._parts = list(parts)
        self._stop_timeout_s = stop_timeout_s
        self._started: list[tuple[str, Service]] = []

    async def start(self) -> None:
        """Start every part; when one fails, stop those that run, top down, and raise its error."""
        for name, part in self._parts:
            try:
                await part.start()
            except BaseException:
                await self.stop()
                raise
            self._started.append((name, part))

    async def stop(self) -> None:
        """Stop what runs, top down, each within the time limit; a part's fault stops no other."""
        while self._started:
            name, part = self._started.pop()
            try:
                await asyncio.wait_for(part.stop(), self._stop_timeout_s)
            except TimeoutError:
                _log.warning("part_slow_to_stop", part=name, timeout_s=self._stop_timeout_s)
            except Exception:  # noqa: BLE001 - the outermost guard of one part's stop
                _log.exception("part_failed_to_stop", part=name)
