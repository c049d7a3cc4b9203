"""Looks into a topic: what is stored, by offset or time, and what is delayed."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from dataclasses import dataclass

from aiohttp import web

from goqueue.wire.errors import BadRequest, OffsetOutOfRange
from goqueue.wire.ids import OFFSET_MAX, PARTITIONS_MAX
from goqueue.wire.types import Offset
from node.api.records import Slice
from node.api.times import parse_time_ms
from node.http.console.paging import paged
from node.http.console.parts import Visit, answered
from node.http.console.payload import Payload, look
from node.http.messages.render import MessageView, Room, cut_slice, render
from node.http.text.pieces import LongText

MESSAGES_A_PAGE = 25
READ_BYTES = 1024 * 1024
"""Of stored batches behind one page; at least one batch is read."""
DELAYED_A_PAGE = 50
DELAYED_SKIP_MAX = 9_950

_LOCAL = re.compile(r"(\d{4}-\d\d-\d\d[T ]\d\d:\d\d)(:\d\d(?:\.\d{1,9})?)?", re.ASCII)
_OFFSET = re.compile(r"\d{1,19}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Row:
    """A message to look at."""

    view: MessageView
    key: Payload
    value: Payload
    headers: Sequence[tuple[str, Payload]]


async def show(visit: Visit) -> web.Response:
    """Stored messages of a partition: at an offset, from a time on, or the newest."""
    name = visit.topic()
    topic = await answered(lambda: visit.broker.topics.topic(name))
    asked = visit.query.get("partition", "")
    holding = [view.partition for view in topic.partitions if view.messages]
    partition = visit.query_int("partition", 0, 0, PARTITIONS_MAX) if asked else (holding or [0])[0]
    offset, start_problem = 0, ""
    try:
        offset = await _start(visit, name, partition)
    except BadRequest as error:
        start_problem = error.message
    rows, found = await _read(visit, name, partition, Offset(offset))
    first = rows[0].view.offset if rows else max(offset, found.log_start)
    return await visit.page(
        "messages.html",
        topic=topic,
        partition=partition,
        rows=rows,
        log_start=found.log_start,
        end=found.end_offset,
        stale=found.stale,
        older=max(found.log_start, first - MESSAGES_A_PAGE) if first > found.log_start else None,
        newer=rows[-1].view.offset + 1
        if rows and rows[-1].view.offset + 1 < found.end_offset
        else None,
        asked_offset=visit.query.get("offset", "")[:20],
        asked_time=visit.query.get("from", "")[:40],
        start_problem=start_problem,
        part="messages",
    )


async def follow(visit: Visit) -> web.Response:
    """New messages of a topic, or of a partition, as server-sent events: see `node.http.tail`."""
    return await visit.shared.tails.answer(visit, visit.topic())


async def show_delayed(visit: Visit) -> web.Response:
    """What is not due yet, soonest first."""
    name = visit.topic()
    topic = await answered(lambda: visit.broker.topics.topic(name))
    skip = (visit.page_number() - 1) * DELAYED_A_PAGE
    views, total = await answered(
        lambda: visit.broker.delays.delayed(
            name, limit=DELAYED_A_PAGE, skip=min(skip, DELAYED_SKIP_MAX)
        )
    )
    where = paged(total, visit.page_number(), DELAYED_A_PAGE)
    return await visit.page("delayed.html", topic=topic, views=views, where=where, part="delayed")


async def _start(visit: Visit, topic: str, partition: int) -> int:
    """Raises BadRequest for an offset or time that is none."""
    at, since = visit.query.get("offset", ""), visit.query.get("from", "")
    if since:
        time_ms = parse_moment_ms(since, "from")
        return int(await visit.broker.records.offset_at(topic, partition, time_ms))
    if at:
        if not _OFFSET.fullmatch(at) or int(at) > OFFSET_MAX:
            raise BadRequest(f"{at[:40]!r} is not an offset")
        return int(at)
    ends = await visit.broker.records.end_offsets(topic)
    earliest, following = ends.get(partition, (Offset(0), Offset(0)))
    return max(earliest, following - MESSAGES_A_PAGE)


async def _read(
    visit: Visit, topic: str, partition: int, offset: Offset
) -> tuple[list[Row], Slice]:
    async def read(offset: Offset) -> Slice:
        return await visit.broker.records.read(
            topic, partition, offset, max_records=MESSAGES_A_PAGE, max_bytes=READ_BYTES, wait_s=0
        )

    try:
        found = await answered(lambda: read(offset))
    except OffsetOutOfRange as error:
        following = error.data.get("next", 0)
        assert isinstance(following, int), "what this error says"
        found = await answered(lambda: read(Offset(following)))
    return await rows_of(found, offset), found


async def rows_of(found: Slice, offset: int, limit: int = MESSAGES_A_PAGE) -> list[Row]:
    cuts, _ = cut_slice(found, offset, limit)
    room, rows = Room(READ_BYTES), list[Row]()
    for cut in cuts:
        views = [view for chunk in await render(cut, room) for view in chunk.rows]
        rows += map(_row, views)
        if len(views) < cut.last - cut.first:
            break
    return rows


def parse_moment_ms(text: str, name: str) -> int:
    """Also without a zone, as a browser's field gives it: UTC then. Raises BadRequest."""
    local = _LOCAL.fullmatch(text.strip())
    if local is not None:
        text = f"{local[1]}{local[2] or ':00'}Z"
    return parse_time_ms(text[:100], name)


def _row(view: MessageView) -> Row:
    encodings = view.header_encodings or {}
    headers = [
        (name, look(_bytes(text, encodings.get(name))))
        for name, text in (view.headers or {}).items()
    ]
    key, value = _bytes(view.key, view.key_encoding), _bytes(view.value, view.value_encoding)
    return Row(view, look(key), look(value), headers)


def _bytes(text: str | None, encoding: str | None) -> bytes | None:
    if text is None or isinstance(text, LongText):
        return None if text is None else text.blob
    return base64.b64decode(text) if encoding else text.encode()
