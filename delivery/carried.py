"""Messages that outlive the log they were stored in: appended once more, with their old offsets.

Body of a CARRIED entry, for each batch: log time of the original u64, count u32, length u32, the
offsets u64 each, then the batch (little-endian). Rows of one batch have one original log time.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_PREFIX = struct.Struct("<QII")


@dataclass(frozen=True, slots=True)
class CarriedBatch:
    """Rows of a stored batch: `offsets[i]` is the offset of row `i`."""

    time_ms: int
    offsets: Sequence[int]
    batch: bytes | memoryview


def encode_carried(batches: Sequence[CarriedBatch]) -> bytes:
    """The body of a CARRIED entry."""
    parts: list[bytes | memoryview] = []
    for carried in batches:
        count = len(carried.offsets)
        parts.append(_PREFIX.pack(carried.time_ms, count, len(carried.batch)))
        parts.append(struct.pack(f"<{count}Q", *carried.offsets))
        parts.append(carried.batch)
    return b"".join(parts)


def decode_carried(body: bytes | memoryview) -> Iterator[CarriedBatch]:
    """What `encode_carried` wrote. Raises ValueError or struct.error where it is cut short."""
    view = memoryview(body)
    at = 0
    while at < len(view):
        time_ms, count, length = _PREFIX.unpack_from(view, at)
        at += _PREFIX.size
        offsets = struct.unpack_from(f"<{count}Q", view, at)
        at += 8 * count
        if at + length > len(view):
            raise ValueError("a carried body that is cut short")
        yield CarriedBatch(time_ms, offsets, view[at : at + length])
        at += length
