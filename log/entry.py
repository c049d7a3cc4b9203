"""An entry and its frame: the one encoding that log, segments and peers share.

Frame, little-endian: length u32 (whole frame), CRC-32C u32 (of all that follows), index u64,
term u64, time_ms u64, base_offset u64, record_count u32, kind u8, flags u8, voters u8, lag u8;
then `voters` matched indexes u64; then the body. Flags: `HAS_NEW_SEGMENT`. Lag: after what time,
by `LAGS_MS`, the entry before was committed, if it was by then; 0 where that is not told. A frame
is encoded once, by the leader, and never again: so the segments of all replicas are equal byte for
byte.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum

from crc32c import crc32c

from goqueue.wire.types import Index, Offset, Term
from log.errors import FrameDamaged

HEADER = struct.Struct("<IIQQQQIBBBB")
HEADER_BYTES = HEADER.size
FRAME_BYTES_MAX = 64 << 20
"""A length beyond this is damage, and nothing of that size is ever allocated for it."""

LAGS_MS = (*range(33), *(int(32 * 1.06**step) for step in range(1, 223)))
"""What lag 1 stands for, and so on: exact at first, then to within 6 %, up to 3.6 hours."""

HAS_NEW_SEGMENT = 1
"""A flag: on every replica a segment begins with this entry, so that those before it may go."""

_LAG_AT = HEADER_BYTES - 1
_FLAGS_AT = HEADER_BYTES - 3
_REST = struct.Struct("<QQQQIBBBB")
_LENGTH = struct.Struct("<I")
_LENGTH_CRC = struct.Struct("<II")
_CRC_FROM = 8
_VOTERS_MAX = 255


class EntryKind(IntEnum):
    """What an entry's body means. Unknown numbers are kept: the state machine judges them."""

    NOOP = 0
    VOTERS = 1
    RECORDS = 2
    TRIM = 3
    COMMAND = 4
    QUEUE = 5
    CARRIED = 6
    KEPT = 7
    COMPACT = 8


@dataclass(slots=True)
class Entry:
    """One Raft entry, decoded; `frame` is its encoded form, `body` a view into it."""

    index: Index
    term: Term
    time_ms: int
    kind: int
    base_offset: Offset
    record_count: int
    matches: tuple[Index, ...]
    body: bytes | memoryview
    frame: bytes

    @property
    def crc(self) -> int:
        """The frame's CRC-32C: with index and term it identifies the entry among replicas."""
        return int.from_bytes(self.frame[4:8], "little")

    @property
    def begins_segment(self) -> bool:
        """Whether no entry before it stands in its segment."""
        return bool(self.frame[_FLAGS_AT] & HAS_NEW_SEGMENT)

    @property
    def lag_ms(self) -> int | None:
        """So long at most after its own time the entry before this one was committed; None where
        the frame does not tell."""
        lag = self.frame[_LAG_AT]
        return LAGS_MS[lag - 1] if lag else None


def encode_frame(
    *,
    index: int,
    term: int,
    time_ms: int,
    kind: int,
    body: bytes | memoryview | Sequence[bytes | memoryview] = b"",
    base_offset: int = 0,
    record_count: int = 0,
    matches: Sequence[int] = (),
    flags: int = 0,
    lag_ms: int | None = None,
) -> bytes:
    """The frame's bytes. Raises ValueError where it would be longer than FRAME_BYTES_MAX."""
    if not isinstance(body, bytes | memoryview):
        body = b"".join(body)
    voters = len(matches)
    length = HEADER_BYTES + 8 * voters + len(body)
    if length > FRAME_BYTES_MAX or voters > _VOTERS_MAX:
        raise ValueError(f"a frame of {length} bytes and {voters} voters is too large")
    lag = 0 if lag_ms is None else bisect_left(LAGS_MS, lag_ms) + 1
    lag = lag if lag <= len(LAGS_MS) else 0
    rest = _REST.pack(index, term, time_ms, base_offset, record_count, kind, flags, voters, lag)
    if voters:
        rest += struct.pack(f"<{voters}Q", *matches)
    crc = crc32c(body, crc32c(rest))
    return b"".join((_LENGTH_CRC.pack(length, crc), rest, body))


def make_entry(
    *,
    index: int,
    term: int,
    time_ms: int,
    kind: int,
    body: bytes | memoryview | Sequence[bytes | memoryview] = b"",
    base_offset: int = 0,
    record_count: int = 0,
    matches: Sequence[int] = (),
    flags: int = 0,
    lag_ms: int | None = None,
) -> Entry:
    """A new entry together with its frame."""
    frame = encode_frame(
        index=index,
        term=term,
        time_ms=time_ms,
        kind=kind,
        body=body,
        base_offset=base_offset,
        record_count=record_count,
        matches=matches,
        flags=flags,
        lag_ms=lag_ms,
    )
    return Entry(
        Index(index),
        Term(term),
        time_ms,
        kind,
        Offset(base_offset),
        record_count,
        tuple(Index(match) for match in matches),
        memoryview(frame)[HEADER_BYTES + 8 * len(matches) :],
        frame,
    )


def frame_length(buffer: bytes | memoryview, at: int = 0) -> int:
    """The length that the frame at this position claims; 0 where not even that is there."""
    if len(buffer) - at < HEADER_BYTES:
        return 0
    length: int = _LENGTH.unpack_from(buffer, at)[0]
    return length


def decode_frame(buffer: bytes | memoryview, at: int = 0, *, name: str = "frame") -> Entry:
    """The entry at this position, its bytes copied out of the buffer.

    Raises FrameDamaged (naming `name`) where the frame is cut short or its checksum is wrong.
    """
    if len(buffer) - at < HEADER_BYTES:
        raise FrameDamaged(name, at, "cut short")
    length, crc, index, term, time_ms, base, count, kind, _flags, voters, _pad = HEADER.unpack_from(
        buffer, at
    )
    body_at = HEADER_BYTES + 8 * voters
    if length < body_at or length > len(buffer) - at:
        raise FrameDamaged(name, at, f"length {length} is impossible")
    frame = bytes(buffer[at : at + length])
    view = memoryview(frame)
    if crc32c(view[_CRC_FROM:]) != crc:
        raise FrameDamaged(name, at, "checksum mismatch")
    matches = struct.unpack_from(f"<{voters}Q", frame, HEADER_BYTES) if voters else ()
    return Entry(index, term, time_ms, kind, base, count, matches, view[body_at:], frame)


def frames_after(index: int, entries: Sequence[Entry]) -> list[bytes]:
    """The frames of entries that follow this index without a gap. Raises ValueError on a gap."""
    frames = []
    for entry in entries:
        if entry.index != index + 1:
            raise ValueError(f"entry {entry.index} does not follow {index}")
        index += 1
        frames.append(entry.frame)
    return frames


def decode_frames(buffer: bytes | memoryview, *, name: str = "frames") -> Iterator[Entry]:
    """Every entry of concatenated frames. Raises FrameDamaged as `decode_frame` does."""
    at = 0
    while at < len(buffer):
        entry = decode_frame(buffer, at, name=name)
        yield entry
        at += len(entry.frame)
