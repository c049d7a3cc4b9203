"""Frames read from a segment's file, one after the other, as far as they are sound."""

from __future__ import annotations

from collections.abc import Iterator

from log.disk.descriptors import Descriptors
from log.entry import FRAME_BYTES_MAX, HEADER_BYTES, Entry, decode_frame, frame_length
from log.errors import Damaged


def sound_frames(
    files: Descriptors, path: str, index: int, position: int, chunk_bytes: int
) -> Iterator[Entry]:
    """Entries of consecutive indexes from this position, until one is not sound, or not there.

    The file is read so many bytes at a time, or more for a longer frame. Raises OSError.
    """
    disk = files.disk
    buffer, at = b"", 0
    while True:
        length = frame_length(buffer, at)
        if length == 0 or length > len(buffer) - at:
            want = max(chunk_bytes, HEADER_BYTES, length)
            if length > FRAME_BYTES_MAX:
                return
            try:
                with files.borrow(path) as handle:
                    buffer, at = disk.pread(handle, want, position), 0
            except FileNotFoundError:
                return
            length = frame_length(buffer)
            if length > len(buffer) and HEADER_BYTES < length <= FRAME_BYTES_MAX:
                with files.borrow(path) as handle:
                    buffer = disk.pread(handle, length, position)
        try:
            entry = decode_frame(buffer, at, name=path)
        except Damaged:
            return
        if entry.index != index:
            return
        yield entry
        index += 1
        at += length
        position += length
