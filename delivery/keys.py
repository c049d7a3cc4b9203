"""Keys of stored records as 64-bit hashes, by offset: what `ordering: key` groups go by.

8 bytes a record, and nothing for stretches without keys. Two keys with one hash only wait for
each other.
"""

from __future__ import annotations

import sys
import zlib
from array import array
from collections.abc import Sequence

from crc32c import crc32c

CHUNK = 4096
NO_KEY = 0


def key_hash(key: bytes) -> int:
    """NO_KEY for an empty key, which is none."""
    return crc32c(key) << 32 | zlib.crc32(key)


def key_hashes(keys: Sequence[bytes]) -> array[int]:
    """`key_hash` of many, at the speed of the checksums."""
    halves = array("I", bytes(8 * len(keys)))
    low, high = (0, 1) if sys.byteorder == "little" else (1, 0)
    halves[low::2] = array("I", map(zlib.crc32, keys))
    halves[high::2] = array("I", map(crc32c, keys))
    hashes = array("Q")
    hashes.frombytes(halves.tobytes())
    return hashes


class KeyHashes:
    """Hash of each offset's key; offsets are stored once, in any order."""

    def __init__(self) -> None:
        self._chunks: dict[int, array[int]] = {}

    def stored(self, base: int, keys: Sequence[bytes | None]) -> None:
        """Note the keys of records from `base` on."""
        hashes = key_hashes([key or b"" for key in keys])
        row, count = 0, len(hashes)
        while row < count:
            number, at = divmod(base + row, CHUNK)
            chunk = self._chunks.get(number)
            if chunk is None:
                chunk = self._chunks[number] = array("Q", bytes(8 * CHUNK))
            taken = min(CHUNK - at, count - row)
            chunk[at : at + taken] = hashes[row : row + taken]
            row += taken

    def of(self, offset: int) -> int:
        """NO_KEY where the record has none, or is not known."""
        chunk = self._chunks.get(offset // CHUNK)
        return NO_KEY if chunk is None else chunk[offset % CHUNK]

    def forget_below(self, offset: int, kept: Sequence[int]) -> None:
        """Let go of whole chunks below the offset, but for those of `kept`."""
        held = {kept_offset // CHUNK for kept_offset in kept}
        for number in [n for n in self._chunks if (n + 1) * CHUNK <= offset and n not in held]:
            del self._chunks[number]

    def dump(self) -> list[tuple[int, bytes]]:
        """For a snapshot, in order."""
        return [(number, self._chunks[number].tobytes()) for number in sorted(self._chunks)]

    def load(self, chunks: Sequence[tuple[int, bytes]]) -> None:
        """Replace everything by what `dump` told."""
        self._chunks = {}
        for number, data in chunks:
            chunk = self._chunks[number] = array("Q")
            chunk.frombytes(data)
