"""An event loop on which time stands still until it is moved.

What a client waits for, and what the node does at a time, is the virtual clock's: it comes when
the clock is moved there. What the node waits for by itself goes by the machine's clock as well, and
so do the short pauses of requests, in which they wait for the node: else neither would go on while
nobody moves the clock.
"""

from __future__ import annotations

import asyncio
import heapq
import math
import selectors
import time
from collections.abc import Callable
from concurrent.futures import Executor
from contextvars import Context, ContextVar, copy_context
from functools import partial
from itertools import count
from typing import Any, TypeVar, TypeVarTuple, Unpack

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

SHORT_S = 0.1
"""A request that waits no longer than this waits for the node, and not for time."""
GRID = 1 << 20
"""Steps of virtual time in a second."""
PAUSE_S = 0.02
"""Nor is the node idle while one pauses for no longer than this."""
IS_REQUEST: ContextVar[bool] = ContextVar("is_request", default=False)
"""Set in the context of a request, in which its tasks run."""


class VirtualClock:
    """A node's clock. It stands still; whoever moves it tells its loop. Loop thread only, but for
    reading it."""

    def __init__(self, now_ms: int) -> None:
        self._start_ms = self._now_ms = now_ms
        self._now_s = 0.0

    def now_s(self) -> float:
        return self._now_s

    def wall_ms(self) -> int:
        return self._now_ms

    def move(self, now_ms: int) -> None:
        """It is so late now; never earlier than it was."""
        self._now_ms = max(self._now_ms, now_ms)
        self._now_s = _seconds(self._now_ms - self._start_ms)

    def ms_at(self, at_s: float) -> int:
        """The first millisecond at which `now_s` is this or more."""
        passed_ms = math.ceil(round(at_s * 1000, 3))
        while _seconds(passed_ms) < at_s:
            passed_ms += 1
        return self._start_ms + passed_ms


def _seconds(passed_ms: int) -> float:
    """In steps that floats add without error: what waits for 20 s is over 20 s later."""
    return round(passed_ms * GRID / 1000) / GRID


class _Timer(asyncio.TimerHandle):
    """A timer that the machine's clock ends, or the virtual one, whichever is there first."""

    def __init__(
        self,
        when: float,
        run: Callable[[], object],
        loop: asyncio.AbstractEventLoop,
        context: Context,
    ) -> None:
        super().__init__(when, run, (), loop, context)
        self.run, self.context = run, context
        self.real_due_s = 0.0
        self.is_request = False

    def end(self) -> None:
        if not self.cancelled():
            self.run()


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop whose time is a virtual clock's.

    `waits` of requests, longer than SHORT_S, end when the clock is moved there. All other timers
    end by the machine's clock, or as the virtual one passes them: those of requests at once, the
    node's own in `moved`.
    """

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self._timers: list[_Timer] = []
        self._waits: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._numbers = count()
        self._works = 0
        self._quiet: asyncio.Future[None] | None = None
        self.is_busy: Callable[[], bool] = lambda: False
        """Whether threads that this loop knows nothing of work for the node."""
        super().__init__(_Selector(self))

    def time(self) -> float:
        return self._clock.now_s()

    def call_later(
        self,
        delay: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        delay_s = when - self.time()
        context = context or copy_context()
        is_request = context.get(IS_REQUEST, False) and asyncio.current_task(self) is not None
        if is_request and delay_s > SHORT_S:
            waits = super().call_at(when, callback, *args, context=context)
            heapq.heappush(self._waits, (when, next(self._numbers), waits))
            return waits
        timer = _Timer(when, partial(callback, *args), self, context)
        timer.real_due_s, timer.is_request = time.monotonic() + delay_s, is_request
        self._timers.append(timer)
        return timer

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[Unpack[Ts]], T], *args: *Ts
    ) -> asyncio.Future[T]:
        future = super().run_in_executor(executor, func, *args)
        self._works += 1
        future.add_done_callback(self._worked)
        return future

    # who moves the clock

    def next_wait_s(self) -> float | None:
        """When the first of the requests that wait has waited for long enough."""
        while self._waits and (self._waits[0][2].cancelled() or self._waits[0][0] <= self.time()):
            heapq.heappop(self._waits)
        return self._waits[0][0] if self._waits else None

    async def quiet(self) -> None:
        """Return once nothing can go on before the clock is moved. One at a time."""
        self._quiet = self.create_future()
        await self._quiet

    def moved(self) -> None:
        """The clock was moved for good: what the node does every so often is due."""
        self._end(lambda timer: timer.when() <= self.time())

    # the selector

    def look(self) -> float | None:
        """Nothing is ready: end what is due, or tell that it is quiet. For how long to wait at
        most, 0 where something goes on."""
        now_s, passed_s = time.monotonic(), self.time()
        if self._end(
            lambda timer: (
                timer.real_due_s <= now_s or (timer.is_request and timer.when() <= passed_s)
            )
        ):
            return 0.0
        if self._quiet is not None and not self._is_working(now_s):
            quiet, self._quiet = self._quiet, None
            if not quiet.done():
                quiet.set_result(None)
                return 0.0
        due_s = min((timer.real_due_s for timer in self._timers), default=None)
        return None if due_s is None else max(0.0, due_s - now_s)

    def _is_working(self, now_s: float) -> bool:
        pauses = (timer for timer in self._timers if timer.is_request)
        return (
            self._works > 0
            or self.is_busy()
            or any(pause.real_due_s <= now_s + PAUSE_S for pause in pauses)
        )

    def _worked(self, _future: object) -> None:
        self._works -= 1

    def _end(self, is_due: Callable[[_Timer], bool]) -> bool:
        """Whether any was."""
        due: list[_Timer] = []
        waiting: list[_Timer] = []
        for timer in self._timers:
            if not timer.cancelled():
                (due if is_due(timer) else waiting).append(timer)
        self._timers = waiting
        for timer in sorted(due, key=asyncio.TimerHandle.when):
            self.call_soon(timer.end, context=timer.context)
        return bool(due)


class _Selector(selectors.DefaultSelector):
    """Asks the loop what comes next whenever nothing is ready."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> Any:
        found = super().select(0)
        if found or (timeout is not None and timeout <= 0):
            return found
        return super().select(self._loop.look())
