"""Answers out: charged to whoever asked until the client has taken them, and sent in pieces.

What a connection still holds is given back by `Connection.finish_response`, whatever became of the
client; whoever takes an answer too slowly is cut off by `FrontServer.sweep`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import suppress
from typing import Any, cast

from aiohttp import web
from aiohttp.payload import AsyncIterablePayload

from goqueue.wire.errors import OverBudget
from node.http.budget.memory import Budget, Held, Kind, Owner, Reserved
from node.http.budget.slices import SLICE_BYTES, pause
from node.http.connections.client import client_of
from node.http.request.call import JSON_HEADERS, LARGE, Call, answer
from node.http.text.pieces import KIB, LongText, Pieces, weigh

PAGE_BYTES_MIN = 64 * KIB
"""A page is cut to what there is room for, but not to less: then it is refused."""
PAGE_TIMES = 3
"""What a page holds while it is made, in its own size: as it is stored, as rows, and as JSON."""
ROOM_WAIT_S = 2.0
"""How long a request waits for such room."""
UNCHARGED_BYTES = 16 * KIB
"""Of a whole answer: as many connections as there may be hold 128 MiB of such ones."""
RESULT_BYTES = 80
"""What an answer tells of one message that was published or settled, beside its receipt."""

Part = bytes | memoryview | LongText


async def page_room(call: Call, wanted: int) -> Reserved:
    """Room for a page of at most so many bytes; for a smaller one where there is not so much.

    Who is over its bound waits for a moment, in a line with all who ask for the same holder: pages
    are read in milliseconds. Raises OverBudget, before anything of the page is read.
    """
    owner, budget = call.owner, call.shared.budgets[Kind.ANSWERS]
    return await call.shared.lines.wait(
        Kind.ANSWERS, owner.holder, ROOM_WAIT_S, lambda: _room_now(budget, owner, wanted)
    )


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
        return answer(value, weight=weight)
    with room or Reserved(call.hold(Kind.ANSWERS)) as making:
        pieces = Pieces(making)
        await pieces.add(value)
        parts = pieces.finish()
        held = making.split(pieces.held_bytes)
    return in_parts(call, parts, dict(JSON_HEADERS), pieces.size, held)


async def finished(call: Call, given: web.StreamResponse) -> web.StreamResponse:
    """A handler's answer as it is sent: what is large is encoded, and charged.

    Raises OverBudget where the request has changed nothing and may still be refused. What others
    are told of what they did is charged beforehand where it can be large, or else where there is
    room.
    """
    if not isinstance(given, web.Response):
        return given  # a stream sends what it has by itself
    value, body = given.get(LARGE), given.body
    if value is None and (not isinstance(body, bytes) or len(body) <= UNCHARGED_BYTES):
        return given
    client = client_of(call.request)
    if client.is_holding:
        return await _in_pieces(call, given, None)
    try:
        with Reserved(call.hold(Kind.ANSWERS)) as making:
            return await _in_pieces(call, given, making)
    except OverBudget:
        if call.request.method == "GET":
            raise
        return await _in_pieces(call, given, None)  # nobody may be told that it has not happened


async def _in_pieces(call: Call, given: web.Response, making: Reserved | None) -> web.Response:
    pieces, value, body = Pieces(making), given.get(LARGE), given.body
    if value is not None:
        await pieces.add(value)
    elif isinstance(body, bytes):
        pieces.put(body)
    parts = pieces.finish()
    held = None if making is None else making.split(pieces.held_bytes)
    made = in_parts(call, parts, given.headers, pieces.size, held, given.status)
    if given.keep_alive is False:
        made.force_close()
    return made


def in_parts(
    call: Call,
    parts: list[Part],
    headers: Mapping[str, str],
    size: int,
    held: Held | None,
    status: int = 200,
) -> web.Response:
    """An answer of parts that are charged already."""
    if held is not None:
        _keep(call, held)
    body = AsyncIterablePayload(cast("AsyncIterator[bytes]", _sending(call, parts, held)))
    told = {**headers, "Content-Length": str(size)}
    return web.Response(body=body, headers=told, status=status)


async def _sending(
    call: Call, parts: list[Part], held: Held | None
) -> AsyncIterator[bytes | memoryview]:
    """What was taken is let go, so that it need not be charged any more. What is written last is
    not waited for by who writes it."""
    client = client_of(call.request)
    client.took(0)
    parts.reverse()
    while parts:
        part = parts.pop()
        for piece in part.slices() if isinstance(part, LongText) else _cut(part):
            for cut in _cut(piece):
                yield cut
                await client.is_taken()
                client.took(len(cut))
            if isinstance(part, LongText):
                client.waited(await pause())
        if held is not None:
            held.shrink(held_bytes(part))


async def reserve(call: Call, size: int) -> None:
    """Charge the answer of a request that will change something: it can't be refused afterwards.
    Raises OverBudget."""
    if size > UNCHARGED_BYTES:
        _keep(call, await call.room(Kind.ANSWERS, size))


def _cut(part: bytes | memoryview) -> Iterator[bytes | memoryview]:
    view = memoryview(part)
    for at in range(0, len(view), SLICE_BYTES):
        yield view[at : at + SLICE_BYTES]


def held_bytes(part: Part) -> int:
    return len(part.blob if isinstance(part, LongText) else part)


def _keep(call: Call, held: Held) -> None:
    client = client_of(call.request)
    client.hold(held)
