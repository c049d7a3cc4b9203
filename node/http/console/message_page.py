"""Where is my message: its timeline as a picture, and the way to it from any id."""

from __future__ import annotations

import asyncio
import time

from aiohttp import web

from goqueue.wire.errors import GoQueueError, NotFound
from goqueue.wire.ids import MessageId
from node.http.console import cells
from node.http.console.browse import Row, rows_of
from node.http.console.parts import Visit, answered, tried
from node.http.console.timeline import draw, events_of

EVENTS_MAX = 1000
"""In the table."""


async def search(visit: Visit) -> web.Response:
    """A message's id leads to it."""
    text = visit.query_text().strip()
    problem = ""
    if text:
        try:
            wanted = MessageId.parse(text)
        except GoQueueError:
            problem = "This is not an id of the form topic:partition:offset."
        else:
            return web.Response(status=303, headers={"Location": cells.url("messages", wanted)})
    return await visit.page("search.html", text=text, problem=problem)


async def show(visit: Visit) -> web.Response:
    """One message: what happened to it, and what it holds. Raises NotFound."""
    wanted = MessageId.parse(visit.params["id"])
    trace, (row, no_row) = await asyncio.gather(
        answered(lambda: visit.broker.message_trace(wanted.topic, wanted.partition, wanted.offset)),
        tried(lambda: _row(visit, wanted)),
    )
    return await visit.page(
        "message.html",
        id=wanted,
        trace=trace,
        events=events_of(trace.events[:EVENTS_MAX]),
        left_out=max(0, len(trace.events) - EVENTS_MAX),
        picture=draw(trace.events, time.time_ns() // 1_000_000),
        row=row,
        no_row=no_row,
    )


async def _row(visit: Visit, wanted: MessageId) -> Row:
    found = await visit.broker.read(
        wanted.topic, wanted.partition, wanted.offset, max_records=1, max_bytes=1, wait_s=0
    )
    rows = await asyncio.to_thread(rows_of, found, wanted.offset, 1)
    if not rows or rows[0].view.offset != wanted.offset:
        raise NotFound("what it holds is not in the log any more", id=str(wanted))
    return rows[0]
