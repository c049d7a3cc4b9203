"""Timelines by the index that a node keeps of its entries, without its files and threads."""

from __future__ import annotations

from collections.abc import Sequence

from delivery.history.outcome_notes import OutcomeNotes
from delivery.timeline.message import Projection, encode_stories, holding_entry
from delivery.timeline.message_entry_index import MessageEntryIndex, Wide
from delivery.timeline.story import StoryRecord, advances
from goqueue.wire.types import Index
from log.entry import Entry
from log.partition.log import PartitionLog

ENTRIES_A_READ = 256


class Indexed:
    """Applied entries in a row, up to the newest one, and which messages they name."""

    def __init__(self, entries: Sequence[Entry], outcome_notes: OutcomeNotes) -> None:
        self.entries = entries
        self._outcome_notes = outcome_notes
        self._message_entries = MessageEntryIndex(entries[0].index if entries else 1)
        self._message_entries.add(entries, outcome_notes)
        self._wide: dict[int, list[Wide]] = {}
        """Of an entry: it may hold several operations that concern many."""
        for wide in self._message_entries.wide:
            self._wide.setdefault(wide.entry, []).append(wide)

    def projection(self, offset: int) -> Projection | None:
        """Of one message, told by the entries that the index names; None where it isn't held."""
        holding = holding_entry(self.entries, offset)
        if holding is None:
            return None
        projection = Projection(offset, self._outcome_notes, holding)
        named = set(self._message_entries.find(offset))
        due_ms = projection.story.next_due_ms()
        for entry in self.entries:
            if entry.index <= projection.since:
                continue
            projection.frame(entry)
            is_due = due_ms is not None and entry.time_ms >= due_ms and advances(entry)
            concerned = any(one.concerns(projection) for one in self._wide.get(entry.index, ()))
            if is_due or entry.index in named or concerned:
                projection.tell(entry)
                due_ms = projection.story.next_due_ms()
        return projection

    def stories(self, offsets: Sequence[int]) -> bytes:
        """For an entry that carries these messages."""
        if not self.entries:
            return b""
        last = self.entries[-1].index
        told: dict[int, StoryRecord] = {}
        for offset in offsets:
            projection = self.projection(offset)
            if projection is not None:
                told[offset] = projection.record(last)
        return encode_stories(told) if told else b""


def entries_between(log: PartitionLog, first: int, last: int) -> list[Entry]:
    """Raises LogError where they can't be read now."""
    index = Index(max(log.first_index, first))
    entries: list[Entry] = []
    while index <= last:
        run = log.entries(index, max_count=min(ENTRIES_A_READ, last - index + 1))
        entries += run
        index = Index(run[-1].index + 1)
    return entries
