"""What several storms at once have shown so far: counts in a file that all of them map.

Each storm writes a row of its own, and nobody else does; a total is the sum of a column. So there
is no lock, and a storm that dies leaves a row that is right.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Sequence
from pathlib import Path

ACKED = "acked"
_CELL = struct.Struct("=q")


def begun(kind: str) -> str:
    """The count of those of a kind that are under way."""
    return f"{kind} begun"


class Tally:
    """One row of it, and the totals of all."""

    def __init__(self, kinds: Sequence[str], path: Path | None = None, row: int = 0) -> None:
        """Without a path there is one row, in memory. `path` was made by `make` for these kinds."""
        names = [ACKED, *kinds, *(begun(kind) for kind in kinds)]
        self._column = {name: number for number, name in enumerate(names)}
        self._row_bytes = _CELL.size * len(names)
        self._at = row * self._row_bytes
        if path is None:
            self._map = mmap.mmap(-1, self._row_bytes)
        else:
            with path.open("r+b") as file:
                self._map = mmap.mmap(file.fileno(), 0)

    @staticmethod
    def make(path: Path, kinds: Sequence[str], rows: int) -> None:
        path.write_bytes(bytes(_CELL.size * (1 + 2 * len(kinds)) * rows))

    def put(self, name: str, count: int) -> None:
        """This row's count."""
        _CELL.pack_into(self._map, self._at + _CELL.size * self._column[name], count)

    def total(self, name: str) -> int:
        """Of all rows."""
        first = _CELL.size * self._column[name]
        places = range(first, len(self._map), self._row_bytes)
        return sum(_CELL.unpack_from(self._map, at)[0] for at in places)

    def done(self, kind: str) -> int:
        """Those shown and those under way."""
        return self.total(kind) + self.total(begun(kind))
