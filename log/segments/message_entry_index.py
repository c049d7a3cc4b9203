"""Which entries of one segment name which messages, on disk (`log.segments.block_file`).

After the run, the head of a block has: number of rows u32, lowest and highest row u64, length of
the table u32, CRC-32C u32 of the table. Then come the table, and rows u64 in order, in chunks of
256. The table: for each chunk its first row u64, then for each its CRC-32C u32; the rest is what
stands apart, as MessagePack.

What rows mean is not this file's affair (`delivery.timeline.message_entry_index`).
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Any, NamedTuple

from crc32c import crc32c

from log.errors import Damaged
from log.segments.block_file import BlockFile, Run
from log.segments.le_columns import le_bytes, numbers

CHUNK_ROWS = 256
ROWS_MAX = 1 << 22
"""Rows of a block: more is damage, and nothing of that size is allocated for it."""
APART_BYTES_MAX = 16 << 20

_ROW_BYTES = 8


class Block(NamedTuple):
    """A run of entries, whose table begins at `at` in the file."""

    run: Run
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


class MessageEntryFile(BlockFile[Block]):
    """Of one segment."""

    suffix = ".mentions"
    magic = b"GQ-MEN\r\n"
    block_magic = b"MENB"
    head = struct.Struct("<QQQIIQQII")

    def block(self, run: Run, fields: Sequence[Any], at: int) -> Block | None:
        rows, low, high, table_bytes, table_crc = fields
        block = Block(run, rows, low, high, table_bytes, table_crc, at)
        apart = block.table_bytes - 12 * block.chunks
        sound = block.rows <= ROWS_MAX and 0 <= apart <= APART_BYTES_MAX
        return block if sound else None

    def append(self, run: Run, rows: array[int], apart: bytes) -> None:
        """Add a block of entries that follow. Raises OSError: nothing was added then."""
        data = le_bytes(rows)
        step = CHUNK_ROWS * _ROW_BYTES
        crcs = array("I", [crc32c(data[at : at + step]) for at in range(0, len(data), step)])
        table = le_bytes(rows[::CHUNK_ROWS]) + le_bytes(crcs) + apart
        low, high = (rows[0], rows[-1]) if rows else (0, 0)
        self._append(run, [len(rows), low, high, len(table), crc32c(table)], [table, data])

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
            firsts = numbers("Q", table[: 8 * count])
            crcs = numbers("I", table[8 * count : 12 * count])
            found: list[int] = []
            for low, high in wanted if count else ():
                number = max(0, bisect_left(firsts, low) - 1)
                while number < count and firsts[number] < high:
                    found += self._chunk(handle, block, number, crcs[number], low, high)
                    number += 1
        return found, table[12 * count :]

    def _chunk(
        self, handle: int, block: Block, number: int, crc: int, low: int, high: int
    ) -> array[int]:
        count = min(CHUNK_ROWS, block.rows - number * CHUNK_ROWS)
        at = block.rows_at + number * CHUNK_ROWS * _ROW_BYTES
        data = self._files.disk.pread(handle, count * _ROW_BYTES, at)
        if crc32c(data) != crc:
            raise Damaged(self.path, at, "rows of mentions are damaged")
        rows = numbers("Q", data)
        return rows[bisect_left(rows, low) : bisect_right(rows, high - 1)]
