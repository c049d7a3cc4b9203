"""Stored batches into Arrow columns, by whole buffers: the work per message happens in numpy.

Each batch's header and checksum are checked as the library checks them, and that each column adds
up; what a column holds was checked by the leader before it was stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import pyarrow as pa

from goqueue.errors import BatchError
from goqueue.wire.compression import Codec, decompress
from goqueue.wire.layout import (
    DEFAULT_LIMITS,
    HAS_DELIVER_AT,
    HAS_EXPIRES_AT,
    HAS_HEADERS,
    HAS_MESSAGE_IDS,
    HEADER_BYTES,
    LANES,
    NONE,
    RELATIVE_BELOW,
    Header,
    read_header,
)
from goqueue.wire.stream import BatchFrame
from pipeline.source.header_columns import Numbers, StoredHeaders

PLAIN_BYTES: Final = 8 << 20
"""An Arrow batch is closed when its frames hold this many bytes, decompressed."""
ROWS: Final = 65_536
"""Or when they hold so many messages."""
LOG_APPEND_TIME: Final = 1
"""As Kafka's timestampType has it."""
TIMESTAMP_MS_MAX: Final = (2**63 - 1) // 1000
"""The latest moment that a timestamp in microseconds holds."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A frame whose batch has been found sound, with the batch's header."""

    frame: BatchFrame
    header: Header

    @classmethod
    def parse(cls, frame: BatchFrame) -> Stored:
        """Raises BatchError for a batch that is damaged."""
        header = read_header(frame.batch, DEFAULT_LIMITS)
        try:
            codec = Codec(header.codec)
        except ValueError:
            raise BatchError(f"unknown codec {header.codec}") from None
        if codec is Codec.NONE and header.values_bytes != header.values_plain_bytes:
            raise BatchError("plain values of two different lengths")
        return cls(frame, header)

    @property
    def plain_bytes(self) -> int:
        """About what it takes in Arrow."""
        header = self.header
        return header.length - header.values_bytes + header.values_plain_bytes

    def values(self) -> bytes | memoryview:
        """All values, plain."""
        block = self.section(self.header.length - self.header.values_bytes)
        if self.header.codec == Codec.NONE:
            return block
        return decompress(bytes(block), Codec(self.header.codec), self.header.values_plain_bytes)

    def section(self, at: int, length: int | None = None) -> memoryview:
        view = memoryview(self.frame.batch)
        return view[at:] if length is None else view[at : at + length]


def record_batches(
    frames: Iterable[BatchFrame], place: Place, schema: pa.Schema, first: int, end: int
) -> Iterator[pa.RecordBatch]:
    """The messages at offsets from `first` up to `end`, in columns of this schema.

    Frames in order of their offsets. Raises BatchError where one is damaged.
    """
    held: list[Stored] = []
    held_bytes = held_rows = 0
    for frame in frames:
        if frame.base_offset >= end:
            break
        stored = Stored.parse(frame)
        held.append(stored)
        held_bytes += stored.plain_bytes
        held_rows += stored.header.count
        if held_bytes >= PLAIN_BYTES or held_rows >= ROWS:
            yield from _cut(held, place, schema, first, end)
            held, held_bytes, held_rows = [], 0, 0
    yield from _cut(held, place, schema, first, end)


@dataclass(frozen=True, slots=True)
class Place:
    """Where messages stand: the columns that are the same for all."""

    topic: str
    partition: int


def _cut(
    held: Sequence[Stored], place: Place, schema: pa.Schema, first: int, end: int
) -> Iterator[pa.RecordBatch]:
    if not held:
        return
    columns = Columns(held, place)
    offsets = columns.offsets
    low, high = np.searchsorted(offsets, [first, end])
    if low >= high:
        return
    arrays = [BUILDERS[field.name](columns, field.type) for field in schema]
    batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
    yield batch.slice(int(low), int(high - low))


