"""Long work in slices: a slice at a time of all requests of a node, in turn by who asks.

Each job that yields by itself between its slices goes on in the next turn of the loop, as all
others do: a turn lasts as long as there are jobs, and whoever needs a few turns for a small request
waits for all of them each time. Here they stand in line: one goes on, and then only after some
turns that no slice is part of. While somebody else's short request is on its way, the next one
rests until that is answered, up to some times as long as the last one took: so a short request
waits for one slice, and long work has its share of the loop however many of them there are. Whoever
has much long work waits for its own.

What can't be cut into slices is computed in one thread, a job at a time, in the same order.

Whose work it is goes with the task, in `SHARE`: between the front and what makes slices stand
decoders and encoders that know nothing of clients.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TypeVar

from node.http.budget.handover import INTERVAL, quick_handover

SLICE_BYTES = 64 * 1024
"""Plain bytes that are looked at, decoded, inflated or encoded at once; JSON makes up to six times
as many of them."""
APART_TURNS = 4
"""Turns of the loop from one slice to the next: small requests take that many steps in between. A
turn in which nothing is to be done costs a few microseconds, a slice about a millisecond."""
SHORT_S = 0.1
"""A request that takes longer waits for something: nobody rests for it any more."""
REST_TIMES = 4
"""As long as a slice took: long work has at least a fifth of the loop's time."""
REST_S_MAX = 0.02
"""After a slice that took longer than it should."""

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

    def first(self) -> str | None:
        """The holder whose turn it is; None where nobody waits."""
        while self._waiting:
            holder = next(iter(self._waiting))
            line = self._waiting[holder]
            while line and line[0].done():  # who waited was cancelled
                line.popleft()
            if line:
                return holder
            del self._waiting[holder]
        return None

    def grant(self) -> bool:
        """Let the first of the holder go on whose turn it is; False where nobody waits."""
        holder = self.first()
        if holder is None:
            return False
        line = self._waiting.pop(holder)
        line.popleft().set_result(None)
        if line:
            self._waiting[holder] = line
        return True


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
        self._rest: asyncio.TimerHandle | None = None
        self._is_turning = False
        self._short: dict[Share, float] = {}
        """Requests that may be answered soon, and since when, in that order."""
        self._holders: dict[str, int] = {}
        """Of how many of them each holder is."""

    def began(self, request: Share) -> None:
        """It is on its way, and short until it is known to be long."""
        self._short[request] = asyncio.get_running_loop().time()
        self._holders[request.holder] = self._holders.get(request.holder, 0) + 1

    def ended(self, request: Share) -> None:
        """It is answered, or known to be long. Idempotent."""
        if self._short.pop(request, None) is None:
            return
        left = self._holders.pop(request.holder) - 1
        if left:
            self._holders[request.holder] = left
        elif self._rest is not None and len(self._holders) <= 1:
            self._rest.cancel()
            self._go_on(asyncio.get_running_loop())

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
        """From the first who waits until a while after the last: once a turn of the loop, except
        while it rests."""
        now_s = loop.time()
        if self._granted_s is not None:
            took_s, self._granted_s = now_s - self._granted_s, None
            self._rests_until_s = now_s + min(REST_TIMES * took_s, REST_S_MAX)
        if self._turns_left:
            self._turns_left -= 1
        elif (holder := self._line.first()) is None:
            self._is_turning = False
            if self._quick:
                INTERVAL.restore()
            return
        elif now_s < self._rests_until_s and self._others_ask(holder, now_s):
            self._rest = loop.call_later(self._rests_until_s - now_s, self._go_on, loop)
            return
        else:
            self._line.grant()
            self._turns_left = APART_TURNS - 1
            self._granted_s = now_s
        loop.call_soon(self._next, loop)

    def _go_on(self, loop: asyncio.AbstractEventLoop) -> None:
        """After a rest, which has lasted long enough, or has nobody left to rest for."""
        self._rest = None
        loop.call_soon(self._next, loop)

    def _others_ask(self, holder: str, now_s: float) -> bool:
        """Whether a short request of another holder is on its way."""
        while self._short:
            oldest, began_s = next(iter(self._short.items()))
            if began_s > now_s - SHORT_S:
                break
            self.ended(oldest)
        return len(self._holders) > (holder in self._holders)


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


@dataclass(frozen=True, slots=True, eq=False)
class Share:
    """Of whom the work of one request is, and in which line it stands."""

    slices: Slices
    worker: Worker
    holder: str

    def __enter__(self) -> None:
        """The request begins."""
        self.slices.began(self)

    def __exit__(self, *_: object) -> None:
        self.slices.ended(self)


SHARE: ContextVar[Share | None] = ContextVar("share", default=None)


async def pause() -> float:
    """Let others run before the next slice; how many seconds that took. What no client has asked
    for stands in no line."""
    loop, share = asyncio.get_running_loop(), SHARE.get()
    began_s = loop.time()
    if share is None:
        await asyncio.sleep(0)
    else:
        share.slices.ended(share)
        await share.slices.turn(share.holder)
    return loop.time() - began_s


async def in_thread(work: Callable[[], T]) -> T:
    """What the work returns, computed in a thread: it must be pure, since the loop serves others
    meanwhile. What no client has asked for stands in no line."""
    share = SHARE.get()
    if share is None:
        return await asyncio.to_thread(work)
    share.slices.ended(share)
    return await share.worker.run(share.holder, work)
