"""Waiting on behalf of a client, and room for the messages that it is given."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from goqueue.wire.errors import OverBudget
from node.api.receiving import TAKING
from node.http.budget.memory import Held, Kind
from node.http.request.long_poll import WAIT_BYTES, unless_ended
from node.listeners.requests import Caller, Requests

TAKING_TIMES = 2
"""What messages hold until they are written, in their own size: as they were read, and encoded."""
TAKING_BYTES_MAX = 1 << 20
"""Of the messages of one receive; one message at least is always taken."""

T = TypeVar("T")


async def long_poll(
    requests: Requests, caller: Caller, work: Coroutine[Any, Any, T], gone: asyncio.Future[None]
) -> T | None:
    """What the work returns; None if the client is `gone`, or the node stops, before. Then the work
    is cancelled, and has ended when this returns. Raises OverBudget before anything is done."""
    try:
        held = requests.hold(caller, Kind.POLLS, WAIT_BYTES)
    except OverBudget:
        work.close()
        raise
    with held:
        return await unless_ended(work, requests.parts.stopping, gone)


@contextmanager
def room_for(
    requests: Requests, caller: Caller, bytes_max: int = TAKING_BYTES_MAX
) -> Iterator[Held]:
    """Whatever is received from the queue inside, at most so much at a time, is charged to the
    caller, from before it is leased until the block ends: so it ends once the answer is written.
    The charge is the block's."""
    room = _Room(requests, caller, bytes_max)
    token = TAKING.set(room)
    try:
        yield room.held
    finally:
        TAKING.reset(token)
        room.held.release()


class _Room:
    """Implements `node.api.receiving.Taking`."""

    def __init__(self, requests: Requests, caller: Caller, bytes_max: int) -> None:
        self._requests = requests
        self._caller = caller
        self._bytes_max = bytes_max
        self.held = requests.hold(caller, Kind.ANSWERS)

    async def begin(self, bytes_max: int) -> int:
        self.end()
        size = min(bytes_max, self._bytes_max)
        taken = await self._requests.room(self._caller, Kind.ANSWERS, TAKING_TIMES * size)
        taken.release()  # in the same turn of the loop it is this one's
        self.held.grow(TAKING_TIMES * size)
        return size

    def end(self) -> None:
        self.held.release()
