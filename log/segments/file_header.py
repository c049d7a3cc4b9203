"""What a segment's files, and those beside it, begin with: 48 bytes that say what they are.

Magic (8), CRC-32C u32 of what follows in the header, format u16, zero u16, first index u64, group
id (20), zero u32.
"""

from __future__ import annotations

import struct

from crc32c import crc32c

from goqueue.wire.types import PartitionId
from log.errors import Damaged, NewerFormat

FILE_HEADER = struct.Struct("<8sIHHQ20sI")
FILE_HEADER_BYTES = FILE_HEADER.size


def header_of(magic: bytes, version: int, first_index: int, partition_id: PartitionId) -> bytes:
    """The header of a file of this kind."""
    rest = struct.pack("<HHQ20sI", version, 0, first_index, partition_id.pack(), 0)
    return magic + struct.pack("<I", crc32c(rest)) + rest


def check_header(found: bytes, expected: bytes, path: str) -> None:
    """Raises Damaged or, where it is sound and of a later format, NewerFormat."""
    if found == expected:
        return
    if len(found) == FILE_HEADER_BYTES:
        magic, crc, version, *_rest = FILE_HEADER.unpack(found)
        known = FILE_HEADER.unpack(expected)
        if magic == known[0] and version > known[2] and crc == crc32c(found[12:]):
            raise NewerFormat(path, version, known[2])
    raise Damaged(path, 0, "bad header")
