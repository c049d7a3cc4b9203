"""Messages out: stored batches become JSON, a column at a time.

A value is shown as a string; where it is not UTF-8, as base64 with `value_encoding` saying so. The
timestamp is the entry's log time: it never goes back, so time windows cut exactly between batches.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import cast

import msgspec

from goqueue.wire.batch import LANE_NORMAL, LANES, Codec, Headers, RecordBatch, Rows, resolve_ms
from goqueue.wire.layout import HAS_DELIVER_AT, HAS_EXPIRES_AT
from goqueue.wire.records import decode_headers, decode_text
from node.api.records import Slice, StoredBatch
from node.api.times import TIME_MS_MAX, format_time
from node.http.budget.memory import Reserved
from node.http.budget.slices import SLICE_BYTES, in_thread, pause
from node.http.text.pieces import Chunk, LongText, base64_bytes, encoded_bytes

ROW_BYTES = 150
"""What a message is taken to cost in JSON beside its texts."""
CUT_BYTES = 16 * SLICE_BYTES
"""Of values that are copied out of their batch at once: less than a millisecond."""


class MessageView(msgspec.Struct, omit_defaults=True, gc=False):
    """One message as answers show it; fields that say nothing are left out. A `value` of null
    deletes the key, in a compacted topic."""

    offset: int
    timestamp: str
    value: str | None
    priority: str
    key: str | None = None
    headers: dict[str, str] | None = None
    message_id: str | None = None
    deliver_at: str | None = None
    expires_at: str | None = None
    value_encoding: str | None = None
    key_encoding: str | None = None
    header_encodings: dict[str, str] | None = None
    partition: int | None = None
    topic: str | None = None
    id: str | None = None


class Cut(msgspec.Struct):
    """Rows `first` to `last` of a stored batch."""

    stored: StoredBatch
    batch: RecordBatch
    first: int
    last: int


class Room:
    """How many bytes of messages, as they are encoded, an answer still takes; what is at hand for
    it is charged to `held`. The first message always has room.

    What fits even if each byte were a control is measured only once that is not known any more:
    most answers are small, and measuring costs as much as encoding.
    """

    __slots__ = ("_unmeasured", "_worst", "held", "is_first", "left", "taken")

    def __init__(self, bytes_max: int, held: Reserved | None = None) -> None:
        self.left = bytes_max
        self.held = held
        self.taken = 0
        self.is_first = True
        self._unmeasured: list[Rows] = []
        self._worst = 0

    def take_unmeasured(self, run: Rows, weight: int) -> bool:
        """Whether these fit whatever they are."""
        if self._worst + 6 * weight > self.left:
            return False
        self._worst += 6 * weight
        self._unmeasured.append(run)
        self.taken += weight
        self.is_first = False
        return True

    async def measure(self) -> None:
        """Find out what was left open."""
        self._worst = 0
        while self._unmeasured:
            run = self._unmeasured.pop()
            if len(run.values) > 1:
                self.left -= _run_bytes(run)
            else:
                self.left -= await _row_bytes(
                    run.values[0], run.keys[0], run.headers[0], run.message_ids[0]
                )
            await pause()

    def take(self, size: int) -> bool:
        """Whether there was room for it."""
        if size > self.left and not self.is_first:
            return False
        self.left -= size
        self.taken += size
        self.is_first = False
        return True


def cut_slice(found: Slice, offset: int, limit: int) -> tuple[list[Cut], int]:
    """The rows at and after `offset`, at most `limit`, and the offset where reading goes on."""
    cuts: list[Cut] = []
    for stored in found.batches:
        batch = RecordBatch.parse(stored.batch)
        first = max(0, offset - stored.base_offset)
        if first >= batch.count:
            continue
        last = min(batch.count, first + limit)
        cuts.append(Cut(stored, batch, first, last))
        limit -= last - first
        if limit == 0:
            return cuts, stored.base_offset + last
    return cuts, found.next_offset


async def render(cut: Cut, room: Room) -> list[Chunk]:
    """Its rows in order, as many as there is room for. Raises OverBudget."""
    plain_bytes = cut.batch.header.values_plain_bytes
    held = room.held
    if held is not None:
        held.grow(plain_bytes)
    try:
        plain = await _plain(cut.batch)
        rows = await _rows(cut, plain)
    finally:
        if held is not None:
            held.shrink(plain_bytes)
    nulls = cut.batch.nulls()
    chunks: list[Chunk] = []
    for first, last, weight in _runs(rows):
        run, at = _run(rows, first, last), cut.first + first
        taken = await _fitting(run, weight, room)
        if held is not None:
            held.grow(weight)
        views = list(_render_run(cut, at, at + taken, run))
        for row in nulls.intersection(range(at, at + taken)):
            views[row - at].value = None
        chunks.append(Chunk(views, weight))
        if taken < last - first:
            break
        if last < len(rows.values):
            await pause()
    return chunks


async def _plain(batch: RecordBatch) -> bytes:
    """The values in one piece; decompressors let others run meanwhile, so they have a thread."""
    is_large = batch.header.values_plain_bytes > SLICE_BYTES
    if is_large and batch.codec is not Codec.NONE:
        return await in_thread(batch.plain_values)
    return batch.plain_values()


async def _rows(cut: Cut, plain: bytes) -> Rows:
    """The rows, of long values some at a time."""
    batch = cut.batch
    if len(plain) <= CUT_BYTES:
        return batch.rows(cut.first, cut.last, plain)
    rows = Rows([], [], [], [])
    for first, last in _blocks(batch.value_lengths(), cut.first, cut.last):
        if first > cut.first:
            await pause()
        some = batch.rows(first, last, plain)
        rows.values.extend(some.values)
        rows.keys.extend(some.keys)
        rows.headers.extend(some.headers)
        rows.message_ids.extend(some.message_ids)
    return rows


def _blocks(lengths: Sequence[int], first: int, last: int) -> Iterator[tuple[int, int]]:
    """First and last of neighbours whose values are at most `CUT_BYTES` together; or of one."""
    size = 0
    for row in range(first, last):
        if row > first and size + lengths[row] > CUT_BYTES:
            yield first, row
            first, size = row, 0
        size += lengths[row]
    yield first, last


def _runs(rows: Rows) -> Iterator[tuple[int, int, int]]:
    """First, last and plain bytes of neighbours that are at most a slice together; or of one."""
    first = weight = 0
    for row, (value, key, headers, message_id) in enumerate(
        zip(rows.values, rows.keys, rows.headers, rows.message_ids, strict=True)
    ):
        size = len(value) + len(key or b"") + len(headers) + len(message_id) + ROW_BYTES
        if row > first and weight + size > SLICE_BYTES:
            yield first, row, weight
            first, weight = row, 0
        weight += size
    yield first, len(rows.values), weight


def _run(rows: Rows, first: int, last: int) -> Rows:
    return Rows(
        rows.values[first:last],
        rows.keys[first:last],
        rows.headers[first:last],
        rows.message_ids[first:last],
    )


async def _fitting(run: Rows, weight: int, room: Room) -> int:
    """How many of these rows there is room for, as they will be encoded."""
    count = len(run.values)
    if room.take_unmeasured(run, weight):
        return count
    await room.measure()
    if count > 1 and (size := _run_bytes(run)) <= room.left:
        room.take(size)
        return count
    columns = zip(run.values, run.keys, run.headers, run.message_ids, strict=True)
    for taken, columns_of_row in enumerate(columns):
        if not room.take(await _row_bytes(*columns_of_row)):
            return taken
    return count


async def _row_bytes(value: bytes, *texts: bytes | None) -> int:
    """What a message comes to in JSON, of a long value a slice at a time."""
    return ROW_BYTES + sum(_told_bytes(text) for text in texts if text) + await measured(value)


def _run_bytes(run: Rows) -> int:
    keys = (key for key in run.keys if key)
    texts = b"".join((*run.values, *keys, *run.headers, *run.message_ids))
    return len(run.values) * ROW_BYTES + _told_bytes(texts)


async def measured(value: bytes) -> int:
    """What a value comes to in JSON; a long one is measured a slice at a time."""
    if len(value) <= SLICE_BYTES:
        return _told_bytes(value)
    text = LongText(value)
    await text.measure()
    return text.size


def _told_bytes(blob: bytes) -> int:
    """As text or as base64, whichever is more."""
    if blob.isascii():
        return encoded_bytes(blob)
    return max(encoded_bytes(blob), base64_bytes(len(blob)))


def _render_run(cut: Cut, first: int, last: int, run: Rows) -> Iterator[MessageView]:
    """Rows `first` to `last` of the batch, which are the first ones of the run."""
    batch, rows, count = cut.batch, slice(first, last), last - first
    base = cut.stored.base_offset
    offsets = range(base + first, base + last)
    timestamp = repeat(format_time(cut.stored.time_ms))
    blobs, keys, lanes = run.values[:count], run.keys[:count], batch.lanes()[rows]
    names = (
        repeat(LANES[LANE_NORMAL])
        if lanes.count(LANE_NORMAL) == len(lanes)
        else map(LANES.__getitem__, lanes)
    )
    timed = batch.header.flags & (HAS_DELIVER_AT | HAS_EXPIRES_AT)
    is_long = count == 1 and len(blobs[0]) > SLICE_BYTES
    plain = not (timed or is_long or any(run.headers[:count]) or any(run.message_ids[:count]))
    try:
        values = list(map(bytes.decode, blobs)) if plain else []
        texts = [None if key is None else key.decode() for key in keys]
    except UnicodeDecodeError:
        plain = False
        values, texts = [], []
    if plain:
        if keys.count(None) == len(keys):
            return map(MessageView, offsets, timestamp, values, names)
        return map(MessageView, offsets, timestamp, values, names, texts)
    header_column = map(decode_headers, run.headers[:count])
    ids = (decode_text(blob) or None for blob in run.message_ids[:count])
    views = map(_render_row, offsets, timestamp, blobs, names, keys, header_column, ids)
    return _timed(views, cut, rows) if timed else views


def _timed(views: Iterator[MessageView], cut: Cut, rows: slice) -> Iterator[MessageView]:
    """The views with the moments that their batch gives, resolved by its log time."""
    time_ms = cut.stored.time_ms
    columns = zip(views, cut.batch.deliver_at()[rows], cut.batch.expires_at()[rows], strict=True)
    for view, deliver_at, expires_at in columns:
        view.deliver_at = _moment(deliver_at, time_ms)
        view.expires_at = _moment(expires_at, time_ms)
        yield view


def _moment(cell: int | None, log_time_ms: int) -> str | None:
    time_ms = resolve_ms(cell, log_time_ms)
    return None if time_ms is None else format_time(min(time_ms, TIME_MS_MAX))


def _render_row(
    offset: int,
    timestamp: str,
    blob: bytes,
    lane: str,
    key: bytes | None,
    headers: Headers,
    message_id: str | None,
) -> MessageView:
    value, value_encoding = text_or_base64(blob)
    view = MessageView(offset, timestamp, value, lane, message_id=message_id)
    view.value_encoding = value_encoding
    if key is not None:
        view.key, view.key_encoding = text_or_base64(key)
    if headers:
        shown = {name: text_or_base64(blob) for name, blob in headers}
        view.headers = {name: text for name, (text, _) in shown.items()}
        encoded = {name: encoding for name, (_, encoding) in shown.items() if encoding}
        view.header_encodings = encoded or None
    return view


def text_or_base64(blob: bytes) -> tuple[str, str | None]:
    """The text, and None, or base64 and `base64` where the bytes are not UTF-8. Of many bytes it is
    a `LongText`, of which that is found out as it is encoded: such answers are made of `Pieces`."""
    if len(blob) > SLICE_BYTES:
        return cast("str", LongText(blob)), None
    try:
        return blob.decode(), None
    except UnicodeDecodeError:
        return base64.b64encode(blob).decode("ascii"), "base64"