class Columns:
    """The columns of some stored batches, each made when it is asked for."""

    def __init__(self, held: Sequence[Stored], place: Place) -> None:
        self._held = held
        self._place = place
        self._counts = np.array([stored.header.count for stored in held], np.int64)
        self._starts = np.concatenate(([0], np.cumsum(self._counts)[:-1]))
        self.rows = int(self._counts.sum())

    # of numbers

    @cached_property
    def offsets(self) -> Numbers:
        bases = np.array([stored.frame.base_offset for stored in self._held], np.int64)
        return np.repeat(bases - self._starts, self._counts) + np.arange(self.rows)

    @cached_property
    def log_times_ms(self) -> Numbers:
        times = np.array([stored.frame.time_ms for stored in self._held], np.int64)
        return np.repeat(times, self._counts)

    def offset(self, type_: pa.DataType) -> pa.Array:
        return pa.array(self.offsets, type_)

    def partition(self, type_: pa.DataType) -> pa.Array:
        return pa.array(np.full(self.rows, self._place.partition, np.int32), type_)

    def timestamp(self, type_: pa.DataType) -> pa.Array:
        return _timestamps(self.log_times_ms, None, type_)

    def timestamp_type(self, type_: pa.DataType) -> pa.Array:
        return pa.array(np.full(self.rows, LOG_APPEND_TIME, np.int32), type_)

    def log_time_ms(self, type_: pa.DataType) -> pa.Array:
        return pa.array(self.log_times_ms, type_)

    def published_ms(self, type_: pa.DataType) -> pa.Array:
        bases = np.array([stored.header.base_timestamp_ms for stored in self._held], np.int64)
        return pa.array(np.repeat(bases, self._counts) + self._lengths(0), type_)

    def deliver_at(self, type_: pa.DataType) -> pa.Array:
        if not self._any(HAS_DELIVER_AT):
            return pa.nulls(self.rows, type_)
        return _timestamps(*self._moments(HAS_DELIVER_AT), type_)

    def deliver_at_ms(self, type_: pa.DataType) -> pa.Array:
        moments, missing = self._moments(HAS_DELIVER_AT)
        return pa.array(moments, type_, mask=missing)

    def expires_at_ms(self, type_: pa.DataType) -> pa.Array:
        moments, missing = self._moments(HAS_EXPIRES_AT)
        return pa.array(moments, type_, mask=missing)

    def attempts(self, type_: pa.DataType) -> pa.Array:
        return pa.nulls(self.rows, type_)

    # of texts and bytes

    def topic(self, type_: pa.DataType) -> pa.Array:
        name = self._place.topic.encode()
        lengths = np.full(self.rows, len(name), np.int64)
        return _blobs(lengths, name * self.rows, None, type_)

    def lane(self, type_: pa.DataType) -> pa.Array:
        parts = [
            stored.section(HEADER_BYTES + stored.header.columns_bytes() - count, count)
            for stored, count in zip(self._held, self._counts, strict=True)
        ]
        codes = np.frombuffer(b"".join(parts), np.uint8)
        if codes.max() >= len(LANES):
            raise BatchError("an unknown lane")
        names = pa.array(LANES, type_)
        return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int8)), names).cast(type_)

    def value(self, type_: pa.DataType) -> pa.Array:
        lengths = self._lengths(8)
        missing = lengths == NONE
        lengths[missing] = 0
        self._check(lengths, "value", lambda header: header.values_plain_bytes)
        blob = b"".join([stored.values() for stored in self._held])
        return _blobs(lengths, blob, missing, type_)

    def key(self, type_: pa.DataType) -> pa.Array:
        lengths = self._lengths(4)
        missing = lengths == NONE
        lengths[missing] = 0
        self._check(lengths, "key", lambda header: header.keys_bytes)
        return _blobs(lengths, self._section(_keys_at, _keys_bytes), missing, type_)

    def message_id(self, type_: pa.DataType) -> pa.Array:
        if not self._any(HAS_MESSAGE_IDS):
            return pa.nulls(self.rows, type_)
        parts = []
        for stored in self._held:
            flags = stored.header.flags
            at = 16 if flags & HAS_HEADERS else 12
            parts.append(self._cells(stored, at) if flags & HAS_MESSAGE_IDS else None)
        lengths = self._joined(parts)
        self._check(lengths, "message id", lambda header: header.message_ids_bytes)
        blob = self._section(_message_ids_at, lambda header: header.message_ids_bytes)
        return _blobs(lengths, blob, lengths == 0, type_)

    def headers(self, type_: pa.DataType) -> pa.Array:
        return self._headers.column(type_)

    def trace_id(self, type_: pa.DataType) -> pa.Array:
        if not self._any(HAS_HEADERS):
            return pa.nulls(self.rows, type_)
        ids, missing = self._headers.trace_ids()
        lengths = np.where(missing, 0, ids.shape[1])
        return _blobs(lengths, ids[~missing].tobytes(), missing, type_)

    @cached_property
    def _headers(self) -> StoredHeaders:
        parts = [
            self._cells(stored, 12) if stored.header.flags & HAS_HEADERS else None
            for stored in self._held
        ]
        lengths = self._joined(parts)
        self._check(lengths, "header", lambda header: header.headers_bytes)
        return StoredHeaders(lengths, self._section(_headers_at, lambda h: h.headers_bytes))

    # where they lie

    def _any(self, flag: int) -> bool:
        return any(stored.header.flags & flag for stored in self._held)

    def _lengths(self, at: int) -> Numbers:
        return np.concatenate([self._cells(stored, at) for stored in self._held]).astype(np.int64)

    def _cells(self, stored: Stored, at: int) -> Numbers:
        """One of the columns of four bytes; `at` counts bytes a row."""
        header = stored.header
        wide = bool(header.flags & HAS_DELIVER_AT) + bool(header.flags & HAS_EXPIRES_AT)
        begin = HEADER_BYTES + (8 * wide + at) * header.count
        return np.frombuffer(stored.frame.batch, "<u4", header.count, begin)

    def _joined(self, parts: Sequence[Numbers | None]) -> Numbers:
        """The column, 0 where a batch has none."""
        filled = [
            np.zeros(count, np.int64) if part is None else part
            for part, count in zip(parts, self._counts, strict=True)
        ]
        return np.concatenate(filled).astype(np.int64)

    def _moments(self, flag: int) -> tuple[Numbers, Numbers]:
        """Unix milliseconds, delays resolved by the log's time; and which rows have none."""
        parts = []
        for stored in self._held:
            header, at = stored.header, HEADER_BYTES
            if flag == HAS_EXPIRES_AT and header.flags & HAS_DELIVER_AT:
                at += 8 * header.count
            has = header.flags & flag
            parts.append(
                np.frombuffer(stored.frame.batch, "<i8", header.count, at) if has else None
            )
        cells = self._joined(parts)
        relative = cells < RELATIVE_BELOW
        return np.where(relative, cells + self.log_times_ms, cells), cells == 0

    def _check(self, lengths: Numbers, what: str, told: Callable[[Header], int]) -> None:
        """That the lengths of each batch add up to what its header says."""
        sums = np.add.reduceat(lengths, self._starts)
        if not np.array_equal(sums, [told(stored.header) for stored in self._held]):
            raise BatchError(f"{what} lengths do not add up")

    def _section(self, at: Callable[[Header], int], length: Callable[[Header], int]) -> bytes:
        return b"".join(
            [stored.section(at(stored.header), length(stored.header)) for stored in self._held]
        )


