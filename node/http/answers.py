"""Answers out: charged to whoever asked until the client has taken them, and sent in pieces.

What a connection still holds is given back by `Connection.finish_response`, whatever became of the
client; whoever takes an answer too slowly is cut off by `FrontServer.sweep`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any, cast

from aiohttp import web
from aiohttp.payload import AsyncIterablePayload

from goqueue.wire.errors import OverBudget
from node.http.budgets import Held, Kind
from node.http.call import JSON_HEADERS, Call, answer
from node.http.pieces import KIB, SLICE_BYTES, LongText, Pieces, weigh
from node.http.slow import Connection

PAGE_BYTES_MIN = 128 * KIB
"""A page is cut to what there is room for, but not to less: then it is refused."""
UNCHARGED_BYTES = 16 * KIB
"""Of a whole answer: as many connections as there may be hold 128 MiB of such ones."""

Part = bytes | memoryview | LongText


def page_room(call: Call, wanted: int) -> Held:
    """Room for a page of at most so many bytes; for a smaller one where there is not so much.

    Raises OverBudget, before anything of the page is read.
    """
    size = wanted
    while True:
        try:
            return call.hold(Kind.ANSWERS, size)
        except OverBudget:
            if size <= PAGE_BYTES_MIN:
                raise
            size = max(PAGE_BYTES_MIN, size // 8)


async def told(call: Call, value: Any, *, weight: int | None = None) -> web.Response:
    """A JSON answer that may be large; `weight` is about its plain bytes, where that is known.

    Raises OverBudget: only what has changed nothing is told like this, or what was charged before.
    """
    if weight is None:
        weight = weigh(value, SLICE_BYTES)
    if weight <= SLICE_BYTES:
        return answer(value)
    held = call.hold(Kind.ANSWERS)
    _keep(call, held)
    pieces = Pieces(held)
    await pieces.add(value)
    return in_parts(call, pieces.finish(), dict(JSON_HEADERS), pieces.size, held)


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
            yield piece
            connection.took(len(piece))
        held.shrink(held_bytes(part))


def charge(call: Call, answer: web.StreamResponse) -> None:
    """Charge one that is made already. Raises OverBudget where the request has changed nothing and
    may be refused still; what others are told of what they did is small, or was charged before."""
    body = answer.body if isinstance(answer, web.Response) else None
    if not isinstance(body, bytes) or len(body) <= UNCHARGED_BYTES:
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


def _keep(call: Call, held: Held) -> None:
    connection = call.request.protocol
    assert isinstance(connection, Connection)
    connection.hold(held)
