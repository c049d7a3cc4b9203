"""Reading: by offset, by time, by message id; with a long poll, in JSON or in stored batches.

`next_offset` is always where reading goes on: it never passes a message that was not in an answer
and lies in what was asked for.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from typing import Any

import msgspec
from aiohttp import web

from goqueue.wire.batch import BATCH_MEDIA_TYPE
from goqueue.wire.errors import (
    BadRequest,
    NotFound,
    OffsetOutOfRange,
    Unavailable,
    UnknownPartition,
)
from goqueue.wire.ids import OFFSET_MAX, MessageId
from goqueue.wire.types import Offset
from node.http import batches
from node.http.body import off_loop
from node.http.broker import Slice
from node.http.call import Call, answer
from node.http.render import MessageView, cut_slice, render
from node.http.times import format_time, parse_time_ms

_OFFSET = re.compile(r"\d{1,19}", re.ASCII)


class MessagesAnswer(msgspec.Struct):
    """Messages of one partition and where reading goes on."""

    topic: str
    partition: int
    messages: list[MessageView]
    next_offset: int
    log_start: int
    end_offset: int


class TopicMessagesAnswer(msgspec.Struct):
    """Messages of all partitions in the order of their log times; continue with `offsets`."""

    topic: str
    messages: list[MessageView]
    next_offsets: dict[str, int]


class TimelineEvent(msgspec.Struct):
    """One event; `attributes` says who and why."""

    timestamp: str
    event_type: str
    attributes: dict[str, Any]


class TimelineAnswer(msgspec.Struct):
    """A message's life so far. `message_id` is the producer's own id, if it gave one."""

    id: str
    message_id: str | None
    topic: str
    partition: int
    offset: int
    events: list[TimelineEvent]
    delivery_attempts: int


@dataclass(frozen=True, slots=True)
class _Window:
    """Log times from `from_ms` up to but not including `to_ms`."""

    from_ms: int | None
    to_ms: int | None


async def read(call: Call) -> web.Response:
    """GET /topics/{topic}/partitions/{partition}/messages, as JSON or as record batches."""
    topic, partition = call.topic(), call.partition()
    limits = call.limits
    window = _window(call)
    binary = BATCH_MEDIA_TYPE in call.request.headers.get("Accept", "")
    bound = limits.read_batch_records_max if binary else limits.read_records_max
    limit = call.query_int("limit", bound if binary else limits.read_records_default, 1, bound)
    bytes_max = call.query_int("max_bytes", limits.read_bytes_max, 1, limits.read_bytes_max)
    offset = await _start(call, topic, partition, window)
    found = await _read(call, topic, partition, offset, limit, bytes_max, window)
    if binary:
        return batches.slice_answer(found)
    size = sum(len(stored.batch) for stored in found.batches)
    return await off_loop(size, _answer, topic, partition, found, offset, limit, bytes_max)


async def read_topic(call: Call) -> web.Response:
    """GET /topics/{topic}/messages: a window over every partition, merged by log time."""
    topic = call.topic()
    window = _window(call)
    limits = call.limits
    limit = call.query_int("limit", limits.read_records_default, 1, limits.read_records_max)
    count = await call.readable_partition_count(topic)
    starts = _starts(call.query.get("offsets", ""), count)
    bytes_max = limits.read_bytes_max // count + 1

    async def fetch(partition: int) -> tuple[Offset, Slice]:
        start = starts.get(partition)
        if start is None:
            start = await _start(call, topic, partition, window)
        return start, await call.broker.read(
            topic,
            partition,
            start,
            max_records=limit,
            max_bytes=bytes_max,
            wait_s=0,
            to_time_ms=window.to_ms,
        )

    fetched = await asyncio.gather(*map(fetch, range(count)))
    size = sum(len(stored.batch) for _, found in fetched for stored in found.batches)
    return await off_loop(size, _merge, topic, fetched, limit, bytes_max)


def _merge(
    topic: str, fetched: list[tuple[Offset, Slice]], limit: int, bytes_max: int
) -> web.Response:
    """The first `limit` messages by log time; each partition goes on at its first one left out."""
    merged: list[tuple[int, int, MessageView]] = []
    reached: dict[int, int] = {}
    for partition, (start, found) in enumerate(fetched):
        cuts, following = cut_slice(found, max(start, found.log_start), limit, bytes_max)
        reached[partition] = following
        for cut in cuts:
            merged += ((cut.stored.time_ms, partition, view) for view in render([cut]))
    merged.sort(key=lambda row: (row[0], row[1], row[2].offset))
    for _, partition, view in merged[limit:]:
        reached[partition] = min(reached[partition], view.offset)
    for _, partition, view in merged[:limit]:
        view.partition = partition
    following_offsets = {str(partition): offset for partition, offset in reached.items()}
    messages = [view for _, _, view in merged[:limit]]
    return answer(TopicMessagesAnswer(topic, messages, following_offsets))


async def message(call: Call) -> web.Response:
    """GET /messages/{id}: one message by its `topic:partition:offset`."""
    wanted = MessageId.parse(call.params["id"])
    missing = NotFound(f"no message {wanted}", id=str(wanted))
    try:
        found = await call.broker.read(
            wanted.topic, wanted.partition, wanted.offset, max_records=1, max_bytes=1, wait_s=0
        )
    except OffsetOutOfRange:
        raise missing from None
    cuts, _ = cut_slice(found, wanted.offset, 1, 0)
    views = render(cuts)
    if not views or views[0].offset != wanted.offset:
        raise missing
    view = views[0]
    view.topic, view.partition, view.id = wanted.topic, wanted.partition, str(wanted)
    return answer(view)


async def timeline(call: Call) -> web.Response:
    """GET /messages/{id}/timeline: what happened to one message, oldest event first."""
    wanted = MessageId.parse(call.params["id"])
    trace = await call.broker.message_trace(wanted.topic, wanted.partition, wanted.offset)
    events = [
        TimelineEvent(format_time(event.time_ms), event.type, dict(event.attributes))
        for event in trace.events
    ]
    return answer(
        TimelineAnswer(
            id=str(wanted),
            message_id=trace.message_id,
            topic=trace.topic,
            partition=trace.partition,
            offset=trace.offset,
            events=events,
            delivery_attempts=trace.delivery_attempts,
        )
    )


def _answer(
    topic: str, partition: int, found: Slice, offset: Offset, limit: int, bytes_max: int
) -> web.Response:
    cuts, following = cut_slice(found, max(offset, found.log_start), limit, bytes_max)
    return answer(
        MessagesAnswer(topic, partition, render(cuts), following, found.log_start, found.end_offset)
    )


def _window(call: Call) -> _Window:
    query = call.query
    begin, end = query.get("from_time"), query.get("to_time")
    return _Window(
        parse_time_ms(begin, "from_time") if begin else None,
        parse_time_ms(end, "to_time") if end else None,
    )


async def _start(call: Call, topic: str, partition: int, window: _Window) -> Offset:
    """The later of the offset asked for and the first message of the window."""
    text = call.query.get("offset", "")
    if text in ("", "earliest"):
        offset = Offset(0)
    elif text == "latest":
        offset = await _end(call, topic, partition)
    elif _OFFSET.fullmatch(text) and int(text) <= OFFSET_MAX:
        offset = Offset(int(text))
    else:
        raise BadRequest(f"offset: {text[:40]!r} is not a number from 0, earliest or latest")
    if window.from_ms is not None:
        offset = max(offset, await call.broker.offset_at(topic, partition, window.from_ms))
    return offset


async def _end(call: Call, topic: str, partition: int) -> Offset:
    if partition >= await call.readable_partition_count(topic):
        raise UnknownPartition(topic, partition)
    ends = await call.broker.end_offsets(topic)
    if partition not in ends:
        raise Unavailable(f"the end of {topic}:{partition} is not known now")
    return ends[partition][1]


async def _read(
    call: Call,
    topic: str,
    partition: int,
    offset: Offset,
    limit: int,
    bytes_max: int,
    window: _Window,
) -> Slice:
    """One read; a long poll waits, but not past the front's own stop."""
    broker, stopping = call.broker, call.shared.stopping
    wait_s = call.query_wait_s()

    async def read(wait_s: float) -> Slice:
        return await broker.read(
            topic,
            partition,
            offset,
            max_records=limit,
            max_bytes=bytes_max,
            wait_s=wait_s,
            to_time_ms=window.to_ms,
        )

    found = await read(0)
    if found.batches or not wait_s or stopping.is_set():
        return found
    if window.to_ms is not None and found.end_offset > offset:
        return found  # what follows lies outside the window
    waiting = asyncio.ensure_future(read(wait_s))
    ended = asyncio.ensure_future(stopping.wait())
    try:
        await asyncio.wait((waiting, ended), return_when=asyncio.FIRST_COMPLETED)
        return waiting.result() if waiting.done() else found
    finally:
        ended.cancel()
        waiting.cancel()


def _starts(text: str, partitions: int) -> dict[int, Offset]:
    """`0:12,1:7`, as an earlier answer's next_offsets had it."""
    starts: dict[int, Offset] = {}
    for part in filter(None, text.split(",")):
        partition, _, offset = part.partition(":")
        if not (_OFFSET.fullmatch(partition) and _OFFSET.fullmatch(offset)):
            raise BadRequest(f"offsets: {part[:40]!r} is not partition:offset")
        if int(partition) >= partitions or int(offset) > OFFSET_MAX:
            raise BadRequest(f"offsets: {part[:40]!r} is out of range")
        starts[int(partition)] = Offset(int(offset))
    return starts
