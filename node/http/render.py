"""Messages out: stored batches become JSON, a column at a time.

A value is shown as a string; where it is not UTF-8, as base64 with `value_encoding` saying so. The
timestamp is the entry's log time: it never goes back, so time windows cut exactly between batches.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from itertools import repeat

import msgspec

from goqueue.wire.batch import LANE_NORMAL, LANES, Headers, RecordBatch, resolve_ms
from goqueue.wire.layout import HAS_DELIVER_AT, HAS_EXPIRES_AT, HAS_NULLS
from node.http.broker import Slice, StoredBatch
from node.http.times import TIME_MS_MAX, format_time


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


def cut_slice(found: Slice, offset: int, limit: int, plain_bytes_max: int) -> tuple[list[Cut], int]:
    """The rows at and after `offset`, at most `limit`, and the offset where reading goes on.

    Stops before a batch whose values would take the answer over `plain_bytes_max` decompressed; the
    first batch is always there.
    """
    cuts: list[Cut] = []
    for stored in found.batches:
        batch = RecordBatch.parse(stored.batch)
        first = max(0, offset - stored.base_offset)
        if first >= batch.count:
            continue
        plain_bytes_max -= batch.header.values_plain_bytes
        if cuts and plain_bytes_max < 0:
            return cuts, stored.base_offset
        last = min(batch.count, first + limit)
        cuts.append(Cut(stored, batch, first, last))
        limit -= last - first
        if limit == 0:
            return cuts, stored.base_offset + last
    return cuts, found.next_offset


def render(cuts: Sequence[Cut]) -> list[MessageView]:
    """Every row of every cut, in order."""
    views: list[MessageView] = []
    for cut in cuts:
        begun = len(views)
        views += _render_cut(cut)
        if cut.batch.header.flags & HAS_NULLS:
            for row in cut.batch.nulls():
                if cut.first <= row < cut.last:
                    views[begun + row - cut.first].value = None
    return views


def _render_cut(cut: Cut) -> Iterator[MessageView]:
    batch, rows = cut.batch, slice(cut.first, cut.last)
    base = cut.stored.base_offset
    offsets = range(base + cut.first, base + cut.last)
    timestamp = repeat(format_time(cut.stored.time_ms))
    blobs, keys, lanes = batch.values()[rows], batch.keys()[rows], batch.lanes()[rows]
    header_column, ids = batch.headers()[rows], batch.message_ids()[rows]
    names = (
        repeat(LANES[LANE_NORMAL])
        if lanes.count(LANE_NORMAL) == len(lanes)
        else map(LANES.__getitem__, lanes)
    )
    timed = batch.header.flags & (HAS_DELIVER_AT | HAS_EXPIRES_AT)
    plain = not timed and not any(header_column) and ids.count(None) == len(ids)
    try:
        values = list(map(bytes.decode, blobs))
        texts = [None if key is None else key.decode() for key in keys]
    except UnicodeDecodeError:
        plain = False
        values, texts = [], []
    if plain:
        if keys.count(None) == len(keys):
            return map(MessageView, offsets, timestamp, values, names)
        return map(MessageView, offsets, timestamp, values, names, texts)
    views = map(_render_row, offsets, timestamp, blobs, names, keys, header_column, ids)
    return _timed(views, cut) if timed else views


def _timed(views: Iterator[MessageView], cut: Cut) -> Iterator[MessageView]:
    """The views with the moments that their batch gives, resolved by its log time."""
    rows, time_ms = slice(cut.first, cut.last), cut.stored.time_ms
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
    """The text, and None, or base64 and `base64` where the bytes are not UTF-8."""
    try:
        return blob.decode(), None
    except UnicodeDecodeError:
        return base64.b64encode(blob).decode("ascii"), "base64"
