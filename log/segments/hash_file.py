"""Search hashes of one segment's messages, on disk (`log.segments.block_file`).

After the run, the head of a block has: width of a row u8, u8 with a bit for each kind of which not
all was hashed, zero u16, lowest offset u64, highest u64, then for each kind: count u32, CRC-32C u32
of the hashes, and of the rows. Then come for each kind of hash the hashes (u32 each) and their
rows: offsets less the block's lowest, u32 each, or u64 where they lie further apart.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence
from typing import Any, NamedTuple

from crc32c import crc32c

from log.errors import Damaged
from log.segments.block_file import BlockFile, Run
from log.segments.le_columns import le_bytes

KINDS = 3
ITEMS_MAX = 1 << 20
"""Hashes of one kind in a block: more is damage, and nothing of that size is allocated for it."""

_NARROW, _WIDE = 4, 8

Columns = Sequence[tuple["array[int]", "array[int]"]]
"""Of each kind: hashes, 32 bits each, and offsets, 64 bits each."""


class Block(NamedTuple):
    """A run of entries whose hashes stand at `at` in the file."""

    run: Run
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


class HashFile(BlockFile[Block]):
    """Of one segment."""

    suffix = ".hashes"
    magic = b"GQ-HSH\r\n"
    block_magic = b"HSHB"
    head = struct.Struct("<QQQIBBHQQ" + "III" * KINDS)

    def block(self, run: Run, fields: Sequence[Any], at: int) -> Block | None:
        width, flags, _zero, low, high, *rest = fields
        kinds = tuple((rest[n], rest[n + 1], rest[n + 2]) for n in range(0, len(rest), 3))
        if width not in (_NARROW, _WIDE) or any(count > ITEMS_MAX for count, _, _ in kinds):
            return None
        return Block(run, width, flags, low, high, kinds, at)

    def append(self, run: Run, columns: Columns, partial: int = 0) -> None:
        """Add a block of entries that follow; `partial` has a bit for each kind of which not all
        is there. Raises OSError: nothing was added then."""
        low = min((min(rows) for _, rows in columns if rows), default=0)
        high = max((max(rows) for _, rows in columns if rows), default=0)
        width = _NARROW if high - low < 1 << 32 else _WIDE
        data: list[bytes] = []
        kinds: list[int] = []
        for hashes, rows in columns:
            cells = array("I" if width == _NARROW else "Q", [row - low for row in rows])
            column, places = le_bytes(hashes), le_bytes(cells)
            data += (column, places)
            kinds += (len(hashes), crc32c(column), crc32c(places))
        self._append(run, [width, partial, 0, low, high, *kinds], data)

    def hashes(self, block: Block, kind: int) -> bytes:
        """The hashes of one kind, as they stand on disk. Raises Damaged, OSError."""
        count, crc, _ = block.kinds[kind]
        return self._part(_kind_at(block, kind), 4 * count, crc)

    def rows(self, block: Block, kind: int) -> bytes:
        """The row of each of these, for `offset_of`. Raises Damaged, OSError."""
        count, _, crc = block.kinds[kind]
        return self._part(_kind_at(block, kind) + 4 * count, block.width * count, crc)

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
