"""Searches by offset pass over what they have once read in vain.

While a backlog is consumed nothing but deliveries and settles is logged: entries without records,
which an index by offset says nothing of, and whole segments of them. A segment's longest such run
is remembered, and behind which offsets it begins, so that only the first search reads it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from goqueue.wire.types import Index

if TYPE_CHECKING:
    from log.entry import Entry
    from log.segments.segment import Segment


class EmptyRun:
    """Entries of a segment in a row that hold no records: the longest run that a search has met.

    Searches of several threads may note what they found; the writing thread may cut.
    """

    def __init__(self) -> None:
        self.cuts = 0
        self._run = (0, 0, -1)
        self._first_offset: int | None = None
        self._lowest = (-1, 0)

    @property
    def bounds(self) -> tuple[int, int]:
        """First and last entry; the last is lower where none is known."""
        cuts, first, last = self._run
        return (first, last) if cuts == self.cuts else (0, -1)

    @property
    def lowest(self) -> int | None:
        """The lowest offset of the segment's records, where its first entry holds some, or a search
        has met the first ones."""
        if self._first_offset is not None:
            return self._first_offset
        cuts, offset = self._lowest
        return offset if cuts == self.cuts else None

    def begins_with(self, entry: Entry) -> None:
        """The segment's first entry, which stays it for as long as there is one."""
        self._first_offset = entry.base_offset if entry.record_count else None

    def covers(self, first: int, last: int) -> bool:
        """Whether none of these entries holds records, as far as is known."""
        known_first, known_last = self.bounds
        return known_first <= first and last <= known_last

    def note_lowest(self, cuts: int, offset: int) -> None:
        """A search, which began after so many cuts, met the segment's first records."""
        self._lowest = (cuts, offset)

    def note(self, cuts: int, first: int, last: int) -> None:
        """A search, which began after so many cuts, found no records in these entries."""
        known_first, known_last = self.bounds
        if last - first > known_last - known_first:
            self._run = (cuts, first, last)

    def cut(self) -> None:
        """Other entries may stand where a search that is under way has read."""
        self.cuts += 1


def last_with_records(segment: Segment, offset: int, first: int, last: int) -> Index | None:
    """The last of these entries that holds records from this offset or a lower one on.

    Raises Damaged where an unreadable entry hides it.
    """
    cuts = segment.empty_run.cuts
    quiet_first, quiet_last = segment.empty_run.bounds
    parts, run = [(first, last)], first
    passes = quiet_first <= last and first <= quiet_last
    if passes:
        parts = [(first, quiet_first - 1), (quiet_last + 1, last)]
        run = min(first, quiet_first)
    answer = None
    for start, end in parts:
        for entry in segment.scan(start, end) if start <= end else ():
            if not entry.record_count:
                continue
            segment.empty_run.note(cuts, run, entry.index - 1)
            if entry.base_offset > offset:
                if answer is None and first == segment.first_index:
                    segment.empty_run.note_lowest(cuts, entry.base_offset)
                return answer
            answer, run = entry.index, entry.index + 1
    segment.empty_run.note(
        cuts, run, max(last, quiet_last) if passes and run <= quiet_first else last
    )
    return answer
