"""Bodies of a partition's entries: batches of records with their request ids, and trims.

A records body is, for each batch: tag u64, record count u32, length u32 (little-endian), then the
batch as its producer encoded it. Offsets are not stored: the entry has the first, and the counts
add up. The tag is the request's id. A batch with a producer's sequence has none: its tag says how
many numbers of the sequence it covers, where some of its rows were stored before and are left out;
if all of them were, its header alone stands here, and its record count is 0.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from delivery.entries.columns import stored_batch, stored_header
from goqueue.wire.batch import RecordBatch
from goqueue.wire.layout import HAS_MESSAGE_IDS, HEADER, HEADER_BYTES
from goqueue.wire.types import Index, Offset

NO_REQUEST = 0
"""The request id of a batch that has an identity of its own, or none at all."""

_FIRST = Offset(0)
_PREFIX = struct.Struct("<QII")
_TRIM = struct.Struct("<QQ")
_SETTLED_TRIM = struct.Struct("<QQB")


@dataclass(frozen=True, slots=True)
class AppendBatch:
    """One admitted batch on its way into an entry."""

    batch: bytes | memoryview
    count: int
    tag: int

    @classmethod
    def of(cls, batch: RecordBatch, request_id: int) -> AppendBatch:
        """A parsed batch; its request id is left out where a producer's sequence identifies it."""
        return cls(batch.buffer, batch.count, NO_REQUEST if batch.producer_id else request_id)

    @classmethod
    def of_rest(cls, rest: RecordBatch | None, sent: RecordBatch, request_id: int) -> AppendBatch:
        """What is left of the batch that was sent; None where only its sequence is new."""
        if rest is None:
            return cls(sent.buffer[:HEADER_BYTES], 0, sent.count)
        return cls(rest.buffer, rest.count, sent.count if sent.producer_id else request_id)


@dataclass(frozen=True, slots=True)
class ProducerStamp:
    """The identity that a batch carries in its header, and how many sequence numbers it covers."""

    producer_id: int
    epoch: int
    base_sequence: int
    count: int


@dataclass(frozen=True, slots=True)
class AppendedBatch:
    """A batch as found in an entry; `batch` is a view into the entry's body."""

    base_offset: Offset
    count: int
    tag: int
    batch: memoryview

    @property
    def request_id(self) -> int:
        return self.tag if self.tag and not _identity(self.batch)[0] else NO_REQUEST

    def stamp(self) -> ProducerStamp | None:
        """The producer's identity, None for a batch without. Only the header is looked at."""
        producer_id, epoch, base_sequence = _identity(self.batch)
        if not producer_id:
            return None
        return ProducerStamp(producer_id, epoch, base_sequence, self.tag or self.count)

    def message_ids(self) -> list[str | None] | None:
        """The ids of its rows, None for a batch without any, of which only the header is read."""
        header = stored_header(self.batch)
        if not (self.count and header.flags & HAS_MESSAGE_IDS):
            return None
        return stored_batch(self.batch, header).message_ids()


@dataclass(frozen=True, slots=True)
class Trim:
    """The first entry and the first offset that a partition still has. `settled`: only if no group
    has anything to do before it, as the entry is applied."""

    index: Index
    offset: Offset
    settled: bool = False


def encode_records(batches: Sequence[AppendBatch]) -> list[bytes | memoryview]:
    """The body's parts, to be written one after the other; no batch is copied."""
    parts: list[bytes | memoryview] = []
    for batch in batches:
        parts.append(_PREFIX.pack(batch.tag, batch.count, len(batch.batch)))
        parts.append(batch.batch)
    return parts


def decode_records(
    body: bytes | memoryview, base_offset: Offset = _FIRST
) -> Iterator[AppendedBatch]:
    """Each batch of a records body that has records, the first at `base_offset`.

    Raises ValueError where the body is cut short, which a body behind a sound checksum never is.
    """
    return (batch for batch in decode_appended(body, base_offset) if batch.count)


def decode_appended(
    body: bytes | memoryview, base_offset: Offset = _FIRST
) -> Iterator[AppendedBatch]:
    """Each batch of a records body, also those of which only the header is there."""
    view = memoryview(body)
    at, end = 0, len(view)
    offset = base_offset
    while at < end:
        if end - at < _PREFIX.size:
            raise ValueError("a records body that is cut short")
        tag, count, length = _PREFIX.unpack_from(view, at)
        start = at + _PREFIX.size
        at = start + length
        if at > end:
            raise ValueError("a records body that is cut short")
        yield AppendedBatch(offset, count, tag, view[start:at])
        offset = Offset(offset + count)


def encode_trim(index: Index, offset: Offset, *, settled: bool = False) -> bytes:
    """The body of a trim: entries below `index`, and so all offsets below `offset`, may go. With
    `settled` it needs `Feature.TRIMS_OF_SETTLED`."""
    return _SETTLED_TRIM.pack(index, offset, 1) if settled else _TRIM.pack(index, offset)


def decode_trim(body: bytes | memoryview) -> Trim:
    """What `encode_trim` wrote. Raises struct.error on anything shorter."""
    index, offset = _TRIM.unpack_from(body)
    settled = len(body) >= _SETTLED_TRIM.size and bool(body[_TRIM.size])
    return Trim(Index(index), Offset(offset), settled)


def _identity(batch: memoryview) -> tuple[int, int, int]:
    _, _, _, _, _, producer_id, _, epoch, _, _, base_sequence, *_ = HEADER.unpack_from(batch)
    return producer_id, epoch, base_sequence
