"""Reading: by offset, by time, by message id; with a long poll, in JSON or in stored batches.

`next_offset` is always where reading goes on: it never passes a message that was not in an answer
and lies in what was asked for. What `visible` makes of that is told there:
`node.http.messages.visible`.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from typing import cast

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
from node.api.records import Slice
from node.api.times import format_time, parse_time_ms
from node.http.budget.memory import Kind, Reserved
from node.http.budget.slices import SLICE_BYTES
from node.http.messages import batches
from node.http.messages.render import MessageView, Room, cut_slice, render
from node.http.messages.visible import Seen, see
from node.http.request.answers import PAGE_BYTES_MIN, PAGE_TIMES, page_room, told
from node.http.request.call import Call
from node.http.request.long_poll import has_hung_up, long_poll
from node.http.text.pieces import Chunks

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
class _Reading:
    """What is read at most, and from where."""

    topic: str
    partition: int
    offset: Offset
    limit: int
    bytes_max: int


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
        raise BadRequest("visible=true needs JSON: stored batches are sent whole")
    offset = await _start(call, topic, partition, window)
    end_s = asyncio.get_running_loop().time() + call.query_wait_s()
    while True:
        with await page_room(call, bytes_max) as held:
            size = min(bytes_max, held.size // PAGE_TIMES)
            reading = _Reading(topic, partition, offset, limit, size)
            found = await _read(call, reading, held, window, shown)
            if binary:
                return batches.slice_answer(call, found)
            room = Room(size, held)
            seen = await see(found, offset, limit, room, skip_pending=shown.skip_pending)
            due_in_s = _due_in_s(call, found, seen, offset, end_s)
            if due_in_s is None:
                page = _answer(topic, partition, found, seen, shown)
                if room.taken > SLICE_BYTES:
                    chunks = Chunks(chunk for _, chunk in seen.runs)
                    page.messages = cast("list[MessageView]", chunks)
                return await told(call, page, weight=room.taken, room=held)
        await long_poll(call, asyncio.sleep(due_in_s))


async def read_topic(call: Call) -> web.Response:
    """GET /topics/{topic}/messages: a window over every partition, merged by log time."""
    topic = call.topic()
    window = _window(call)
    limits = call.limits
    limit = call.query_int("limit", limits.read_records_default, 1, limits.read_records_max)
    count = await call.readable_partition_count(topic)
    starts = _starts(call.query.get("offsets", ""), count)
    shown = _shown(call)

    async def fetch(partition: int, bytes_max: int) -> tuple[Offset, Slice]:
        start = starts.get(partition)
        if start is None:
            start = await _start(call, topic, partition, window)
        return start, await call.broker.records.read(
            topic,
            partition,
            start,
            max_records=limit,
            max_bytes=bytes_max,
            wait_s=0,
            to_time_ms=window.to_ms,
            visible=shown.visible,
        )

    with await page_room(call, limits.read_bytes_max) as held:
        bytes_max = min(limits.read_bytes_max, held.size // PAGE_TIMES) // count + 1
        fetched = await asyncio.gather(*(fetch(number, bytes_max) for number in range(count)))
        held.grow(sum(len(stored.batch) for _, found in fetched for stored in found.batches))
        merged = _Merged()
        for partition, (start, found) in enumerate(fetched):
            room = Room(bytes_max, held)
            seen = await see(found, start, limit, room, skip_pending=shown.skip_pending)
            merged.add(partition, seen, room.taken)
        page = merged.page(topic, limit, shown)
        page.stale = any(found.stale for _, found in fetched)
        return await told(call, page, weight=merged.weight, room=held)


class _Merged:
    """What was seen of each partition, in the order of log times."""

    def __init__(self) -> None:
        self.weight = 0
        self._rows: list[tuple[int, int, MessageView]] = []
        self._reached: dict[int, int] = {}
        self._blocked: dict[int, int] = {}
        self._passed: list[tuple[int, int, int]] = []

    def add(self, partition: int, seen: Seen, weight: int) -> None:
        self.weight += weight
        self._reached[partition] = seen.following
        for time_ms, chunk in seen.runs:
            self._rows += ((time_ms, partition, view) for view in chunk.rows)
        self._passed += ((partition, offset, due_ms) for offset, due_ms in seen.pending)
        if seen.blocked_until_ms is not None:
            self._blocked[partition] = seen.blocked_until_ms

    def page(self, topic: str, limit: int, shown: _Shown) -> TopicMessagesAnswer:
        """The first `limit` messages; each partition goes on at its first one left out."""
        rows, reached, blocked = self._rows, self._reached, self._blocked
        rows.sort(key=lambda row: (row[0], row[1], row[2].offset))
        for _, partition, view in rows[limit:]:
            reached[partition] = min(reached[partition], view.offset)
            blocked.pop(partition, None)
        for _, partition, view in rows[:limit]:
            view.partition = partition
        following_offsets = {str(partition): offset for partition, offset in reached.items()}
        told = TopicMessagesAnswer(topic, [view for _, _, view in rows[:limit]], following_offsets)
        if shown.visible:
            told.blocked_until = {str(number): format_time(at) for number, at in blocked.items()}
        if shown.skip_pending:
            told.pending = [
                PendingView(offset, format_time(due_ms), partition)
                for partition, offset, due_ms in self._passed
                if offset < reached[partition]
            ]
        return told


async def message(call: Call) -> web.Response:
    """GET /messages/{id}: one message by its `topic:partition:offset`."""
    wanted = MessageId.parse(call.params["id"])
    try:
        found = await call.broker.records.read(
            wanted.topic, wanted.partition, wanted.offset, max_records=1, max_bytes=1, wait_s=0
        )
    except OffsetOutOfRange:
        raise NotFound(f"no message {wanted}", id=str(wanted)) from None
    size = sum(len(stored.batch) for stored in found.batches)
    with Reserved(call.hold(Kind.ANSWERS, size)) as held:
        held.grow(size)
        cuts, _ = cut_slice(found, wanted.offset, 1)
        chunks = await render(cuts[0], Room(0, held)) if cuts else []
        views = [view for chunk in chunks for view in chunk.rows]
        return await _told_one(call, wanted, found, views)


async def _told_one(
    call: Call, wanted: MessageId, found: Slice, views: list[MessageView]
) -> web.Response:
    if not views and found.stale:  # it may be stored all the same
        raise Unavailable(f"no leader of {wanted.topic}:{wanted.partition} can be asked for it")
    if not views or views[0].offset != wanted.offset:
        raise NotFound(f"no message {wanted}", id=str(wanted))
    view = views[0]
    view.topic, view.partition, view.id = wanted.topic, wanted.partition, str(wanted)
    return await told(call, view)


def _due_in_s(call: Call, found: Slice, seen: Seen, offset: Offset, end_s: float) -> float | None:
    """How long to wait, as far as the caller has the time, where nothing is there but a delayed
    message: looking again may find it due. None where there is something to tell."""
    visibility, stopping = found.visibility, call.shared.stopping
    left_s = end_s - asyncio.get_running_loop().time()
    is_stuck = seen.blocked_until_ms is not None and seen.following <= max(offset, found.log_start)
    if visibility is None or not is_stuck or left_s <= 0 or stopping.is_set():
        return None
    if has_hung_up(call):
        return None
    assert seen.blocked_until_ms is not None
    due_s = (seen.blocked_until_ms - visibility.time_ms + 1) / 1000
    return min(due_s, left_s, LOOK_AGAIN_S)


def _answer(topic: str, partition: int, found: Slice, seen: Seen, shown: _Shown) -> MessagesAnswer:
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
    return told


def _shown(call: Call) -> _Shown:
    visible, skip_pending = call.query_flag("visible"), call.query_flag("skip_pending")
    if skip_pending and not visible:
        raise BadRequest("skip_pending is only valid with visible=true")
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
        offset = max(offset, await call.broker.records.offset_at(topic, partition, window.from_ms))
    return offset


async def _end(call: Call, topic: str, partition: int) -> Offset:
    if partition >= await call.readable_partition_count(topic, partition + 1):
        raise UnknownPartition(topic, partition)
    ends = await call.broker.records.end_offsets(topic)
    if partition not in ends:
        raise Unavailable(f"the end of {topic}:{partition} is not known now")
    return ends[partition][1]


async def _read(
    call: Call, reading: _Reading, held: Reserved, window: _Window, shown: _Shown
) -> Slice:
    """One read, which is charged; a long poll, which holds nothing, waits, but not past the front's
    own stop, nor for a client that has hung up."""
    broker, stopping = call.broker, call.shared.stopping
    wait_s, is_current = call.query_wait_s(), call.query_flag("current")

    async def read(wait_s: float, bytes_max: int) -> Slice:
        return await broker.records.read(
            reading.topic,
            reading.partition,
            reading.offset,
            max_records=reading.limit,
            max_bytes=bytes_max,
            wait_s=wait_s,
            to_time_ms=window.to_ms,
            visible=shown.visible,
            current=is_current,
        )

    found = await read(0, reading.bytes_max)
    is_there = found.batches or found.stale or not wait_s or stopping.is_set()
    if window.to_ms is not None and found.end_offset > reading.offset:
        is_there = True  # what follows lies outside the window
    if not is_there:
        bytes_max = min(reading.bytes_max, PAGE_BYTES_MIN)
        held.release()
        found = await long_poll(call, read(wait_s, bytes_max)) or found
    held.grow(sum(len(stored.batch) for stored in found.batches))
    return found


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