BUILDERS: Final[dict[str, Callable[[Columns, pa.DataType], pa.Array]]] = {
    "key": Columns.key,
    "value": Columns.value,
    "topic": Columns.topic,
    "partition": Columns.partition,
    "offset": Columns.offset,
    "timestamp": Columns.timestamp,
    "timestampType": Columns.timestamp_type,
    "headers": Columns.headers,
    "message_id": Columns.message_id,
    "lane": Columns.lane,
    "deliver_at": Columns.deliver_at,
    "trace_id": Columns.trace_id,
    "attempts": Columns.attempts,
    "log_time_ms": Columns.log_time_ms,
    "published_ms": Columns.published_ms,
    "deliver_at_ms": Columns.deliver_at_ms,
    "expires_at_ms": Columns.expires_at_ms,
}
"""How each of `pipeline.source.columns` is made."""


def _keys_at(header: Header) -> int:
    return HEADER_BYTES + header.columns_bytes()


def _keys_bytes(header: Header) -> int:
    return header.keys_bytes


def _headers_at(header: Header) -> int:
    return _keys_at(header) + header.keys_bytes


def _message_ids_at(header: Header) -> int:
    return _headers_at(header) + header.headers_bytes


def _timestamps(times_ms: Numbers, missing: Numbers | None, type_: pa.DataType) -> pa.Array:
    micros = np.minimum(times_ms, TIMESTAMP_MS_MAX) * 1000
    return pa.array(micros, pa.int64(), mask=missing).view(type_)


def _blobs(
    lengths: Numbers,
    blob: bytes,
    missing: Numbers | None,
    type_: pa.DataType,
) -> pa.Array:
    """Binary or string cells that lie one behind the other in the blob."""
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    validity = None
    if missing is not None and missing.any():
        validity = pa.py_buffer(np.packbits(~missing, bitorder="little").tobytes())
    buffers = [validity, pa.py_buffer(offsets), pa.py_buffer(blob)]
    return pa.Array.from_buffers(type_, len(lengths), buffers)
