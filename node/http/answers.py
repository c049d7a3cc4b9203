"""Answers out: charged to whoever asked until the client has taken them, and sent in pieces.

What a connection still holds is given back by `Connection.finish_response`, whatever became of the
client; whoever takes an answer too slowly is cut off by `FrontServer.sweep`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from typing import Any, cast

from aiohttp import web
from aiohttp.payload import AsyncIterablePayload

from goqueue.wire.errors import OverBudget
from node.http.budgets import Budget, Held, Kind, Owner, Reserved
from node.http.call import JSON_HEADERS, Call, Line, answer
from node.http.pieces import KIB, SLICE_BYTES, LongText, Pieces, weigh
from node.http.slow import Connection

PAGE_BYTES_MIN = 64 * KIB
"""A page is cut to what there is room for, but not to less: then it is refused."""
PAGE_TIMES = 3
"""What a page holds while it is made, in its own size: as it is stored, as rows, and as JSON."""
ROOM_WAIT_S = 2.0
"""How long a request waits for such room."""
ROOM_LOOK_S = 0.005
LINE_MAX = 1024
"""Requests of one holder that wait for it; one more is refused at once."""
UNCHARGED_BYTES = 16 * KIB
"""Of a whole answer: as many connections as there may be hold 128 MiB of such ones."""
RESULT_BYTES = 80
"""What the answer to a publish tells of one message."""

Part = bytes | memoryview | LongText


async def page_room(call: Call, wanted: int) -> Reserved:
    """Room for a page of at most so many bytes; for a smaller one where there is not so much.

    Who is over its bound waits for a moment, in a line with all who ask for the same holder: pages
    are read in milliseconds. Raises OverBudget, before anything of the page is read.
    """
    owner, budget = call.owner, call.shared.budgets[Kind.ANSWERS]
    line = call.shared.lines.setdefault(owner.holder, Line())
    line.count += 1
    try:
        if line.count == 1:
            with suppress(OverBudget):
                return _room_now(budget, owner, wanted)
        if line.count > LINE_MAX:
            return _room_now(budget, owner, wanted)
        async with asyncio.timeout(ROOM_WAIT_S), line.turn:
            while True:
                with suppress(OverBudget):
                    return _room_now(budget, owner, wanted)
                await asyncio.sleep(ROOM_LOOK_S)
    except TimeoutError:
        return _room_now(budget, owner, wanted)
    finally:
        line.count -= 1
        if not line.count:
            del call.shared.lines[owner.holder]


def _room_now(budget: Budget, owner: Owner, wanted: int) -> Reserved:
    """A third of what is left, or the least that there can be."""
    bounds, least = budget.bounds, PAGE_TIMES * PAGE_BYTES_MIN
    left = min(bounds.holder - budget.held_by(owner.holder), bounds.node - budget.used)
    size = max(least, min(PAGE_TIMES * wanted, left // 3))
    if size > least:
        with suppress(OverBudget):
            return Reserved(budget.hold(owner, size))
    return Reserved(budget.hold(owner, least))


async def told(
    call: Call, value: Any, *, weight: int | None = None, room: Reserved | None = None
) -> web.Response:
    """A JSON answer that may be large; `weight` is about its plain bytes, where that is known, and
    `room` what it is made in.

    Raises OverBudget: only what has changed nothing is told like this, or what was charged before.
    """
    if weight is None:
        weight = weigh(value, SLICE_BYTES)
    if weight <= SLICE_BYTES:
        return answer(value)
    with room or Reserved(call.hold(Kind.ANSWERS)) as making:
        pieces = Pieces(making)
        await pieces.add(value)
        parts = pieces.finish()
        held = making.split(pieces.held_bytes)
    return in_parts(call, parts, dict(JSON_HEADERS), pieces.size, held)


def in_parts(
    call: Call, parts: list[Part], headers: dict[str, str], size: int, held: Held
) -> web.Response:
    """An answer of parts that are charged already."""
    _keep(call, held)
    body = AsyncIterablePayload(cast("AsyncIterator[bytes]", _sending(call, parts, held)))
    return web.Response(body=body, headers={**headers, "Content-Length": str(size)})


async def _sending(call: Call, parts: list[Part], held: Held) -> AsyncIterator[bytes | memoryview]:
    """What was taken is let go, so that it need not be charged any more."""
    connection = call.request.protocol
    assert isinstance(connection, Connection)
    connection.took(0)
    parts.reverse()
    while parts:
        part = parts.pop()
        for piece in part.slices() if isinstance(part, LongText) else _cut(part):
            for cut in _cut(piece):
                yield cut
                connection.took(len(cut))
        held.shrink(held_bytes(part))


def reserve(call: Call, size: int) -> None:
    """Charge the answer of a request that will change something: it can't be refused afterwards.
    Raises OverBudget."""
    if size > UNCHARGED_BYTES:
        _keep(call, call.hold(Kind.ANSWERS, size))


def charge(call: Call, answer: web.StreamResponse) -> None:
    """Charge one that is made already. Raises OverBudget where the request has changed nothing and
    may be refused still; what others are told of what they did is small, or was charged before."""
    body = answer.body if isinstance(answer, web.Response) else None
    if not isinstance(body, bytes) or len(body) <= UNCHARGED_BYTES or _is_charged(call):
        return
    try:
        _keep(call, call.hold(Kind.ANSWERS, len(body)))
    except OverBudget:
        if call.request.method == "GET":
            raise


def _cut(part: bytes | memoryview) -> Iterator[bytes | memoryview]:
    view = memoryview(part)
    for at in range(0, len(view), SLICE_BYTES):
        yield view[at : at + SLICE_BYTES]


def held_bytes(part: Part) -> int:
    return len(part.blob if isinstance(part, LongText) else part)


def _is_charged(call: Call) -> bool:
    connection = call.request.protocol
    return isinstance(connection, Connection) and connection.is_holding


def _keep(call: Call, held: Held) -> None:
    connection = call.request.protocol
    assert isinstance(connection, Connection)
    connection.hold(held)
