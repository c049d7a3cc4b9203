"""The columns of a stored batch that the queue looks at; values and headers stay untouched."""

from __future__ import annotations

from goqueue.wire.batch import RecordBatch
from goqueue.wire.layout import HEADER, HEADER_BYTES, Header


def stored_header(batch: memoryview) -> Header:
    """The header of a batch from an applied entry: it was checked before it was appended."""
    _, _, crc, *fields, _reserved = HEADER.unpack_from(batch)
    return Header(crc, *fields)


def stored_lanes(batch: memoryview, header: Header) -> bytes:
    """One byte a record."""
    end = HEADER_BYTES + header.columns_bytes()
    return bytes(batch[end - header.count : end])


def stored_batch(batch: memoryview, header: Header) -> RecordBatch:
    """The batch for reading its other columns; it is copied, not checked again."""
    return RecordBatch(bytes(batch), header)
