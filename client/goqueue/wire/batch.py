"""The record batch: what producers make, brokers store and consumers read, in one form throughout.

A batch is columnar: fixed-width columns, then each column of blobs in one piece. `parse` costs one
checksum; a column is decoded when it is asked for. `encode_columns` and `encode_batch` build one.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise, repeat
from operator import add
from typing import Final, TypeVar

from goqueue.wire.compression import Codec, decompress
from goqueue.wire.encoding import encode_batch, encode_columns
from goqueue.wire.errors import BatchError, PayloadTooLarge
from goqueue.wire.layout import (
    BATCH_MEDIA_TYPE,
    DEFAULT_LIMITS,
    HAS_DELIVER_AT,
    HAS_EXPIRES_AT,
    HAS_HEADERS,
    HAS_MESSAGE_IDS,
    HAS_NULLS,
    HEADER_BYTES,
    INT64_MAX,
    LANE_NORMAL,
    LANES,
    NONE,
    RELATIVE_BELOW,
    Buffer,
    Header,
    Limits,
    batch_length,
    read_header,
    split_batches,
)
from goqueue.wire.records import Headers, Record, decode_headers, decode_text

__all__ = [
    "BATCH_MEDIA_TYPE",
    "DEFAULT",
    "LANES",
    "LANE_NORMAL",
    "BatchError",
    "Codec",
    "Headers",
    "Limits",
    "Record",
    "RecordBatch",
    "Rows",
    "batch_length",
    "encode_batch",
    "encode_columns",
    "resolve_ms",
    "split_batches",
]

DEFAULT: Final = DEFAULT_LIMITS
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Rows:
    """Columns of some rows of a batch. A null value is empty; headers and ids are as they are
    encoded, empty where there are none."""

    values: list[bytes]
    keys: list[bytes | None]
    headers: list[bytes]
    message_ids: list[bytes]


@dataclass(frozen=True, slots=True)
class RecordBatch:
    """An immutable view over one encoded batch whose header and checksum are sound.

    Columns are decoded anew at each call; keep what you need. Every accessor raises BatchError if
    its column is inconsistent, which only a faulty producer can bring about, and never after
    `validate` has passed.
    """

    buffer: bytes
    header: Header
    limits: Limits = field(default=DEFAULT_LIMITS, repr=False)

    @classmethod
    def parse(cls, buffer: Buffer, limits: Limits = DEFAULT_LIMITS) -> RecordBatch:
        """The one batch that fills the buffer; a memoryview or bytearray is copied.

        Checks the header, the checksum and that the sections add up. Raises BatchError, or
        PayloadTooLarge where the batch is beyond the limits.
        """
        header = read_header(buffer, limits)
        if header.codec not in _CODECS:
            raise BatchError(f"unknown codec {header.codec}")
        if header.codec == Codec.NONE and header.values_bytes != header.values_plain_bytes:
            raise BatchError("plain values of two different lengths")
        return cls(bytes(buffer), header, limits)

    @property
    def count(self) -> int:
        return self.header.count

    @property
    def codec(self) -> Codec:
        """How the values are stored; NONE where compressing them was not worth it."""
        return Codec(self.header.codec)

    @property
    def producer_id(self) -> int:
        """0 for a batch without identity."""
        return self.header.producer_id

    @property
    def producer_epoch(self) -> int:
        return self.header.producer_epoch

    @property
    def base_sequence(self) -> int:
        """The producer's number of the first record in this partition; the next follow densely."""
        return self.header.base_sequence

    @property
    def base_timestamp_ms(self) -> int:
        """The earliest timestamp in the batch."""
        return self.header.base_timestamp_ms

    # columns

    def values(self) -> list[bytes]:
        """The values, decompressed; a null one is empty, `nulls` tells which."""
        lengths = self._summed_value_lengths()
        if self.header.codec == Codec.NONE:
            return _cut(self.buffer, self._values_at(), lengths)
        return _cut(self._plain(), 0, lengths)

    def plain_values(self) -> bytes:
        """All values in one piece, decompressed: `rows` cuts them."""
        if self.header.codec == Codec.NONE:
            return self.buffer[self._values_at() :]
        return self._plain()

    def nulls(self) -> frozenset[int]:
        """The rows whose value is null: in a compacted topic, they delete their key."""
        if not self.header.flags & HAS_NULLS:
            return frozenset()
        cells = self._uint32s(self._wide_bytes() + 8 * self.header.count)
        return frozenset(row for row, length in enumerate(cells) if length == NONE)

    def values_or_nulls(self) -> list[bytes | None]:
        """The values, None where one is null."""
        found: list[bytes | None] = list(self.values())
        for row in self.nulls():
            found[row] = None
        return found

    def keys(self) -> list[bytes | None]:
        """The keys; None where a record has none, which is not the same as an empty key."""
        lengths, present = self._summed_key_lengths()
        if not present:
            return [None] * self.count
        found = _cut(self.buffer, HEADER_BYTES + self.header.columns_bytes(), present)
        if len(present) == self.count:
            return list[bytes | None](found)
        rest = iter(found)
        return [None if length == NONE else next(rest) for length in lengths]

    def has_all_keys(self) -> bool:
        """Whether every record has a key, be it an empty one."""
        return NONE not in self._uint32s(self._wide_bytes() + 4 * self.header.count)

    def value_lengths(self) -> tuple[int, ...]:
        """Each value's plain length in bytes, 0 for a null; nothing is decompressed."""
        cells = self._uint32s(self._wide_bytes() + 8 * self.header.count)
        if self.header.flags & HAS_NULLS:
            return tuple(0 if length == NONE else length for length in cells)
        return cells

    def timestamps_ms(self) -> list[int]:
        """The producer's timestamps, Unix milliseconds."""
        deltas = self._uint32s(self._wide_bytes())
        return list(map(add, repeat(self.header.base_timestamp_ms), deltas))

    def lanes(self) -> bytes:
        """One byte a record, from 0 (critical) to 4 (background)."""
        end = HEADER_BYTES + self.header.columns_bytes()
        return self.buffer[end - self.header.count : end]

    def headers(self) -> list[Headers]:
        """The headers of each record, in the producer's order."""
        if not self.header.flags & HAS_HEADERS:
            return [()] * self.header.count
        start = HEADER_BYTES + self.header.columns_bytes() + self.header.keys_bytes
        lengths = self._uint32s(self._wide_bytes() + 12 * self.header.count)
        if sum(lengths) != self.header.headers_bytes:
            raise BatchError("header lengths do not add up")
        return list(map(decode_headers, _cut(self.buffer, start, lengths)))

    def message_ids(self) -> list[str | None]:
        """The producer's own ids, None where there is none."""
        header = self.header
        if not header.flags & HAS_MESSAGE_IDS:
            return [None] * header.count
        ends = self.message_id_ends()
        return [decode_text(self.buffer[a:b]) or None for a, b in pairwise(ends)]

    def message_id_ends(self) -> list[int]:
        """Where the ids' column begins in the buffer, and then where each record's id ends; of a
        batch without ids only the former. Raises BatchError."""
        header = self.header
        start = HEADER_BYTES + header.columns_bytes() + header.keys_bytes + header.headers_bytes
        if not header.flags & HAS_MESSAGE_IDS:
            return [start]
        ends = list(accumulate(self._id_lengths(), initial=start))
        if ends[-1] - start != header.message_ids_bytes:
            raise BatchError("message id lengths do not add up")
        return ends

    def deliver_at(self) -> list[int | None]:
        """When each record may first be delivered, Unix milliseconds; None for at once."""
        return self._times(HAS_DELIVER_AT, 0)

    def expires_at(self) -> list[int | None]:
        """When each record falls due for removal, Unix milliseconds; None for never."""
        before = 8 * self.header.count if self.header.flags & HAS_DELIVER_AT else 0
        return self._times(HAS_EXPIRES_AT, before)

    def records(self) -> list[Record]:
        """All columns, as objects: for readers that want records more than speed."""
        return list(
            map(
                Record,
                self.values_or_nulls(),
                self.keys(),
                self.headers(),
                self.timestamps_ms(),
                self.lanes(),
                self.deliver_at(),
                self.expires_at(),
                self.message_ids(),
            )
        )

    def record(self, row: int, *, with_value: bool = True) -> Record:
        """One row: the others are only counted past, though compressed values come as a whole;
        empty ones, where the value is not wanted."""
        count, header = self.header.count, self.header
        wide, cells = self._wide_bytes(), self._uint32s
        keys, values = cells(wide + 4 * count), self.value_lengths()
        before = keys[:row]
        keys_at = HEADER_BYTES + header.columns_bytes()
        at = keys_at + sum(before) - NONE * before.count(NONE)
        key = None if keys[row] == NONE else self.buffer[at : at + keys[row]]
        headers: Headers = ()
        message_id = None
        start = keys_at + header.keys_bytes
        if header.flags & HAS_HEADERS:
            lengths = cells(wide + 12 * count)
            at = start + sum(lengths[:row])
            headers = decode_headers(self.buffer[at : at + lengths[row]])
        if header.flags & HAS_MESSAGE_IDS:
            lengths = self._id_lengths()
            at = start + header.headers_bytes + sum(lengths[:row])
            message_id = decode_text(self.buffer[at : at + lengths[row]]) or None
        begin, value = sum(values[:row]), b""
        if not with_value:
            pass
        elif header.codec == Codec.NONE:
            begin += self._values_at()
            value = self.buffer[begin : begin + values[row]]
        else:
            value = self._plain()[begin : begin + values[row]]
        return Record(
            None if row in self.nulls() else value,
            key,
            headers,
            header.base_timestamp_ms + cells(wide)[row],
            self.lanes()[row],
            self.deliver_at()[row],
            self.expires_at()[row],
            message_id,
        )

    def rows(self, first: int, last: int, plain: bytes) -> Rows:
        """Some of the rows; of the others nothing is decoded. `plain` is what `plain_values` gave.

        Raises BatchError."""
        header, count, flags = self.header, self.header.count, self.header.flags
        wide, at = self._wide_bytes(), HEADER_BYTES + self.header.columns_bytes()
        lengths = self._summed_value_lengths()
        values = _cut(plain, sum(lengths[:first]), lengths[first:last])
        cells, _ = self._summed_key_lengths()
        begin = at + sum(length for length in cells[:first] if length != NONE)
        wanted = cells[first:last]
        present = iter(_cut(self.buffer, begin, [length for length in wanted if length != NONE]))
        keys = [None if length == NONE else next(present) for length in wanted]
        headers, ids = [b""] * (last - first), [b""] * (last - first)
        at += header.keys_bytes
        if flags & HAS_HEADERS:
            cells = self._uint32s(wide + 12 * count)
            headers = _cut(self.buffer, at + sum(cells[:first]), cells[first:last])
            at += header.headers_bytes
        if flags & HAS_MESSAGE_IDS:
            cells = self._id_lengths()
            ids = _cut(self.buffer, at + sum(cells[:first]), cells[first:last])
        return Rows(values, keys, headers, ids)

    def header_blobs(self) -> list[bytes]:
        """The headers of each record as they are encoded; empty where none has any."""
        if not self.header.flags & HAS_HEADERS:
            return []
        start = HEADER_BYTES + self.header.columns_bytes() + self.header.keys_bytes
        lengths = self._uint32s(self._wide_bytes() + 12 * self.header.count)
        return _cut(self.buffer, start, lengths)

    def message_id_blobs(self) -> list[bytes]:
        """The producer's own ids as they are encoded, empty ones for none; no list where none has
        any."""
        header = self.header
        if not header.flags & HAS_MESSAGE_IDS:
            return []
        start = HEADER_BYTES + header.columns_bytes() + header.keys_bytes + header.headers_bytes
        return _cut(self.buffer, start, self._id_lengths())

    # as a whole

    def validate(self) -> None:
        """Check every column in full, decompressing the values: what a leader does before append.

        After it passes, no accessor raises. Raises BatchError, or PayloadTooLarge where one record
        is beyond the limits.
        """
        header, limits = self.header, self.limits
        if max(self.lanes()) >= len(LANES):
            raise BatchError("an unknown lane")
        if max(self._summed_value_lengths()) > limits.value_bytes_max:
            raise PayloadTooLarge(f"a value beyond {limits.value_bytes_max} bytes")
        if header.flags & HAS_NULLS and not self.nulls():
            raise BatchError("a flag for null values without any")
        if header.codec != Codec.NONE:
            self._plain()
        if max(self._summed_key_lengths()[1], default=0) > limits.key_bytes_max:
            raise PayloadTooLarge(f"a key beyond {limits.key_bytes_max} bytes")
        if header.flags & HAS_HEADERS:
            lengths = self._uint32s(self._wide_bytes() + 12 * header.count)
            if max(lengths) > limits.headers_bytes_max:
                raise PayloadTooLarge(f"headers beyond {limits.headers_bytes_max} bytes")
            self.headers()
        elif header.headers_bytes:
            raise BatchError("headers without their column")
        if header.flags & HAS_MESSAGE_IDS:
            if max(self._id_lengths()) > limits.message_id_bytes_max:
                raise PayloadTooLarge(f"a message id beyond {limits.message_id_bytes_max} bytes")
            self.message_ids()
        elif header.message_ids_bytes:
            raise BatchError("message ids without their column")
        times = (*filter(None, self.deliver_at()), *filter(None, self.expires_at()))
        latest = header.base_timestamp_ms + max(self._uint32s(self._wide_bytes()))
        if max(times, default=0) > INT64_MAX or latest > INT64_MAX:
            raise BatchError("a time out of range")

    def select(self, rows: Sequence[int], *, base_sequence: int | None = None) -> RecordBatch:
        """A new batch of these rows, in this order, with the same codec and producer.

        The base sequence becomes the first row's, unless another is told, so it only stays true for
        a run of rows. Raises BatchError on no rows, IndexError on rows that do not exist.
        """
        header = self.header
        if base_sequence is None:
            has_identity = header.producer_id != 0 and len(rows) > 0
            base_sequence = header.base_sequence + rows[0] if has_identity else 0
        return RecordBatch.parse(
            encode_columns(
                _pick(self.values_or_nulls(), rows),
                _pick(self.keys(), rows),
                timestamps_ms=_pick(self.timestamps_ms(), rows),
                lanes=_pick(self.lanes(), rows),
                headers=_pick(self.headers(), rows),
                deliver_at_ms=_pick(self.deliver_at(), rows),
                expires_at_ms=_pick(self.expires_at(), rows),
                message_ids=_pick(self.message_ids(), rows),
                codec=self.codec,
                producer_id=header.producer_id,
                producer_epoch=header.producer_epoch,
                base_sequence=base_sequence,
                limits=self.limits,
            ),
            self.limits,
        )

    # where columns are: deliver-at and expires-at come first, where there are any

    def _wide_bytes(self) -> int:
        flags = self.header.flags
        wide = bool(flags & HAS_DELIVER_AT) + bool(flags & HAS_EXPIRES_AT)
        return 8 * self.header.count * wide

    def _uint32s(self, at: int) -> tuple[int, ...]:
        return struct.unpack_from(f"<{self.header.count}I", self.buffer, HEADER_BYTES + at)

    def _summed_value_lengths(self) -> tuple[int, ...]:
        lengths = self.value_lengths()
        if sum(lengths) != self.header.values_plain_bytes:
            raise BatchError("value lengths do not add up")
        return lengths

    def _summed_key_lengths(self) -> tuple[tuple[int, ...], Sequence[int]]:
        """All of the column, and the lengths of the keys that are there."""
        lengths = self._uint32s(self._wide_bytes() + 4 * self.header.count)
        present: Sequence[int] = lengths
        if NONE in lengths:
            present = [length for length in lengths if length != NONE]
        if sum(present) != self.header.keys_bytes:
            raise BatchError("key lengths do not add up")
        return lengths, present

    def _values_at(self) -> int:
        return self.header.length - self.header.values_bytes

    def _plain(self) -> bytes:
        block = self.buffer[self._values_at() :]
        return decompress(block, self.codec, self.header.values_plain_bytes)

    def _id_lengths(self) -> tuple[int, ...]:
        columns = 16 if self.header.flags & HAS_HEADERS else 12
        return self._uint32s(self._wide_bytes() + columns * self.header.count)

    def _times(self, flag: int, at: int) -> list[int | None]:
        if not self.header.flags & flag:
            return [None] * self.header.count
        form = f"<{self.header.count}Q"
        return [time or None for time in struct.unpack_from(form, self.buffer, HEADER_BYTES + at)]


def resolve_ms(time_ms: int | None, log_time_ms: int) -> int | None:
    """A deliver-at or expires-at cell as Unix milliseconds, given its entry's log time."""
    if time_ms is None or time_ms >= RELATIVE_BELOW:
        return time_ms
    return log_time_ms + time_ms


_CODECS = frozenset(Codec)


def _cut(blob: bytes, start: int, lengths: Iterable[int]) -> list[bytes]:
    ends = list(accumulate(lengths, initial=start))
    return [blob[a:b] for a, b in pairwise(ends)]


def _pick(column: Sequence[_T], rows: Sequence[int]) -> list[_T]:
    return [column[row] for row in rows]
