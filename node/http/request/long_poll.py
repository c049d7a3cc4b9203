"""Waiting on behalf of a client: no longer than it listens, and not past the front's own stop."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from goqueue.wire.errors import OverBudget
from node.api.receiving import WAITING, Waiting
from node.http.budget.memory import Kind
from node.http.connections.client import client_of
from node.http.request.call import Call

WITHDRAW_S = 5.0
"""How long work that was cancelled may take to give back what it held."""

FINISH_S = 2.0
"""How long a node that stops lets go on what is under way for a caller: answers of leaders that
live come within milliseconds."""

WAIT_BYTES = 4096
"""What a request that waits holds: its head, its task, who is to wake it. As many connections as
one address may have can wait at once, and as many as there may be on the node."""

T = TypeVar("T")


async def long_poll(call: Call, work: Coroutine[Any, Any, T], held_bytes: int = 0) -> T | None:
    """What the work returns; None if the client hangs up or the front stops before, while it waits.

    Then the work is cancelled, and has ended when this returns (or `WITHDRAW_S` have passed).
    `held_bytes` is what waits with it besides. Raises OverBudget before anything is done.
    """
    try:
        held = call.hold(Kind.POLLS, WAIT_BYTES + held_bytes)
    except OverBudget:
        work.close()
        raise
    with held:
        return await unless_ended(work, call.shared.stopping, client_of(call.request).hung_up())


def has_hung_up(call: Call) -> bool:
    """Whether the client is known to be gone: nobody will read the answer."""
    return call.request.transport is None


async def unless_ended(
    work: Coroutine[Any, Any, T], stopping: asyncio.Event, gone: asyncio.Future[None]
) -> T | None:
    """What the work returns; None if the client is gone before, or the node stops while it waits
    (see `node.api.receiving`): then the work is cancelled, and has ended when this returns (or
    `WITHDRAW_S` have passed). What is under way as the node stops has `FINISH_S` to end."""
    waiting = Waiting()
    token = WAITING.set(waiting)
    working = asyncio.ensure_future(work)
    WAITING.reset(token)
    stops = asyncio.ensure_future(_may_cut_off(stopping, waiting))
    ends: list[asyncio.Future[Any]] = [working, stops, gone]
    try:
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stops.cancel()
        if not working.done():
            working.cancel()
            await asyncio.wait((working,), timeout=WITHDRAW_S)
    if not working.done() or working.cancelled():
        return None
    return working.result()


async def _may_cut_off(stopping: asyncio.Event, waiting: Waiting) -> None:
    """Returns once the node stops, and nothing is under way or `FINISH_S` have passed."""
    await stopping.wait()
    with suppress(TimeoutError):
        async with asyncio.timeout(FINISH_S):
            await waiting.rests()
