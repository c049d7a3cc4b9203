"""Bugs of timelines: events lost, made up or wrong, where they are read or where they are noted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from delivery.entries.ops import Committed, Sought, decode_ops
from delivery.history.outcome_notes import OutcomeNotes
from delivery.state.partition import PartitionState
from delivery.timeline.message import Timeline, holding_entry, project
from log.entry import Entry, EntryKind
from tests.sim.queue_mutants import Altered

SKIPPED = 16


def untold_redelivery(
    offset: int, entries: Sequence[Entry], outcome_notes: OutcomeNotes
) -> Timeline | None:
    """A message's first delivery is told, and no other of the same attempt."""
    found = project(offset, entries, outcome_notes)
    if found is None:
        return None
    seen: set[tuple[object, object]] = set()
    events = []
    for event in found.events:
        which = event[2].get("group"), event[2].get("attempt")
        if event[1] == "DELIVERED":
            if which in seen:
                continue
            seen.add(which)
        events.append(event)
    return replace(found, events=events)


def attempts_of_all(
    offset: int, entries: Sequence[Entry], outcome_notes: OutcomeNotes
) -> Timeline | None:
    """An attempt's number counts deliveries that were given back."""
    found = project(offset, entries, outcome_notes)
    if found is None:
        return None
    made: Counter[object] = Counter()
    events = []
    for time_ms, type_, what in found.events:
        if type_ == "DELIVERED":
            made[what["group"]] += 1
            what = {**what, "attempt": made[what["group"]]}
        events.append((time_ms, type_, what))
    return replace(found, events=events)


def skips_entries(
    offset: int, entries: Sequence[Entry], outcome_notes: OutcomeNotes
) -> Timeline | None:
    """The index knows nothing of some entries."""
    holding = holding_entry(entries, offset)
    known = [entry for entry in entries if entry is holding or entry.index % SKIPPED]
    return project(offset, known, outcome_notes)


def skips_replays(
    offset: int, entries: Sequence[Entry], outcome_notes: OutcomeNotes
) -> Timeline | None:
    """Entries that name groups only, as seeks and commits, are not looked at."""
    return project(offset, [e for e in entries if _names_messages(e)], outcome_notes)


def _names_messages(entry: Entry) -> bool:
    if entry.kind != EntryKind.QUEUE:
        return True
    return not any(isinstance(op, Committed | Sought) for op in decode_ops(entry.body))


class ForgetsThePast(PartitionState):
    """What was noted for timelines is not in the snapshot."""

    def restore(self, state: bytes) -> None:
        super().restore(state)
        self.queue.outcome_notes = OutcomeNotes()


class _TellsRefused(OutcomeNotes):
    """Messages that were not granted are told as delivered."""

    __slots__ = ()

    def not_granted(self, offsets: Sequence[int]) -> None:
        return None


class _TellsRepeated(OutcomeNotes):
    """Operations that did nothing are told as if they had."""

    __slots__ = ()

    def nothing(self) -> None:
        return None


class _Noting(Altered):
    chronicle_type: type[OutcomeNotes] = OutcomeNotes

    def __init__(self) -> None:
        super().__init__()
        self.queue.outcome_notes.__class__ = self.chronicle_type

    def restore(self, state: bytes) -> None:
        super().restore(state)
        self.queue.outcome_notes.__class__ = self.chronicle_type

    def apply(self, entry: Entry) -> Any:
        self.queue.outcome_notes.__class__ = self.chronicle_type
        return super().apply(entry)


class TellsRefused(_Noting):
    chronicle_type = _TellsRefused


class TellsRepeated(_Noting):
    chronicle_type = _TellsRepeated
