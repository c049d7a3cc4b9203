"""Search hashes of one segment's messages, on disk: made from the segment, and made again from it.

The file `<first index>.hashes` stands beside the segment: a header as of the segment's other files,
then blocks, one for a run of entries, appended as the segment grows. A block is its head, then for
each kind of hash the hashes (u32 each) and their rows: offsets less the block's lowest, u32 each,
or u64 where they lie further apart. Head, little-endian: magic (4), CRC-32C u32 of what follows in
the head, first and last index u64, term u64 and CRC u32 of the last entry, width of a row u8, u8
with a bit for each kind of which not all was hashed, zero u16, lowest offset u64, highest u64, then
for each kind: count u32, CRC-32C u32 of the hashes, and of the rows.

Nothing here is synced and nothing depends on it: a block that is torn or damaged ends the file for
those who read it, and what it covered is made again.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from crc32c import crc32c

from goqueue.wire.types import GroupId, Index
from log.descriptors import Descriptors
from log.errors import Damaged
from log.segment import FILE_HEADER_BYTES

SUFFIX = ".hashes"
FORMAT = 1
KINDS = 3
ITEMS_MAX = 1 << 20
"""Hashes of one kind in a block: more is damage, and nothing of that size is allocated for it."""

_MAGIC = b"GQ-HSH\r\n"
_BLOCK_MAGIC = b"HSHB"
_HEAD = struct.Struct("<4sIQQQIBBHQQ" + "III" * KINDS)
_HEAD_REST = struct.Struct("<QQQIBBHQQ" + "III" * KINDS)
_CRC_FROM = 8
_NARROW, _WIDE = 4, 8

Columns = Sequence[tuple["array[int]", "array[int]"]]
"""Of each kind: hashes, 32 bits each, and offsets, 64 bits each."""


class Block(NamedTuple):
    """A run of entries whose hashes stand at `at` in the file."""

    first_index: int
    last_index: int
    term: int
    crc: int
    width: int
    flags: int
    low: int
    high: int
    kinds: tuple[tuple[int, int, int], ...]
    at: int

    def is_partial(self, kind: int) -> bool:
        """Whether not all of this kind that the entries hold was hashed."""
        return bool(self.flags >> kind & 1)

    @property
    def end(self) -> int:
        return self.at + sum(count for count, _, _ in self.kinds) * (4 + self.width)

    @property
    def items(self) -> int:
        return sum(count for count, _, _ in self.kinds)


class Run(NamedTuple):
    """What a block is of: its entries, and the last one's term and CRC, which identify it."""

    first_index: int
    last_index: int
    term: int
    crc: int


