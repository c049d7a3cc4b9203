"""Which entries of one segment name which messages, on disk: made from the segment, and made again
from it.

The file `<first index>.mentions` stands beside the segment: a header as of the segment's other
files, then blocks, one for a run of entries, appended as the segment grows. A block is its head, a
table, and rows u64 in order, in chunks of 256. Head, little-endian: magic (4), CRC-32C u32 of what
follows in the head, first and last index u64, term u64 and CRC u32 of the last entry, number of
rows u32, lowest and highest row u64, length of the table u32, CRC-32C u32 of the table. The table:
for each chunk its first row u64, then for each its CRC-32C u32; the rest is what stands apart,
as MessagePack.

What rows mean is not this file's affair (`delivery.mentions`). Nothing here is synced and nothing
depends on it: a block that is torn or damaged ends the file for those who read it, and what it
covered is made again.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from contextlib import suppress
from typing import NamedTuple

from crc32c import crc32c

from goqueue.wire.types import GroupId, Index
from log.descriptors import Descriptors
from log.errors import Damaged
from log.segment import FILE_HEADER_BYTES

SUFFIX = ".mentions"
FORMAT = 1
CHUNK_ROWS = 256
ROWS_MAX = 1 << 22
"""Rows of a block: more is damage, and nothing of that size is allocated for it."""
APART_BYTES_MAX = 16 << 20

_MAGIC = b"GQ-MEN\r\n"
_BLOCK_MAGIC = b"MENB"
_REST = struct.Struct("<QQQIIQQII")
_HEAD_BYTES = 8 + _REST.size
_ROW_BYTES = 8


class Block(NamedTuple):
    """A run of entries, whose table begins at `at` in the file."""

    first_index: int
    last_index: int
    term: int
    crc: int
    """Of the last entry."""
    rows: int
    low: int
    high: int
    table_bytes: int
    table_crc: int
    at: int

    @property
    def rows_at(self) -> int:
        return self.at + self.table_bytes

    @property
    def end(self) -> int:
        return self.rows_at + self.rows * _ROW_BYTES

    @property
    def chunks(self) -> int:
        return -(-self.rows // CHUNK_ROWS)

    @property
    def has_apart(self) -> bool:
        """Whether anything stands apart from the rows."""
        return self.table_bytes > 12 * self.chunks


class Run(NamedTuple):
    """What a block is of: its entries, and the last one's term and CRC, which identify it."""

    first_index: int
    last_index: int
    term: int
    crc: int


