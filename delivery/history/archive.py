"""How far a partition is archived, and whether its messages wait for that before they go.

Both are operations of the partition's log, so every replica judges a trim, or a compaction, by the
same: one that would drop a message which is to be archived and is not does nothing, whoever
proposed it and whatever that leader knew.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from delivery.config import bounded
from delivery.entries.ops import Archived, ArchivedResult, RequireArchive, Result

LOCATION_CHARACTERS_MAX = 1024


class ArchiveRecord(msgspec.Struct, array_like=True, frozen=True):
    """For a snapshot; what it holds is what `Archive` holds."""

    required: bool
    location: str
    position: int
    time_ms: int


class Archive:
    """Of one partition. Nothing is archived at first: where that is required, all is held."""

    def __init__(self) -> None:
        self.required = False
        """Whether messages go only once they are archived."""
        self.location = ""
        """Where the archive is; empty while none was ever told of."""
        self.position = 0
        """Every message below this offset is in the archive, committed there."""
        self.time_ms = 0
        """Log time at which the position was moved last; 0 for never."""

    @property
    def is_unused(self) -> bool:
        return not (self.required or self.location)

    def lets_go(self, last: int, *, required: bool = False) -> bool:
        """Whether messages up to this offset may go; `required` of who knows so before the log."""
        return last < self.position or not (required or self.required)

    def reached(self, op: Archived, end: int, time_ms: int) -> ArchivedResult:
        """Take a report; it is void where the archive is another one, or was further already."""
        location = op.location[:LOCATION_CHARACTERS_MAX]
        position = bounded(op.position, 0, end)
        is_same = location == self.location or not self.location
        taken = bool(location) and (op.anew or (is_same and position >= self.position))
        if taken and (location, position) != (self.location, self.position):
            self.location, self.position, self.time_ms = location, position, time_ms
        return ArchivedResult(self.location, self.position, self.time_ms, is_same or taken)

    def dump(self) -> ArchiveRecord | None:
        """None where nobody ever spoke of an archive."""
        if self.is_unused:
            return None
        return ArchiveRecord(self.required, self.location, self.position, self.time_ms)

    def load(self, record: ArchiveRecord) -> None:
        """Replace everything by what `dump` told."""
        self.required, self.location = record.required, record.location
        self.position, self.time_ms = record.position, record.time_ms


class Archiving(Protocol):
    """What the operations apply to."""

    archive: Archive
    next_offset: int


def _require(queue: Archiving, op: RequireArchive, _index: int, _time_ms: int) -> Result:
    queue.archive.required = op.required
    return None


def _archived(queue: Archiving, op: Archived, _index: int, time_ms: int) -> Result:
    return queue.archive.reached(op, queue.next_offset, time_ms)


ARCHIVE_OPS: dict[type, Callable[[Any, Any, int, int], Result]] = {
    RequireArchive: _require,
    Archived: _archived,
}