class HashFile:
    """One segment's file. One thread at a time writes; any reads what was written before."""

    def __init__(self, files: Descriptors, base: str, group: GroupId, first_index: Index) -> None:
        self.first_index = first_index
        self.path = base + SUFFIX
        self.blocks: tuple[Block, ...] = ()
        self._files = files
        self._header = _file_header(first_index, group)
        self._end = 0

    @property
    def last_index(self) -> int:
        """The last entry that is covered; before the first one where none is."""
        return self.blocks[-1].last_index if self.blocks else self.first_index - 1

    @property
    def size_bytes(self) -> int:
        return self._end

    def load(self, last_index: int) -> None:
        """Take the sound blocks of entries up to this one; the rest of the file counts for nothing.

        Whether they are of the entries that stand in the segment is for the caller to ask.
        """
        self.blocks, self._end = (), 0
        try:
            size = self._files.disk.size(self.path)
            with self._files.borrow(self.path) as handle:
                pread = self._files.disk.pread
                if pread(handle, FILE_HEADER_BYTES, 0) != self._header:
                    return
                at, found = FILE_HEADER_BYTES, list[Block]()
                following = int(self.first_index)
                while at + _HEAD.size <= size:
                    block = _decode_head(pread(handle, _HEAD.size, at), at + _HEAD.size)
                    if block is None or block.first_index != following:
                        break
                    if block.end > size or block.last_index > last_index:
                        break
                    found.append(block)
                    at, following = block.end, block.last_index + 1
        except OSError:
            return
        self.blocks, self._end = tuple(found), at

    def append(self, run: Run, columns: Columns, partial: int = 0) -> None:
        """Add a block of entries that follow; `partial` has a bit for each kind of which not all
        is there. Raises OSError: nothing was added then."""
        assert run.first_index == self.last_index + 1, "runs follow each other"
        low = min((min(rows) for _, rows in columns if rows), default=0)
        high = max((max(rows) for _, rows in columns if rows), default=0)
        width = _NARROW if high - low < 1 << 32 else _WIDE
        parts: list[bytes] = []
        kinds: list[int] = []
        for hashes, rows in columns:
            cells = array("I" if width == _NARROW else "Q", [row - low for row in rows])
            column, places = _little(hashes), _little(cells)
            parts += (column, places)
            kinds += (len(hashes), crc32c(column), crc32c(places))
        rest = _HEAD_REST.pack(*run, width, partial, 0, low, high, *kinds)
        head = _BLOCK_MAGIC + struct.pack("<I", crc32c(rest)) + rest
        start = self._end
        with self._files.borrow(self.path, create=True) as handle:
            disk = self._files.disk
            if not start:
                disk.truncate(handle, 0)
                disk.pwritev(handle, [self._header], 0)
                start = FILE_HEADER_BYTES
            disk.pwritev(handle, [head, *parts], start)
        block = _decode_head(head, start + _HEAD.size)
        assert block is not None, "what was just encoded"
        self.blocks, self._end = (*self.blocks, block), block.end

    def hashes(self, block: Block, kind: int) -> bytes:
        """The hashes of one kind, as they stand on disk. Raises Damaged, OSError."""
        count, crc, _ = block.kinds[kind]
        return self._part(_kind_at(block, kind), 4 * count, crc)

    def rows(self, block: Block, kind: int) -> bytes:
        """The row of each of these, for `offset_of`. Raises Damaged, OSError."""
        count, _, crc = block.kinds[kind]
        return self._part(_kind_at(block, kind) + 4 * count, block.width * count, crc)

    def remove(self) -> None:
        """Deletes the file; one that is gone is no error."""
        self.blocks, self._end = (), 0
        self._files.forget(self.path)
        with suppress(OSError):
            self._files.disk.unlink(self.path)
        self._files.forget(self.path)  # a reader may have opened it meanwhile

    def _part(self, at: int, length: int, crc: int) -> bytes:
        if not length:
            return b""
        with self._files.borrow(self.path) as handle:
            data = self._files.disk.pread(handle, length, at)
        if len(data) < length or crc32c(data) != crc:
            raise Damaged(self.path, at, "search hashes are damaged")
        return data


def offset_of(block: Block, rows: bytes, row: int) -> int:
    """The offset that stands in this row."""
    at = row * block.width
    return block.low + int.from_bytes(rows[at : at + block.width], "little")


def _kind_at(block: Block, kind: int) -> int:
    return block.at + sum(count for count, _, _ in block.kinds[:kind]) * (4 + block.width)


def _file_header(first_index: int, group: GroupId) -> bytes:
    rest = struct.pack("<HHQ20sI", FORMAT, 0, first_index, group.pack(), 0)
    return _MAGIC + struct.pack("<I", crc32c(rest)) + rest


def _decode_head(head: bytes, at: int) -> Block | None:
    if len(head) < _HEAD.size or head[:4] != _BLOCK_MAGIC:
        return None
    if int.from_bytes(head[4:8], "little") != crc32c(head[_CRC_FROM:]):
        return None
    first, last, term, crc, width, flags, _zero, low, high, *rest = _HEAD_REST.unpack_from(
        head, _CRC_FROM
    )
    kinds = tuple((rest[n], rest[n + 1], rest[n + 2]) for n in range(0, len(rest), 3))
    sound = width in (_NARROW, _WIDE) and all(count <= ITEMS_MAX for count, _, _ in kinds)
    if not sound or last < first:
        return None
    return Block(first, last, term, crc, width, flags, low, high, kinds, at)


def _little(numbers: array[int]) -> bytes:
    if sys.byteorder == "big":
        numbers = array(numbers.typecode, numbers)
        numbers.byteswap()
    return numbers.tobytes()
