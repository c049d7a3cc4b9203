"""Long work in slices: a slice at a time of all requests of a node, in turn by who asks.

Each job that yields by itself between its slices goes on in the next turn of the loop, as all
others do: a turn lasts as long as there are jobs, and whoever needs a few turns for a small request
waits for all of them each time. Here they stand in line: one goes on, and then only after some
turns that no slice is part of, and while somebody else asks for something, too, after as long a
rest as it took. Whoever has many of them waits for its own.

What can't be cut into slices is computed in one thread, a job at a time, in the same order.

Whose work it is goes with the task, in `SHARE`: between the front and what makes slices stand
decoders and encoders that know nothing of clients.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from contextvars import ContextVar
from typing import NamedTuple, TypeVar

from node.http.budget.handover import INTERVAL, quick_handover

SLICE_BYTES = 64 * 1024
"""Plain bytes that are looked at, decoded, inflated or encoded at once; JSON makes up to six times
as many of them."""
APART_TURNS = 4
"""Turns of the loop from one slice to the next: small requests take that many steps in between. A
turn in which nothing is to be done costs a few microseconds, a slice about a millisecond."""
RECENTLY_S = 0.1
"""Who has asked for something within this time has others rest."""
REST_S_MAX = 0.005
"""After a slice that took longer."""

T = TypeVar("T")


class Line:
    """Who waits, by holder: one of each holder is let go on before the second of any."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    def join(self, holder: str) -> asyncio.Future[None]:
        """Done when it is this one's turn."""
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(holder, deque()).append(granted)
        return granted

    def grant(self) -> bool:
        """Let the first of the holder go on whose turn it is; False where nobody waits."""
        while self._waiting:
            holder = next(iter(self._waiting))
            line = self._waiting.pop(holder)
            while line:
                granted = line.popleft()
                if not granted.done():  # else who waited was cancelled
                    granted.set_result(None)
                    if line:
                        self._waiting[holder] = line
                    return True
        return False


class Slices:
    """The slices of one front, on its loop's thread. Loop thread only."""

    def __init__(self, *, quick: bool = True) -> None:
        """`quick` is for a process of the server's own: `budget.handover`."""
        self._quick = quick
        self._line = Line()
        self._turns_left = 0
        self._granted_s: float | None = None
        """When a slice was let go on that may not have been done yet."""
        self._rests_until_s = 0.0
        self._is_turning = False
        self._newest: tuple[str, float] = ("", -math.inf)
        self._second: tuple[str, float] = ("", -math.inf)
        """The two holders that asked last, and when."""

    def asked(self, holder: str) -> None:
        """A request of this holder begins, long or not."""
        if holder != self._newest[0]:
            self._second = self._newest
        self._newest = holder, asyncio.get_running_loop().time()

    async def turn(self, holder: str) -> None:
        """Return when this holder may do one more slice, before it awaits anything else."""
        loop = asyncio.get_running_loop()
        granted = self._line.join(holder)
        if not self._is_turning:
            self._is_turning = True
            if self._quick:
                INTERVAL.shorten()
            loop.call_soon(self._next, loop)
        await granted

    # private

    def _next(self, loop: asyncio.AbstractEventLoop) -> None:
        """Once a turn of the loop, from the first who waits until a while after the last."""
        now_s = loop.time()
        if self._granted_s is not None:
            if self._second[1] >= now_s - RECENTLY_S:
                self._rests_until_s = now_s + min(now_s - self._granted_s, REST_S_MAX)
            self._granted_s = None
        if self._turns_left:
            self._turns_left -= 1
        elif now_s < self._rests_until_s:
            pass
        elif self._line.grant():
            self._turns_left = APART_TURNS - 1
            self._granted_s = now_s
        else:
            self._is_turning = False
            if self._quick:
                INTERVAL.restore()
            return
        loop.call_soon(self._next, loop)


class Worker:
    """One thread for the long work of one front: each more that computes would take the
    interpreter's lock from the loop once more in turn. Loop thread only."""

    def __init__(self, *, quick: bool = True) -> None:
        """`quick`: whether a thread that computes hands the interpreter over sooner than Python
        would, which is for the whole process."""
        self._line = Line()
        self._quick = quick
        self._is_busy = False
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="goqueue-work")

    async def run(self, holder: str, work: Callable[[], T]) -> T:
        """What the work returns, when those before it in the line are done."""
        if self._is_busy:
            granted = self._line.join(holder)
            try:
                await granted
            except asyncio.CancelledError:
                if granted.done() and not granted.cancelled():
                    self._pass_on()
                raise
        self._is_busy = True
        try:
            with quick_handover() if self._quick else nullcontext():
                return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        finally:
            self._pass_on()

    # private

    def _pass_on(self) -> None:
        self._is_busy = self._line.grant()


class Share(NamedTuple):
    """Of whom work is, and in which line it stands."""

    slices: Slices
    worker: Worker
    holder: str


SHARE: ContextVar[Share | None] = ContextVar("share", default=None)


async def pause() -> float:
    """Let others run before the next slice; how many seconds that took. What no client has asked
    for stands in no line."""
    loop, share = asyncio.get_running_loop(), SHARE.get()
    began_s = loop.time()
    if share is None:
        await asyncio.sleep(0)
    else:
        await share.slices.turn(share.holder)
    return loop.time() - began_s


async def in_thread(work: Callable[[], T]) -> T:
    """What the work returns, computed in a thread: it must be pure, since the loop serves others
    meanwhile. What no client has asked for stands in no line."""
    share = SHARE.get()
    if share is None:
        return await asyncio.to_thread(work)
    return await share.worker.run(share.holder, work)
