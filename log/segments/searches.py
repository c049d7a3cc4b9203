"""Searches of a group's chain of segments, by offset and by time; on any thread."""

from __future__ import annotations

import time
from bisect import bisect_right
from contextlib import suppress
from typing import Protocol

from goqueue.wire.types import Index
from log.entry import Entry
from log.errors import Damaged
from log.segments.counters import LogCounters
from log.segments.empty_runs import last_with_records
from log.segments.index import OffsetIndex
from log.segments.segment import Segment

_INDEXES_LOADED_MAX = 16


class Chain(Protocol):
    """The segments of one group, as `log.segments.chain.PartitionSegments` has them."""

    directory: str
    chain: tuple[Segment, ...]
    """In first-index order; another one whenever it changes."""
    counters: LogCounters


class Searches:
    """Of the sealed segments of a chain, a few have their offset index in memory."""

    def __init__(self, segments: Chain) -> None:
        self._segments = segments
        self._loaded: list[Segment] = []

    def locate_offset(self, offset: int, first: int, last: int) -> Index | None:
        """The last entry up to `last` with records whose base offset is at or below this one.

        Raises Damaged where an unreadable entry, or a missing segment from `first` on, hides it.
        """
        began_s = time.perf_counter()
        found = self._locate_offset(offset, first, last)
        self._segments.counters.looked_up("offset", time.perf_counter() - began_s)
        return found

    def locate_time(self, time_ms: int, first: int, last: int) -> Index | None:
        """The first entry up to `last` of this log time or a later one. Raises Damaged as above."""
        began_s = time.perf_counter()
        found = self._locate_time(time_ms, first, last)
        self._segments.counters.looked_up("time", time.perf_counter() - began_s)
        return found

    def fetch_for_offset(self, offset: int, first: int, last: int) -> None:
        """Brings into memory what `locate_offset` asks the disk for. Whoever searches then meets
        the damage that this meets."""
        with suppress(Damaged, OSError):
            self._locate_offset(offset, first, last)

    def fetch_for_time(self, time_ms: int, first: int, last: int) -> None:
        """Likewise for `locate_time`."""
        with suppress(Damaged, OSError):
            self._locate_time(time_ms, first, last)

    def is_at_hand(self, offset: int, first: int, last: int) -> bool:
        """Whether `locate_offset` would load no index, as far as is known."""
        for segment in reversed(self._segments.chain):
            if not self._is_passed(segment, offset, first, last):
                if not segment.has_index:
                    return False
                found = segment.index().before_offset(offset, last)
                return found > 0 or segment.empty_run.lowest is not None
        return True

    def is_time_at_hand(self, time_ms: int) -> bool:
        """Likewise for `locate_time`."""
        chain = self._segments.chain
        at = bisect_right(chain, time_ms - 1, key=lambda segment: segment.first_time_ms)
        return all(segment.has_index for segment in chain[max(0, at - 1) : at + 1])

    def near_offset(self, offset: int, last: int) -> Index | None:
        """An entry at or below this offset, up to `last`, as the offset index has it: the one that
        holds it where entries are large. No entry is read, and none is vouched for."""
        for segment in reversed(self._segments.chain):
            if not self._is_passed(segment, offset, segment.first_index, last):
                found = self._index_of(segment).before_offset(offset, last)
                if found:
                    return Index(found)
        return None

    def holding(self, offset: int, last: int) -> Entry | None:
        """The entry up to `last` that stores the message, found from the offset index on, without a
        search behind it; None where it is not there. On any thread. Raises Damaged, OSError."""
        near = self.near_offset(offset, last)
        if near is None:
            return None
        segment = segment_of(self._segments, near)
        for entry in segment.scan(near, min(last, segment.last_index)):
            if entry.record_count and offset < entry.base_offset + entry.record_count:
                return entry if entry.base_offset <= offset else None
        return None

    # -- private

    def _locate_offset(self, offset: int, first: int, last: int) -> Index | None:
        for segment in reversed(self._segments.chain):
            if self._is_passed(segment, offset, first, last):
                continue
            start = self._index_of(segment).before_offset(offset, last) or segment.first_index
            start = max(start, first)
            answer = last_with_records(segment, offset, start, min(last, segment.last_index))
            if answer is not None:
                return answer
        self._check_head(first)
        return None

    def _locate_time(self, time_ms: int, first: int, last: int) -> Index | None:
        chain = self._segments.chain
        at = bisect_right(chain, time_ms - 1, key=lambda segment: segment.first_time_ms)
        if not at:
            self._check_head(first)
        for segment in chain[max(0, at - 1) :]:
            start = self._index_of(segment).before_time(time_ms, last) or segment.first_index
            start, end = max(start, first), min(last, segment.last_index)
            for entry in segment.scan(start, end) if start <= end else ():
                if entry.time_ms >= time_ms:
                    return entry.index
        return None

    @staticmethod
    def _is_passed(segment: Segment, offset: int, first: int, last: int) -> bool:
        """Whether none of these entries that the segment holds has records at or below the offset:
        as far as is known without its index, of which only a few are in memory."""
        if segment.first_index > last:
            return True
        lowest = segment.empty_run.lowest
        if lowest is not None and offset < lowest:
            return True
        return segment.empty_run.covers(
            max(first, segment.first_index), min(last, segment.last_index)
        )

    def _check_head(self, first: int) -> None:
        chain = self._segments.chain
        if not chain or chain[0].first_index > first:
            last = chain[0].first_index - 1 if chain else first
            reason = f"the segment that begins at {first} is missing"
            raise Damaged(self._segments.directory, 0, reason, (first, last))

    def _index_of(self, segment: Segment) -> OffsetIndex:
        index = segment.index()
        if segment is not self._segments.chain[-1] and segment not in self._loaded:
            self._loaded.append(segment)
            if len(self._loaded) > _INDEXES_LOADED_MAX:
                self._loaded.pop(0).drop_index()
        return index


def segment_of(segments: Chain, index: int) -> Segment:
    """The one that holds this entry. Raises Damaged where there is none."""
    chain = segments.chain
    at = bisect_right(chain, index, key=lambda segment: segment.first_index)
    if not at or index > chain[at - 1].last_index:
        raise Damaged(segments.directory, 0, f"no segment holds entry {index}", (index, index))
    return chain[at - 1]
