"""Reading one partition's stored batches by offset and by time, from applied entries only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from delivery.entries.records import decode_records
from goqueue.wire.errors import OffsetOutOfRange
from goqueue.wire.types import Index, Offset
from log.entry import Entry, EntryKind
from node.api.records import Slice, StoredBatch

ENTRIES_A_STEP = 256
"""Entries fetched at once: bounds what one step of a read holds."""
BYTES_A_STEP = 128 * 1024
"""Of the first step; of each that follows twice as many: how many bytes a number of messages comes
to is not known before."""
STEPS_BEFORE_SEARCH = 8
"""What is looked through for the next message, before it is searched for by offset."""


class EntryLog(Protocol):
    """What reading asks of a group's log."""

    def locate_offset(self, offset: Offset) -> Index | None: ...

    def locate_time(self, time_ms: int) -> Index | None: ...

    def entries(self, first: Index, *, max_bytes: int, max_count: int) -> list[Entry]: ...


@dataclass(frozen=True, slots=True)
class Bounds:
    """What is readable: offsets from `start` up to `end`, entries up to index `applied`; and before
    that, from `first` on, what compaction has kept."""

    start: Offset
    end: Offset
    applied: Index
    first: Offset | None = None


class Kept(Protocol):
    """What compaction has kept before the log's start."""

    def read(
        self, offset: Offset, *, max_records: int, max_bytes: int, to_time_ms: int | None
    ) -> tuple[list[StoredBatch], Offset | None]: ...

    def time_at(self, offset: Offset) -> int | None: ...

    def offset_at(self, time_ms: int) -> Offset | None: ...


class PartitionReader:
    """Slices of one replica's log. Synchronous: the caller decides on which thread."""

    def __init__(
        self, log: EntryLog, bounds: Callable[[], Bounds], kept: Kept | None = None
    ) -> None:
        self._log = log
        self._bounds = bounds
        self._kept = kept

    def read(
        self, offset: Offset, *, max_records: int, max_bytes: int, to_time_ms: int | None = None
    ) -> Slice:
        """Whole batches that cover `offset` on, at least one where there is any.

        Raises `OffsetOutOfRange` beyond the end. Below the log start it begins at the log start.
        A batch with log time >= `to_time_ms` ends the slice; `next_offset` then is its offset.
        """
        bounds = self._bounds()
        first = bounds.start if bounds.first is None else bounds.first
        if offset > bounds.end or offset < 0:
            raise OffsetOutOfRange(offset, first, bounds.end)
        at = max(offset, first)
        found: list[StoredBatch] = []
        if self._kept is not None and at < bounds.start:
            found, following = self._kept.read(
                at, max_records=max_records, max_bytes=max_bytes, to_time_ms=to_time_ms
            )
            if found or following is not None:
                return Slice(found, following or bounds.start, first, bounds.end)
            at = bounds.start
        if at < bounds.end:
            at = self._collect(found, at, bounds, max_records, max_bytes, to_time_ms)
        return Slice(found, at, first, bounds.end)

    def time_at(self, offset: Offset) -> int | None:
        """The log time of the message, None where it isn't stored (any more)."""
        entry = self.entry_at(offset)
        if entry is None and self._kept is not None and offset < self._bounds().start:
            return self._kept.time_at(offset)
        return None if entry is None else entry.time_ms

    def entry_at(self, offset: Offset) -> Entry | None:
        """The applied entry that holds the message."""
        bounds = self._bounds()
        if not bounds.start <= offset < bounds.end:
            return None
        index = self._log.locate_offset(offset)
        if index is None:
            return None
        found = self._log.entries(index, max_bytes=1, max_count=1)
        return found[0] if found else None

    def offset_at(self, time_ms: int) -> Offset | None:
        """The first offset with log time >= `time_ms`; None where no applied message has."""
        bounds = self._bounds()
        if self._kept is not None and bounds.first is not None and bounds.first < bounds.start:
            kept = self._kept.offset_at(time_ms)
            if kept is not None:
                return kept
        index = self._log.locate_time(time_ms)
        found = None if index is None else self.offset_from(index)
        return None if found is None else max(found, bounds.start)

    def offset_from(self, index: Index) -> Offset | None:
        """The first message that this entry or a later one holds; None where no applied one does.

        Where messages are rare among other entries, by a search: the loop waits for it.
        """
        bounds = self._bounds()
        for _ in range(STEPS_BEFORE_SEARCH):
            if index > bounds.applied:
                return None
            for entry in self._log.entries(index, max_bytes=1 << 16, max_count=ENTRIES_A_STEP):
                if entry.index > bounds.applied:
                    return None
                if entry.kind == EntryKind.RECORDS:
                    return entry.base_offset
                index = Index(entry.index + 1)
        low, high = bounds.start, bounds.end
        while low < high:
            middle = Offset((low + high) // 2)
            at = self._log.locate_offset(middle)
            if at is None or at < index:
                low = Offset(middle + 1)
            else:
                high = middle
        return low if low < bounds.end else None

    def _collect(
        self,
        found: list[StoredBatch],
        at: Offset,
        bounds: Bounds,
        max_records: int,
        max_bytes: int,
        to_time_ms: int | None,
    ) -> Offset:
        """Fill `found` with batches from `at` on; the offset after the last of them."""
        wanted = at + max_records
        taken, step = 0, BYTES_A_STEP
        index = self._log.locate_offset(at)
        if index is None:  # after a restart, until the last trim is applied again
            index = self._log.locate_time(0)
        while index is not None and index <= bounds.applied:
            entries = self._log.entries(
                index, max_bytes=max(1, min(step, max_bytes - taken)), max_count=ENTRIES_A_STEP
            )
            step *= 2
            for entry in entries:
                if entry.index > bounds.applied:
                    return at
                if entry.kind != EntryKind.RECORDS:
                    continue
                for base, count, batch in stored_batches(entry):
                    if base + count <= at:
                        continue
                    full = at >= wanted or taken >= max_bytes
                    late = to_time_ms is not None and entry.time_ms >= to_time_ms
                    if late or (found and full):
                        return at
                    found.append(StoredBatch(base, entry.time_ms, batch))
                    taken += len(batch)
                    at = Offset(base + count)
            if not entries or at >= wanted or taken >= max_bytes:
                return at
            index = Index(entries[-1].index + 1)
        return at


class LogStart(Protocol):
    """A log, by its first entry."""

    @property
    def first_index(self) -> Index: ...


def begins_later(log: LogStart, start: Index) -> bool:
    """Whether entries from the applied state's start on are gone: as after a restart, until what
    moved the start is applied again. Where that was compaction, what it kept is not known yet."""
    return log.first_index > start


def stored_batches(entry: Entry) -> list[tuple[Offset, int, memoryview]]:
    """(base offset, count, batch) of every batch in a records entry."""
    return [
        (stored.base_offset, stored.count, stored.batch)
        for stored in decode_records(entry.body, entry.base_offset)
    ]
