"""Long work in slices: a slice at a time of all requests of a node, in turn by who asks.

Each job that yields by itself between its slices goes on in the next turn of the loop, as all
others do: a turn lasts as long as there are jobs, and whoever needs a few turns for a small request
waits for all of them each time. Here they stand in line: one goes on, and then only after some
turns that no slice is part of. Whoever has many of them waits for its own.

Whose work it is goes with the task, in `SHARE`: between the front and what makes slices stand
decoders and encoders that know nothing of clients.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextvars import ContextVar
from typing import NamedTuple

SLICE_BYTES = 64 * 1024
"""Plain bytes that are looked at, decoded, inflated or encoded at once; JSON makes up to six times
as many of them."""
APART_TURNS = 4
"""Turns of the loop from one slice to the next: small requests take that many steps in between. A
turn in which nothing is to be done costs a few microseconds, a slice about a millisecond."""


class Slices:
    """The line of one front. Loop thread only."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        self._turns_left = 0
        self._is_turning = False

    async def turn(self, holder: str) -> None:
        """Return when this holder may do one more slice, before it awaits anything else."""
        loop = asyncio.get_running_loop()
        granted: asyncio.Future[None] = loop.create_future()
        self._waiting.setdefault(holder, deque()).append(granted)
        if not self._is_turning:
            self._is_turning = True
            loop.call_soon(self._next, loop)
        await granted

    # private

    def _next(self, loop: asyncio.AbstractEventLoop) -> None:
        """Once a turn of the loop, from the first who waits until a while after the last."""
        if self._turns_left:
            self._turns_left -= 1
        elif self._grant():
            self._turns_left = APART_TURNS - 1
        else:
            self._is_turning = False
            return
        loop.call_soon(self._next, loop)

    def _grant(self) -> bool:
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


class Share(NamedTuple):
    """Of whom work is, and in which line it stands."""

    slices: Slices
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
