"""The binary answer to a read: stored batches, each behind the offset and time it was given.

A frame is base offset (u64), log time in Unix milliseconds (u64), length (u32), then the batch.
Frames follow each other to the end of the body; they are as long as the batch says and carry no
checksum of their own, because the batch has one.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from goqueue.wire.errors import BatchError
from goqueue.wire.layout import Buffer
from goqueue.wire.types import Offset

NEXT_OFFSET_HEADER = "X-GoQueue-Next-Offset"
"""Where reading goes on."""
LOG_START_HEADER = "X-GoQueue-Log-Start"
END_OFFSET_HEADER = "X-GoQueue-End-Offset"
TOPIC_ID_HEADER = "X-GoQueue-Topic-Id"
"""A topic that was deleted and created again has another."""
STALE_HEADER = "X-GoQueue-Stale"
"""`true` where no leader has confirmed that there is no more; else it is not there."""

FRAME_HEADER_BYTES = 20
_FRAME = struct.Struct("<QQI")


@dataclass(frozen=True, slots=True)
class BatchFrame:
    """A batch whose rows have the offsets `base_offset`, `base_offset + 1`, and so on.

    `time_ms` is the log time that all its messages share. The batch is not parsed yet.
    """

    base_offset: Offset
    time_ms: int
    batch: bytes | memoryview


def frame_header(base_offset: int, time_ms: int, batch_bytes: int) -> bytes:
    """What stands before a batch of this length."""
    return _FRAME.pack(base_offset, time_ms, batch_bytes)


def encode_frame(frame: BatchFrame) -> bytes:
    """The frame; to send many without copying, use `frame_header` and the batches."""
    return frame_header(frame.base_offset, frame.time_ms, len(frame.batch)) + frame.batch


def decode_frames(body: Buffer) -> Iterator[BatchFrame]:
    """Every frame of a body, without copying. Raises BatchError where one is cut short."""
    view = memoryview(body)
    at = 0
    while at < len(view):
        if len(view) - at < FRAME_HEADER_BYTES:
            raise BatchError("a frame is cut short")
        base_offset, time_ms, length = _FRAME.unpack_from(view, at)
        at += FRAME_HEADER_BYTES
        if len(view) - at < length:
            raise BatchError("a frame is cut short")
        yield BatchFrame(Offset(base_offset), time_ms, view[at : at + length])
        at += length
