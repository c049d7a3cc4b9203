"""Reading: by offset, by time, by message id; with a long poll, in JSON or in stored batches.

`next_offset` is always where reading goes on: it never passes a message that was not in an answer
and lies in what was asked for. What `visible` makes of that is told in `node.http.visible`.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass

import msgspec
from aiohttp import web
from msgspec import UNSET, UnsetType

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
from node.http.long_poll import long_poll
from node.http.render import MessageView, cut_slice, render
from node.http.times import format_time, parse_time_ms
from node.http.visible import Seen, see

LOOK_AGAIN_S = 1.0
"""A visible read that waits for a delayed message may learn that it was cancelled."""
_OFFSET = re.compile(r"\d{1,19}", re.ASCII)


class PendingView(msgspec.Struct, omit_defaults=True):
    """A message that is not due, and that a visible read has passed."""

    offset: int
    deliver_at: str
    partition: int | None = None


class MessagesAnswer(msgspec.Struct):
    """Messages of one partition and where reading goes on.

    `stale`: no leader has confirmed in time that there is no more behind `next_offset`, or where
    the end is, if that was asked for: ask again.
    Of visible reads: `blocked_until` is when the message at `next_offset` is due, `pending` names
    the messages that were passed.
    """

    topic: str
    partition: int
    messages: list[MessageView]
    next_offset: int
    log_start: int
    end_offset: int
    stale: bool = False
    blocked_until: str | UnsetType = UNSET
    pending: list[PendingView] | UnsetType = UNSET


class TopicMessagesAnswer(msgspec.Struct):
    """Messages of all partitions in the order of their log times; continue with `offsets`.

    `stale`: of a partition that is read to its end here no leader has confirmed the end in time.
    Of visible reads, `blocked_until` names the partitions whose next message is not due.
    """

    topic: str
    messages: list[MessageView]
    next_offsets: dict[str, int]
    stale: bool = False
    blocked_until: dict[str, str] | UnsetType = UNSET
    pending: list[PendingView] | UnsetType = UNSET


@dataclass(frozen=True, slots=True)
class _Window:
    """Log times from `from_ms` up to but not including `to_ms`."""

    from_ms: int | None
    to_ms: int | None


@dataclass(frozen=True, slots=True)
class _Shown:
    """Which messages are wanted: `visible` ones only; beyond those that are not due or not."""

    visible: bool
    skip_pending: bool


async def read(call: Call) -> web.Response:
    """GET /topics/{topic}/partitions/{partition}/messages, as JSON or as record batches."""
    topic, partition = call.topic(), call.partition()
    limits = call.limits
    window = _window(call)
    binary = BATCH_MEDIA_TYPE in call.request.headers.get("Accept", "")
    bound = limits.read_batch_records_max if binary else limits.read_records_max
    limit = call.query_int("limit", bound if binary else limits.read_records_default, 1, bound)
    bytes_max = call.query_int("max_bytes", limits.read_bytes_max, 1, limits.read_bytes_max)
    shown = _shown(call)
    if binary and shown.visible:
        raise BadRequest("stored batches are whole: visible reads are in JSON")
    offset = await _start(call, topic, partition, window)
    end_s = asyncio.get_running_loop().time() + call.query_wait_s()
    while True:
        found = await _read(call, topic, partition, offset, limit, bytes_max, window, shown)
        if binary:
            return batches.slice_answer(found)
        size = sum(len(stored.batch) for stored in found.batches)
        seen = await off_loop(
            size, see, found, offset, limit, bytes_max, skip_pending=shown.skip_pending
        )
        if not await _wait_until_due(call, found, seen, offset, end_s):
            return _answer(topic, partition, found, seen, shown)


async def read_topic(call: Call) -> web.Response:
    """GET /topics/{topic}/messages: a window over every partition, merged by log time."""
    topic = call.topic()
    window = _window(call)
    limits = call.limits
    limit = call.query_int("limit", limits.read_records_default, 1, limits.read_records_max)
    count = await call.readable_partition_count(topic)
    starts = _starts(call.query.get("offsets", ""), count)
    bytes_max = limits.read_bytes_max // count + 1
    shown = _shown(call)

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
            visible=shown.visible,
        )

    fetched = await asyncio.gather(*map(fetch, range(count)))
    size = sum(len(stored.batch) for _, found in fetched for stored in found.batches)
    return await off_loop(size, _merge, topic, fetched, limit, bytes_max, shown)


def _merge(
    topic: str, fetched: list[tuple[Offset, Slice]], limit: int, bytes_max: int, shown: _Shown
) -> web.Response:
    """The first `limit` messages by log time; each partition goes on at its first one left out."""
    merged: list[tuple[int, int, MessageView]] = []
    reached: dict[int, int] = {}
    blocked: dict[int, int] = {}
    passed: list[tuple[int, int, int]] = []
    for partition, (start, found) in enumerate(fetched):
        seen = see(found, start, limit, bytes_max, skip_pending=shown.skip_pending)
        reached[partition] = seen.following
        for time_ms, views in seen.runs:
            merged += ((time_ms, partition, view) for view in views)
        passed += ((partition, offset, due_ms) for offset, due_ms in seen.pending)
        if seen.blocked_until_ms is not None:
            blocked[partition] = seen.blocked_until_ms
    merged.sort(key=lambda row: (row[0], row[1], row[2].offset))
    for _, partition, view in merged[limit:]:
        reached[partition] = min(reached[partition], view.offset)
        blocked.pop(partition, None)
    for _, partition, view in merged[:limit]:
        view.partition = partition
    following_offsets = {str(partition): offset for partition, offset in reached.items()}
    messages = [view for _, _, view in merged[:limit]]
    is_stale = any(found.stale for _, found in fetched)
    told = TopicMessagesAnswer(topic, messages, following_offsets, is_stale)
    if shown.visible:
        told.blocked_until = {str(number): format_time(at) for number, at in blocked.items()}
    if shown.skip_pending:
        told.pending = [
            PendingView(offset, format_time(due_ms), partition)
            for partition, offset, due_ms in passed
            if offset < reached[partition]
        ]
    return answer(told)


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
    if not views and found.stale:  # it may be stored all the same
        raise Unavailable(f"no leader of {wanted.topic}:{wanted.partition} can be asked for it")
    if not views or views[0].offset != wanted.offset:
        raise missing
    view = views[0]
    view.topic, view.partition, view.id = wanted.topic, wanted.partition, str(wanted)
    return answer(view)


async def _wait_until_due(
    call: Call, found: Slice, seen: Seen, offset: Offset, end_s: float
) -> bool:
    """Wait, as far as the caller has the time, where nothing is there but a delayed message; True
    if looking again may find it due."""
    visibility, stopping = found.visibility, call.shared.stopping
    left_s = end_s - asyncio.get_running_loop().time()
    is_stuck = seen.blocked_until_ms is not None and seen.following <= max(offset, found.log_start)
    if visibility is None or not is_stuck or left_s <= 0 or stopping.is_set():
        return False
    assert seen.blocked_until_ms is not None
    due_s = (seen.blocked_until_ms - visibility.time_ms + 1) / 1000
    slept = await long_poll(call, asyncio.sleep(min(due_s, left_s, LOOK_AGAIN_S), result=True))
    return slept is True


def _answer(topic: str, partition: int, found: Slice, seen: Seen, shown: _Shown) -> web.Response:
    told = MessagesAnswer(
        topic,
        partition,
        seen.views,
        seen.following,
        found.log_start,
        found.end_offset,
        found.stale,
    )
    if seen.blocked_until_ms is not None:
        told.blocked_until = format_time(seen.blocked_until_ms)
    if shown.skip_pending:
        told.pending = [PendingView(at, format_time(due_ms)) for at, due_ms in seen.pending]
    return answer(told)


def _shown(call: Call) -> _Shown:
    visible, skip_pending = call.query_flag("visible"), call.query_flag("skip_pending")
    if skip_pending and not visible:
        raise BadRequest("skip_pending goes with visible=true: all messages are shown without it")
    return _Shown(visible, skip_pending)


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
    if partition >= await call.readable_partition_count(topic, partition + 1):
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
    shown: _Shown,
) -> Slice:
    """One read; a long poll waits, but not past the front's own stop, nor for a client that has
    hung up."""
    broker, stopping = call.broker, call.shared.stopping
    wait_s, is_current = call.query_wait_s(), call.query_flag("current")

    async def read(wait_s: float) -> Slice:
        return await broker.read(
            topic,
            partition,
            offset,
            max_records=limit,
            max_bytes=bytes_max,
            wait_s=wait_s,
            to_time_ms=window.to_ms,
            visible=shown.visible,
            current=is_current,
        )

    found = await read(0)
    if found.batches or found.stale or not wait_s or stopping.is_set():
        return found
    if window.to_ms is not None and found.end_offset > offset:
        return found  # what follows lies outside the window
    return await long_poll(call, read(wait_s)) or found


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
