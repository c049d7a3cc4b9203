"""When garbage of old objects is collected: while the node idles, as nothing else runs meanwhile.

Left alone, CPython begins a full collection whenever what survived the younger ones has grown by a
quarter. Under load that is every few seconds, and each takes as long as there are objects.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable

LOOK_S = 1.0
IDLE_SHARE = 0.1
"""A node that used less of a core since the last look is idle."""
IDLE_PAUSE_S = 5.0
"""How long an idle node is left alone after a collection."""
SURVIVORS_MIN = 10
"""Collections of younger objects since the last full one, below which nothing is to be gained."""
BUSY_S = 300.0
"""A node that is never idle collects so often."""
THRESHOLDS = (700, 10, 1_000_000)
"""CPython's own, but for the last: a full collection never begins by itself."""


class Collector:
    """A service of the whole process: start it where nothing else decides about its garbage."""

    def __init__(
        self,
        *,
        now_s: Callable[[], float] = time.monotonic,
        cpu_s: Callable[[], float] = time.process_time,
        survivors: Callable[[], int] = lambda: gc.get_count()[2],
        collect: Callable[[], object] = gc.collect,
    ) -> None:
        self._now_s = now_s
        self._cpu_s = cpu_s
        self._survivors = survivors
        self._collect = collect
        self._thresholds: tuple[int, int, int] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._looked_s = self._used_s = self._collected_s = 0.0

    async def start(self) -> None:
        """What there is by now is taken to stay."""
        self._collect()
        gc.freeze()
        self._thresholds = gc.get_threshold()
        gc.set_threshold(*THRESHOLDS)
        self.begin()
        self._plan()

    async def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._thresholds is not None:
            gc.set_threshold(*self._thresholds)
            self._thresholds = None

    def begin(self) -> None:
        """Count from now on."""
        self._looked_s = self._collected_s = self._now_s()
        self._used_s = self._cpu_s()

    def look(self) -> bool:
        """Collect if this is the time for it; whether it was."""
        now_s, used_s = self._now_s(), self._cpu_s()
        is_idle = used_s - self._used_s < IDLE_SHARE * (now_s - self._looked_s)
        since_s = now_s - self._collected_s
        due = since_s >= (IDLE_PAUSE_S if is_idle else BUSY_S)
        is_time = due and self._survivors() >= SURVIVORS_MIN
        if is_time:
            self._collect()
            self._collected_s = self._now_s()
        self._looked_s, self._used_s = self._now_s(), self._cpu_s()
        return is_time

    def _plan(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(LOOK_S, self._tick)

    def _tick(self) -> None:
        self.look()
        self._plan()