class MentionFile:
    """One segment's file. One thread at a time writes; any reads what was written before."""

    def __init__(self, files: Descriptors, base: str, group: GroupId, first_index: Index) -> None:
        self.first_index = first_index
        self.path = base + SUFFIX
        self.blocks: tuple[Block, ...] = ()
        self.size_bytes = 0
        self._files = files
        rest = struct.pack("<HHQ20sI", FORMAT, 0, first_index, group.pack(), 0)
        self._header = _MAGIC + struct.pack("<I", crc32c(rest)) + rest

    @property
    def last_index(self) -> int:
        """The last entry that is covered; before the first one where none is."""
        return self.blocks[-1].last_index if self.blocks else self.first_index - 1

    def load(self, last_index: int) -> None:
        """Take the sound blocks of entries up to this one; the rest of the file counts for nothing.

        Whether they are of the entries that stand in the segment is for the caller to ask.
        """
        self.blocks, self.size_bytes = (), 0
        found: list[Block] = []
        try:
            size = self._files.disk.size(self.path)
            with self._files.borrow(self.path) as handle:
                pread = self._files.disk.pread
                if pread(handle, FILE_HEADER_BYTES, 0) != self._header:
                    return
                at, following = FILE_HEADER_BYTES, int(self.first_index)
                while at + _HEAD_BYTES <= size:
                    block = _decode_head(pread(handle, _HEAD_BYTES, at), at + _HEAD_BYTES)
                    if block is None or block.first_index != following:
                        break
                    if block.end > size or block.last_index > last_index:
                        break
                    found.append(block)
                    at, following = block.end, block.last_index + 1
        except OSError:
            return
        self.blocks, self.size_bytes = tuple(found), at

    def append(self, run: Run, rows: array[int], apart: bytes) -> None:
        """Add a block of entries that follow. Raises OSError: nothing was added then."""
        assert run.first_index == self.last_index + 1, "runs follow each other"
        data = _little(rows)
        step = CHUNK_ROWS * _ROW_BYTES
        crcs = array("I", [crc32c(data[at : at + step]) for at in range(0, len(data), step)])
        table = _little(rows[::CHUNK_ROWS]) + _little(crcs) + apart
        low, high = (rows[0], rows[-1]) if rows else (0, 0)
        rest = _REST.pack(*run, len(rows), low, high, len(table), crc32c(table))
        head = _BLOCK_MAGIC + struct.pack("<I", crc32c(rest)) + rest
        start = self.size_bytes
        if not start:
            self._files.forget(self.path)  # what is open may have lost its name
        with self._files.borrow(self.path, create=True) as handle:
            disk = self._files.disk
            if not start:
                disk.truncate(handle, 0)
                disk.pwritev(handle, [self._header], 0)
                start = FILE_HEADER_BYTES
            disk.pwritev(handle, [head, table, data], start)
        block = _decode_head(head, start + _HEAD_BYTES)
        assert block is not None, "what was just encoded"
        self.blocks, self.size_bytes = (*self.blocks, block), block.end

    def find(self, block: Block, ranges: list[tuple[int, int]]) -> tuple[list[int], bytes]:
        """The rows of a block that lie in any range (from, up to), and what stands apart.

        Raises Damaged, OSError.
        """
        wanted = [one for one in ranges if one[0] <= block.high and one[1] > block.low]
        if not wanted and not block.has_apart:
            return [], b""
        with self._files.borrow(self.path) as handle:
            table = self._files.disk.pread(handle, block.table_bytes, block.at)
            if crc32c(table) != block.table_crc or len(table) != block.table_bytes:
                raise Damaged(self.path, block.at, "a table of mentions is damaged")
            count = block.chunks
            firsts = _numbers("Q", table[: 8 * count])
            crcs = _numbers("I", table[8 * count : 12 * count])
            found: list[int] = []
            for low, high in wanted if count else ():
                number = max(0, bisect_left(firsts, low) - 1)
                while number < count and firsts[number] < high:
                    found += self._chunk(handle, block, number, crcs[number], low, high)
                    number += 1
        return found, table[12 * count :]

    def remove(self) -> None:
        """Deletes the file; one that is gone is no error."""
        self.blocks, self.size_bytes = (), 0
        self._files.forget(self.path)
        with suppress(OSError):
            self._files.disk.unlink(self.path)
        self._files.forget(self.path)  # a reader may have opened it meanwhile

    def _chunk(
        self, handle: int, block: Block, number: int, crc: int, low: int, high: int
    ) -> array[int]:
        count = min(CHUNK_ROWS, block.rows - number * CHUNK_ROWS)
        at = block.rows_at + number * CHUNK_ROWS * _ROW_BYTES
        data = self._files.disk.pread(handle, count * _ROW_BYTES, at)
        if crc32c(data) != crc:
            raise Damaged(self.path, at, "rows of mentions are damaged")
        rows = _numbers("Q", data)
        return rows[bisect_left(rows, low) : bisect_right(rows, high - 1)]


def _decode_head(head: bytes, at: int) -> Block | None:
    if len(head) < _HEAD_BYTES or head[:4] != _BLOCK_MAGIC:
        return None
    if int.from_bytes(head[4:8], "little") != crc32c(head[8:]):
        return None
    first, last, term, crc, rows, low, high, length, table_crc = _REST.unpack_from(head, 8)
    block = Block(first, last, term, crc, rows, low, high, length, table_crc, at)
    apart = block.table_bytes - 12 * block.chunks
    sound = block.rows <= ROWS_MAX and 0 <= apart <= APART_BYTES_MAX
    return block if sound and block.first_index <= block.last_index else None


def _numbers(typecode: str, data: bytes) -> array[int]:
    found: array[int] = array(typecode)
    found.frombytes(data)
    if sys.byteorder == "big":
        found.byteswap()
    return found


def _little(numbers: array[int]) -> bytes:
    if sys.byteorder == "big":
        numbers = array(numbers.typecode, numbers)
        numbers.byteswap()
    return numbers.tobytes()
