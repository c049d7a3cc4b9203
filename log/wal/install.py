"""The record that puts a copied replica in the place of a group's log.

The copied files lie in the group's directory, verified and synced, under names of their own
(`log.segments.incoming`). The record in the write-ahead log decides: before it is durable they are
nothing, from then on they are the log, and whoever opens the directory next finishes the renames.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from goqueue.wire.types import Index, Term

UNKNOWN_END = (1 << 63) - 1
"""A damaged range's end where nobody knows how far the log went."""
_FIXED = struct.Struct("<QQQQQQ")
_FIRST = struct.Struct("<Q")


@dataclass(frozen=True, slots=True)
class Install:
    """Entries `first_index` to `last_index`, all committed, and a snapshot of the state after one
    of them (0: none, the log begins at 1). `segments` are the first indexes of the files; `id`
    tells this copy's files from those of another."""

    id: int
    first_index: Index
    base_term: int
    last_index: Index
    last_term: Term
    snapshot_index: int
    segments: tuple[int, ...]

    def pack(self) -> bytes:
        """The record's payload."""
        fixed = _FIXED.pack(
            self.id,
            self.first_index,
            self.base_term,
            self.last_index,
            self.last_term,
            self.snapshot_index,
        )
        return fixed + struct.pack(f"<{len(self.segments)}Q", *self.segments)

    @classmethod
    def unpack(cls, payload: bytes | memoryview) -> Install:
        id, first, base_term, last, last_term, snapshot = _FIXED.unpack_from(payload)
        segments = tuple(first for (first,) in _FIRST.iter_unpack(payload[_FIXED.size :]))
        return cls(id, Index(first), base_term, Index(last), Term(last_term), snapshot, segments)

    def damage_left(self, damaged: tuple[Index, Index] | None) -> tuple[Index, Index] | None:
        """What of a damaged range lies beyond the copy: it was acknowledged, and is not back.

        Where nobody knows how far it goes, the log is suspect instead.
        """
        if damaged is None or damaged[1] <= self.last_index or damaged[1] == UNKNOWN_END:
            return None
        return Index(max(damaged[0], self.last_index + 1)), damaged[1]
