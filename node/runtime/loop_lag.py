"""A watchdog on the event loop: how late its timers run, as a metric and, when bad, a warning."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from node.metrics import Metrics
from node.runtime.logger import get_logger

INTERVAL_S = 0.1
WINDOW = 100  # samples that `worst` looks back on: ten seconds
LATELY = 10  # samples that `lately_s` looks back on: a second
WARN_S = 0.25

_log = get_logger("node")


class LoopLag:
    """A service that measures; `worst_s` is the latest timer of the last ten seconds, `lately_s`
    that of the last one.

    `on_tick` is called at each measurement.
    """

    def __init__(
        self,
        metrics: Metrics,
        on_tick: Callable[[], None] | None = None,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """`now_s` is the machine's time, also where the loop's is another one."""
        self._now_s = now_s
        self._metrics = metrics
        self._on_tick = on_tick
        self._samples: list[float] = []
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0
        self._warned_s = float("-inf")

    @property
    def worst_s(self) -> float:
        return max(self._samples, default=0.0)

    @property
    def lately_s(self) -> float:
        return max(self._samples[-LATELY:], default=0.0)

    async def start(self) -> None:
        self._plan(asyncio.get_running_loop())

    async def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _plan(self, loop: asyncio.AbstractEventLoop) -> None:
        self._due = self._now_s() + INTERVAL_S
        self._timer = loop.call_later(INTERVAL_S, self._measure, loop)

    def _measure(self, loop: asyncio.AbstractEventLoop) -> None:
        late = max(0.0, self._now_s() - self._due)
        self._samples.append(late)
        del self._samples[:-WINDOW]
        self._metrics.process.loop_lag.observe(late)
        self._metrics.process.loop_lag_worst.set(self.worst_s)
        if late > WARN_S and self._due - self._warned_s > 60:
            self._warned_s = self._due
            _log.warning("event_loop_stalled", late_ms=round(late * 1000))
        if self._on_tick is not None:
            self._on_tick()
        self._plan(loop)
