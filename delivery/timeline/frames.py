"""Who had an entry, and when: what the frames of the entries after it tell."""

from __future__ import annotations

from collections.abc import Sequence

from delivery.history.outcome_notes import OutcomeNotes
from delivery.timeline.groups import Attributes, TimelineEvent
from log.entry import Entry

LATER_ENTRIES_MAX = 256
"""Frames after an entry that are looked at for who had it."""
NOTABLE_MS = 1000
"""A later entry's time is told as it stands when it came sooner than this after the messages, where
the leader did not tell when they were committed."""


class Replication:
    """Of the messages that the entry `index` holds, published at `time_ms`."""

    __slots__ = ("_before", "event", "index", "is_over", "time_ms", "told_at")

    def __init__(self, entry: Entry, time_ms: int) -> None:
        self.index = entry.index
        self.time_ms = time_ms
        self.event: TimelineEvent | None = None
        """Once a majority is known to have had the entry."""
        self.is_over = False
        """No later frame is wanted."""
        self.told_at = 0
        """The entry by which that was decided."""
        self._before = entry.index, entry.time_ms
        """The newest entry whose frame was looked at, and its time."""

    def frame(self, entry: Entry, outcome_notes: OutcomeNotes) -> None:
        """Take the next entry's word on who had the one before it."""
        if self.is_over or entry.index <= self.index:
            return
        by_ms, is_known = self._committed_by(entry)
        if entry.index > self.index + LATER_ENTRIES_MAX:
            self._decide(entry)
            return
        voters = outcome_notes.voters_at(entry.index)
        if not voters or len(voters) != len(entry.matches):
            return
        had = zip(voters, entry.matches, strict=True)
        nodes = [node for node, match in had if match >= self.index]
        if len(nodes) > len(voters) // 2:
            self._decide(entry)
            what: Attributes = {"nodes": nodes}
            if by_ms - self.time_ms >= NOTABLE_MS and not is_known:
                what["time"] = "at_latest"
            self.event = by_ms, "REPLICATED", what

    def unknown(self, nodes: Sequence[str]) -> TimelineEvent:
        """What is told where no frame tells: these nodes have it, at some time."""
        return self.time_ms, "REPLICATED", {"nodes": list(nodes), "time": "not_recorded"}

    def _decide(self, entry: Entry) -> None:
        self.is_over, self.told_at = True, entry.index

    def _committed_by(self, entry: Entry) -> tuple[int, bool]:
        """When all before this entry was committed, at the latest, and whether that is when the
        messages' own entry was: its leader tells if it had no other one to append before."""
        (index, time_ms), lag_ms = self._before, entry.lag_ms
        self._before = entry.index, entry.time_ms
        if lag_ms is None or index != entry.index - 1:
            return entry.time_ms, False
        return min(entry.time_ms, time_ms + lag_ms), index == self.index
