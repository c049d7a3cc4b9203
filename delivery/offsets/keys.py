"""Keys of stored records as 64-bit hashes, by offset: what `ordering: key` groups go by.

8 bytes a record, and nothing for stretches without keys. Two keys with one hash only wait for
each other.
"""

from __future__ import annotations

import sys
import zlib
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import compress

from crc32c import crc32c

from delivery.offsets.bitmaps import BitMap64, span

CHUNK = 4096
NO_KEY = 0
_KEPT = -1
"""In a snapshot, instead of a chunk's number: offsets that are kept alone, then their hashes."""


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


def places(column: bytes, cell: bytes) -> list[int]:
    """Where a column of cells of one width holds this one."""
    found: list[int] = []
    width = len(cell)
    at = column.find(cell)
    while at >= 0:
        row, beside = divmod(at, width)
        if not beside:
            found.append(row)
        at = column.find(cell, at + (1 if beside else width))
    return found


class KeyHashes:
    """Hash of each offset's key; offsets are stored once, in any order."""

    def __init__(self) -> None:
        self._chunks: dict[int, array[int]] = {}
        self._kept_offsets = array("Q")
        """What is left of chunks that have gone, in order, with a hash each."""
        self._kept_hashes = array("Q")

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
        if chunk is not None:
            return chunk[offset % CHUNK]
        at = bisect_left(self._kept_offsets, offset)
        found = at < len(self._kept_offsets) and self._kept_offsets[at] == offset
        return self._kept_hashes[at] if found else NO_KEY

    def stretches(self, hash_: int, below: int) -> Iterator[list[int]]:
        """Offsets below this one whose key has this hash, newest first: one list a stretch of
        `CHUNK` offsets, each found in well under a millisecond; the kept ones come last."""
        wanted = hash_.to_bytes(8, sys.byteorder)
        for number in sorted(self._chunks, reverse=True):
            chunk = self._chunks.get(number)
            if chunk is None or number * CHUNK >= below:
                continue
            rows = places(chunk.tobytes(), wanted)
            yield [at for row in reversed(rows) if (at := number * CHUNK + row) < below]
        kept = places(self._kept_hashes.tobytes(), wanted)
        yield [at for row in reversed(kept) if (at := self._kept_offsets[row]) < below]

    def forget_below(self, offset: int, kept: BitMap64) -> None:
        """Let go of whole chunks below the offset, but for what they hold of `kept`."""
        gone = sorted(n for n in self._chunks if (n + 1) * CHUNK <= offset)
        if not gone and not self._kept_offsets:
            return
        kept = kept & span(0, offset // CHUNK * CHUNK)
        stay = bytes(map(kept.__contains__, self._kept_offsets))
        offsets = array("Q", compress(self._kept_offsets, stay))
        hashes = array("Q", compress(self._kept_hashes, stay))
        for number in gone:
            base = number * CHUNK
            rows = (kept & span(base, base + CHUNK)).to_array()
            chunk = self._chunks.pop(number)
            offsets.extend(rows)
            hashes.extend(array("Q", [chunk[row - base] for row in rows]))
        self._kept_offsets, self._kept_hashes = offsets, hashes

    def dump(self) -> list[tuple[int, bytes]]:
        """For a snapshot, in order."""
        chunks = [(number, self._chunks[number].tobytes()) for number in sorted(self._chunks)]
        if self._kept_offsets:
            chunks.append((_KEPT, self._kept_offsets.tobytes() + self._kept_hashes.tobytes()))
        return chunks

    def load(self, chunks: Sequence[tuple[int, bytes]]) -> None:
        """Replace everything by what `dump` told."""
        self._chunks = {}
        self._kept_offsets, self._kept_hashes = array("Q"), array("Q")
        for number, data in chunks:
            if number == _KEPT:
                self._kept_offsets.frombytes(data[: len(data) // 2])
                self._kept_hashes.frombytes(data[len(data) // 2 :])
                continue
            chunk = self._chunks[number] = array("Q")
            chunk.frombytes(data)
