"""Messages that outlive the log they were stored in: appended once more, with their old offsets.

Body of a CARRIED entry, for each batch: log time of the original u64, count u32, length u32, the
offsets u64 each, then the batch (little-endian). Rows of one batch have one original log time. What
has no offsets is no batch: the timelines so far of messages in the same body
(`delivery.timeline.message`).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

_PREFIX = struct.Struct("<QII")


@dataclass(frozen=True, slots=True)
class ReappendedBatch:
    """Rows of a stored batch: `offsets[i]` is the offset of row `i`."""

    time_ms: int
    offsets: Sequence[int]
    batch: bytes | memoryview


def encode_reappended(batches: Sequence[ReappendedBatch], stories: bytes = b"") -> bytes:
    """The body of a CARRIED entry, with the timelines of its messages so far."""
    parts: list[bytes | memoryview] = []
    for reappended in batches:
        count = len(reappended.offsets)
        parts.append(_PREFIX.pack(reappended.time_ms, count, len(reappended.batch)))
        parts.append(struct.pack(f"<{count}Q", *reappended.offsets))
        parts.append(reappended.batch)
    if stories:
        parts += (_PREFIX.pack(0, 0, len(stories)), stories)
    return b"".join(parts)


def decode_reappended(body: bytes | memoryview) -> Iterator[ReappendedBatch]:
    """The batches that `encode_reappended` wrote. Raises ValueError or struct.error where it is cut
    short."""
    return (part for part in _parts(body) if part.offsets)


def decode_stories(body: bytes | memoryview) -> Iterator[bytes | memoryview]:
    """The timelines that `encode_reappended` wrote. Raises as `decode_reappended`."""
    return (part.batch for part in _parts(body) if not part.offsets)


def _parts(body: bytes | memoryview) -> Iterator[ReappendedBatch]:
    view = memoryview(body)
    at = 0
    while at < len(view):
        time_ms, count, length = _PREFIX.unpack_from(view, at)
        at += _PREFIX.size
        offsets = struct.unpack_from(f"<{count}Q", view, at)
        at += 8 * count
        if at + length > len(view):
            raise ValueError("a carried body that is cut short")
        yield ReappendedBatch(time_ms, offsets, view[at : at + length])
        at += length


class Held:
    """Offset -> the entry that holds a message which outlived the log before it, or None."""

    def __init__(self, find: Callable[[int], int | None]) -> None:
        self._find = find

    def get(self, offset: int, /) -> int | None:
        return self._find(offset)
