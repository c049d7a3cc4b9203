"""The record batch's header and bounds, and the walk over concatenated batches.

All integers are little-endian. `docs/reference/storage-format.md` describes every byte; the
vectors under `tests/unit/goqueue/vectors/` hold examples. The checksum covers every byte after
itself, so it also guards the header.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import crc32c

from goqueue.wire.errors import BatchError, PayloadTooLarge

BATCH_MEDIA_TYPE: Final = "application/vnd.goqueue.batch"
"""One or more batches, concatenated."""

MAGIC: Final = b"GQB"
VERSION: Final = 1
HEADER: Final = struct.Struct("<3sBIIIQqIHBxQIIIIII")
HEADER_BYTES: Final = 72
CRC_FROM: Final = 8
"""The checksum covers everything from here to the end of the batch."""

RELATIVE_BELOW: Final = 1 << 38
"""A deliver-at or expires-at below this is no moment, but milliseconds after the entry's log time:
a delay must not depend on the producer's clock."""

NONE: Final = 0xFFFF_FFFF
"""The length of a key that is absent, or of a value that is null, unlike an empty one."""
UINT32_MAX: Final = 0xFFFF_FFFF
UINT64_MAX: Final = 0xFFFF_FFFF_FFFF_FFFF
INT64_MAX: Final = 0x7FFF_FFFF_FFFF_FFFF

LANES: Final = ("critical", "high", "normal", "low", "background")
LANE_NORMAL: Final = 2

HAS_DELIVER_AT: Final = 1
HAS_EXPIRES_AT: Final = 2
HAS_HEADERS: Final = 4
HAS_MESSAGE_IDS: Final = 8
HAS_NULLS: Final = 16
_FLAGS_KNOWN: Final = 31

_LENGTH = struct.Struct("<I")
_LENGTH_AT = 8

Buffer = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one batch, checked before anything of that size is allocated."""

    batch_bytes_max: int = 32 * 1024 * 1024
    """Encoded; twice the plain values, so that incompressible ones fit with keys and headers."""
    records_max: int = 100_000
    key_bytes_max: int = 65_535
    """As GoQueue's records have always had it."""
    value_bytes_max: int = 16 * 1024 * 1024
    headers_bytes_max: int = 65_535
    """Encoded headers of one record."""
    message_id_bytes_max: int = 256
    values_plain_bytes_max: int = 16 * 1024 * 1024
    """All values of a batch, decompressed."""


DEFAULT_LIMITS: Final = Limits()


@dataclass(frozen=True, slots=True)
class Header:
    """The fixed part of a batch. Lengths are in bytes; `producer_id` 0 means no producer."""

    crc: int
    length: int
    count: int
    producer_id: int
    base_timestamp_ms: int
    producer_epoch: int
    flags: int
    codec: int
    base_sequence: int
    keys_bytes: int
    headers_bytes: int
    message_ids_bytes: int
    values_bytes: int
    values_plain_bytes: int

    def columns_bytes(self) -> int:
        """All fixed-width columns together."""
        row = 13
        row += 8 * bool(self.flags & HAS_DELIVER_AT) + 8 * bool(self.flags & HAS_EXPIRES_AT)
        row += 4 * bool(self.flags & HAS_HEADERS) + 4 * bool(self.flags & HAS_MESSAGE_IDS)
        return row * self.count


def pack_batch(header: Header, parts: Sequence[bytes]) -> bytes:
    """The batch: the header with its checksum filled in, then the parts."""
    head = HEADER.pack(
        MAGIC, VERSION, 0, header.length, header.count, header.producer_id,
        header.base_timestamp_ms, header.producer_epoch, header.flags, header.codec,
        header.base_sequence, header.keys_bytes, header.headers_bytes, header.message_ids_bytes,
        header.values_bytes, header.values_plain_bytes, 0,
    )  # fmt: skip
    batch = bytearray(b"").join((head, *parts))
    with memoryview(batch) as view:
        _LENGTH.pack_into(batch, 4, crc32c.crc32c(view[CRC_FROM:]))
    return bytes(batch)


def read_header(buffer: Buffer, limits: Limits) -> Header:
    """The header of the one batch that fills the buffer, its checksum and sums verified.

    Raises BatchError if it is not a sound batch, PayloadTooLarge if it is beyond the limits.
    """
    if len(buffer) > limits.batch_bytes_max:
        raise PayloadTooLarge(
            f"a batch of {len(buffer)} bytes: at most {limits.batch_bytes_max}",
            limit=limits.batch_bytes_max,
        )
    if batch_length(buffer) != len(buffer):
        raise BatchError(f"{len(buffer)} bytes where the batch says {batch_length(buffer)}")
    _, _, crc, *fields, reserved = HEADER.unpack_from(buffer)
    header = Header(crc, *fields)
    with memoryview(buffer) as view:
        if crc32c.crc32c(view[CRC_FROM:]) != crc:
            raise BatchError("the checksum does not match")
    if reserved or header.flags & ~_FLAGS_KNOWN:
        raise BatchError("flags of a newer format")
    _check_header(header, limits)
    return header


def _check_header(header: Header, limits: Limits) -> None:
    if header.count == 0:
        raise BatchError("a batch without records")
    if header.count > limits.records_max:
        raise PayloadTooLarge(
            f"{header.count} records in a batch: at most {limits.records_max}",
            limit=limits.records_max,
        )
    if header.values_plain_bytes > limits.values_plain_bytes_max:
        raise PayloadTooLarge(
            f"values of {header.values_plain_bytes} bytes: at most {limits.values_plain_bytes_max}",
            limit=limits.values_plain_bytes_max,
        )
    total = HEADER_BYTES + header.columns_bytes()
    total += header.keys_bytes + header.headers_bytes
    total += header.message_ids_bytes + header.values_bytes
    if total != header.length:
        raise BatchError("the sections do not add up to the batch")
    if header.base_timestamp_ms < 0:
        raise BatchError("a timestamp before 1970")
    if header.producer_id == 0 and (header.producer_epoch or header.base_sequence):
        raise BatchError("a sequence without a producer")


def batch_length(buffer: Buffer, at: int = 0) -> int:
    """The length that the batch starting at `at` states; the batch itself is not checked.

    Raises BatchError if no batch starts there, or less than a header is left.
    """
    if len(buffer) - at < HEADER_BYTES:
        raise BatchError("less than a batch's header")
    if bytes(buffer[at : at + 3]) != MAGIC:
        raise BatchError("no record batch starts here")
    if buffer[at + 3] != VERSION:
        raise BatchError(f"batch format {buffer[at + 3]}: this version reads {VERSION}")
    length: int = _LENGTH.unpack_from(buffer, at + _LENGTH_AT)[0]
    if length < HEADER_BYTES:
        raise BatchError("a batch shorter than its header")
    return length


def split_batches(body: Buffer) -> Iterator[memoryview]:
    """Each of the concatenated batches, unchecked, without copying.

    Raises BatchError where the next one is cut short or does not start.
    """
    view = memoryview(body)
    at = 0
    while at < len(view):
        length = batch_length(view, at)
        if length > len(view) - at:
            raise BatchError("the last batch is cut short")
        yield view[at : at + length]
        at += length
