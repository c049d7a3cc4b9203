"""The newest entries of a group in RAM, and how far those have come on their way to disk."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from operator import attrgetter, itemgetter

from goqueue.wire.types import Index, Lsn
from log.entry import Entry, EntryKind

_INDEX, _LSN = attrgetter("index"), itemgetter(1)
_SLICE_MAX = 4096
ENTRY_BYTES = 440
"""What an entry takes in RAM beside its frame: objects, numbers, list places (measured)."""

BARE_ENTRIES_MAX, BARE_FRAME_BYTES_MAX = 16, 512
_BARE_KINDS = frozenset((EntryKind.NOOP, EntryKind.VOTERS))


def is_bare(entries: Sequence[Entry]) -> bool:
    """Whether there are few, which tell of elections and voters alone."""
    return len(entries) <= BARE_ENTRIES_MAX and all(
        entry.kind in _BARE_KINDS and len(entry.frame) <= BARE_FRAME_BYTES_MAX for entry in entries
    )


class Tail:
    """Entries `first` to `last`, contiguous; `records` are those of them that hold records."""

    def __init__(self, first: int) -> None:
        self.first = first
        self.entries: list[Entry] = []
        self.records: list[Entry] = []
        self.bytes = 0

    @property
    def last(self) -> int:
        return self.first + len(self.entries) - 1

    def get(self, index: int) -> Entry | None:
        at = index - self.first
        return self.entries[at] if 0 <= at < len(self.entries) else None

    def take(self, first: int, max_bytes: int, max_count: int) -> list[Entry]:
        """Entries from `first`, which must be here: one at least, then as the bounds allow."""
        at = first - self.first
        entries = self.entries[at : at + min(max(max_count, 1), _SLICE_MAX)]
        size = 0
        for number, entry in enumerate(entries):
            size += len(entry.frame)
            if size > max_bytes and number:
                return entries[:number]
        return entries

    def locate_offset(self, offset: int) -> Index | None:
        """The last entry with records whose base offset is at or below this one."""
        at = bisect_right(self.records, offset, key=attrgetter("base_offset"))
        return self.records[at - 1].index if at else None

    def locate_time(self, time_ms: int) -> Index | None:
        """The first entry with this log time or a later one."""
        at = bisect_left(self.entries, time_ms, key=attrgetter("time_ms"))
        return self.entries[at].index if at < len(self.entries) else None

    def extend(self, entries: Sequence[Entry], size: int) -> None:
        """Adds entries that follow, of this many frame bytes together."""
        self.entries += entries
        self.bytes += size + ENTRY_BYTES * len(entries)
        for entry in entries:
            if entry.record_count:
                self.records.append(entry)

    def truncate(self, index: int) -> None:
        """Drops entries from `index` on; below `first`, the tail is empty and begins there."""
        keep = max(0, index - self.first)
        self.bytes -= sum(len(entry.frame) + ENTRY_BYTES for entry in self.entries[keep:])
        del self.entries[keep:]
        del self.records[bisect_left(self.records, index, key=_INDEX) :]
        self.first = min(self.first, index)

    def evict(self, last: int, budget_bytes: int) -> None:
        """Drops the oldest entries, at most up to `last`, until the rest fits the budget."""
        number = 0
        for entry in self.entries:
            if self.bytes <= budget_bytes or entry.index > last:
                break
            self.bytes -= len(entry.frame) + ENTRY_BYTES
            number += 1
        if number:
            del self.entries[:number]
            self.first += number
            del self.records[: bisect_left(self.records, self.first, key=_INDEX)]


class Runs:
    """Entries appended together share an LSN: each index has the LSN of its current append."""

    def __init__(self, base: int, *waiting: tuple[int, Lsn]) -> None:
        self.base = base
        """All entries up to this index are done."""
        self._waiting = list(waiting)

    def add(self, last: int, lsn: Lsn) -> None:
        self._waiting.append((last, lsn))

    def done(self, limit: Lsn) -> int:
        """The last index such that it and all before it have LSNs up to the limit."""
        waiting = self._waiting
        if waiting and waiting[0][1] <= limit:
            count = bisect_right(waiting, limit, key=_LSN)
            self.base = waiting[count - 1][0]
            del waiting[:count]
        return self.base

    def cut(self, index: int, done: int) -> None:
        """Forgets entries from `index` on; of a run cut in two, the rest keeps its LSN."""
        lsn = None
        while self._waiting and self._waiting[-1][0] >= index:
            lsn = self._waiting.pop()[1]
        self.base = min(done, index - 1)
        previous = self._waiting[-1][0] if self._waiting else self.base
        if lsn is not None and previous < index - 1:
            self._waiting.append((index - 1, lsn))
