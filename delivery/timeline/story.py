"""What the queue did with one message: its entries in order, judged as they were when they applied.

Whoever reads entries may leave out those that don't name the message: what time alone brings about
(`next_due_ms`) must then be told by the first entry that has that time, see `advances`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from delivery.config import QueueConfig
from delivery.entries.ops import (
    Cancelled,
    Committed,
    Delivered,
    DeliveredToStream,
    Expired,
    Op,
    Own,
    Purged,
    Redriven,
    Settled,
    Sought,
    StreamsEnded,
    decode_ops,
)
from delivery.entries.records import decode_trim
from delivery.history.compacted_set import decode_compaction
from delivery.history.outcome_notes import NOT_GRANTED, GroupPast, OutcomeNotes, Position
from delivery.timeline.groups import Attributes, GroupStory, Place, TimelineEvent
from delivery.timeline.judge import Judge
from log.entry import Entry, EntryKind

_LAST, _NOW = 1 << 30, 1 << 62
_IDLE = (EntryKind.NOOP, EntryKind.VOTERS)
STARTS = (EntryKind.TRIM, EntryKind.COMPACT)


def advances(entry: Entry) -> bool:
    """Whether what is due happens at this entry."""
    return entry.kind not in _IDLE


class StoryRecord(msgspec.Struct, array_like=True):
    """A story so far: what is carried with a message that outlives the log."""

    index: int
    key: bytes | None
    due_ms: int
    expires_ms: int
    fate: str
    kept: bool
    in_stream: bool
    late_until_ms: int
    omitted: int
    events: list[TimelineEvent]
    groups: list[GroupStory]
    exact: bool = True
    """False where something was not known any more when this was made."""
    indexes: list[int] = []
    """The entry that brought each event, 0 where that is not known; none in older records."""


class Story:
    """One message from the entry `index` on, which stores it or tells of it so far."""

    def __init__(self, offset: int, outcome_notes: OutcomeNotes, record: StoryRecord) -> None:
        self._outcome_notes = outcome_notes
        self._judge: Judge = Judge(outcome_notes, self)
        self.offset, self.fate = offset, record.fate
        self.kept, self.in_stream = record.kept, record.in_stream
        self.index = record.index
        self.key = record.key
        self.omitted = record.omitted
        self.events = list(record.events)
        self.indexes = list(record.indexes) or [0] * len(record.events)
        """The entry that brought each event; 0 where that is not known."""
        self.groups = {group.id: msgspec.structs.replace(group) for group in record.groups}
        self._due_ms, self._expires_ms = record.due_ms, record.expires_ms
        self._late_until_ms = record.late_until_ms
        self._config = QueueConfig()
        self._changes = self._all_changes()
        self._change = next(self._changes, None)
        self._judge.at = record.index, 0
        told = {group.id: group for group in self.groups.values()}
        self._catch_up((record.index, _LAST), known=not record.kept)
        self.groups = told or self.groups

    def record(self, index: int) -> StoryRecord:
        """The story as of this entry, up to which all that name the message were told."""
        self._catch_up((index, _LAST))
        return StoryRecord(
            index,
            self.key,
            self._due_ms,
            self._expires_ms,
            self.fate,
            self.kept,
            self.in_stream,
            self._late_until_ms,
            self.omitted,
            list(self.events),
            [msgspec.structs.replace(group) for group in self.groups.values()],
            indexes=list(self.indexes),
        )

    def states(self) -> dict[str, str]:
        """Group -> state, of those that the message is or was for."""
        return {
            group.name: group.state(self.fate)
            for group in self.groups.values()
            if group.place != "never"
        }

    def add(self, type_: str, what: Attributes) -> None:
        self.events.append((self._judge.now_ms, type_, what))
        self.indexes.append(self._judge.at[0])

    @property
    def has_key(self) -> bool:
        return bool(self.key)

    @property
    def config(self) -> QueueConfig:
        """The partition's settings as of the newest entry that was told."""
        return self._config

    def next_due_ms(self) -> int | None:
        """When time brings something about that an entry must be told for."""
        due: list[int] = []
        if self.fate == "delayed":
            due.append(self._due_ms)
        if self._expires_ms and self.fate in ("", "delayed"):
            due.append(self._expires_ms)
        keep_ms = self._config.dead_retention_ms
        if keep_ms >= 0:
            for group in self.groups.values():
                if group.place == "dead":
                    due.append(group.died_ms + keep_ms + 1)
        return min(due) if due else None

    def end(self) -> None:
        """All was told that there is: groups and settings are as of now."""
        self._catch_up((_NOW, _LAST))

    def tell(self, entry: Entry) -> None:
        """Take the next entry."""
        if entry.index <= self.index or not advances(entry):
            return
        self._catch_up((entry.index, -1))
        self._judge.at = entry.index, -1
        self._judge.now_ms = entry.time_ms
        self._advance(entry.time_ms)
        if entry.kind == EntryKind.QUEUE:
            for number, op in enumerate(decode_ops(entry.body)):
                self.tell_op(op, number)
        elif entry.kind in STARTS and not self._outcome_notes.did_nothing(entry.index, 0):
            self._trimmed(entry)

    def tell_op(self, op: Op, number: int) -> None:
        """Take an operation of this entry."""
        at = self._judge.at[0], number
        telling = _TELLING.get(type(op))
        if telling is None:
            return
        self._catch_up(at)
        self._judge.at = at
        group = self.groups.get(getattr(op, "group", 0))
        if group is None and not isinstance(op, Cancelled):
            return
        if not self._outcome_notes.did_nothing(*at):
            telling(self, op, group)

    # -- what is not the message's own

    def _all_changes(self) -> Iterator[tuple[Position, Any, Any]]:
        settings = [(at, None, config) for at, config in self._outcome_notes.settings]
        return iter(
            sorted([*self._outcome_notes.changes(), *settings], key=lambda change: change[0])
        )

    def _catch_up(self, at: Position, *, known: bool = False) -> None:
        """Settings and groups as of this operation; `known`: as the message is stored."""
        while self._change is not None and self._change[0] <= at:
            _at, past, config = self._change
            if past is None:
                self._config = config
            elif config is None:
                self.groups.pop(past.id, None)
                self._judge.configs.pop(past.id, None)
            else:
                is_new = past.id not in self._judge.configs
                self._judge.configs[past.id] = config
                if is_new and past.id not in self.groups:
                    place: Place = "coming" if known else self._begins(past)
                    self.groups[past.id] = GroupStory(past.id, past.name, place)
            self._change = next(self._changes, None)

    def _begins(self, past: GroupPast) -> Place:
        """Where the message is for a group that begins now."""
        late = self._late_until_ms > past.opened_ms
        held = not self.kept or self.in_stream or self.fate == "delayed" or late
        if self.offset < past.base or not held:
            return "never"
        return "over" if self.fate in ("cancelled", "expired") else "coming"

    def _advance(self, now_ms: int) -> None:
        if self.fate == "delayed" and self._due_ms <= now_ms:
            self.fate = ""
            if self._config.retention_ms >= 0:
                self._late_until_ms = self._due_ms + self._config.retention_ms
            self.add("DUE", {})
        if self._expires_ms and self._expires_ms <= now_ms and self.fate in ("", "delayed"):
            self.fate = "expired"
            self.add("EXPIRED", {})
            self._withdraw()
        keep_ms = self._config.dead_retention_ms
        if keep_ms < 0:
            return
        for _id, group in sorted(self.groups.items()):
            if group.place == "dead" and keep_ms < now_ms - group.died_ms:
                group.settle()
                self._judge.tell(group, "PURGED", {"reason": "dead_retention"})

    def _withdraw(self) -> None:
        """It is delivered no more; leases stand."""
        for group in self.groups.values():
            if group.place == "coming":
                group.settle("over")

    def _trimmed(self, entry: Entry) -> None:
        if entry.kind == EntryKind.TRIM:
            start, self.in_stream = decode_trim(entry.body).offset, False
        else:
            decision = decode_compaction(entry.body)
            start, self.in_stream = decision.offset, self.offset in decision.kept
        if self.offset < start and not self.kept:
            self.kept = True
            self.add("KEPT", {"log_start": start})

    # -- operations

    def _delivered(self, op: Delivered, group: GroupStory) -> None:
        if self.offset not in op.offsets:
            return
        if not self._outcome_notes.excepts(*self._judge.at, NOT_GRANTED, self.offset):
            self._judge.delivered(op, group)

    def _settled(self, op: Settled, group: GroupStory) -> None:
        for delivery, offsets in op.deliveries:
            if group.holds(delivery) and self.offset in offsets:
                self._judge.settled(op, delivery, group)

    def _expired(self, op: Expired, group: GroupStory) -> None:
        for delivery, offsets in op.deliveries:
            if group.holds(delivery) and self.offset in offsets:
                self._judge.timed_out(delivery, group)

    def _cancelled(self, op: Cancelled, _group: None) -> None:
        if self.fate == "delayed" and self.offset in op.offsets:
            self.fate = "cancelled"
            self.add("CANCELLED", {})
            self._withdraw()

    def _purged(self, op: Purged, group: GroupStory) -> None:
        if self.offset in op.offsets:
            self._judge.purged(group)

    def _redriven(self, op: Redriven, group: GroupStory) -> None:
        if self.offset in op.offsets:
            self._judge.redriven(op, group)


_TELLING: dict[type, Callable[[Story, Any, Any], None]] = {
    Delivered: Story._delivered,
    DeliveredToStream: Story._delivered,
    Settled: Story._settled,
    Expired: Story._expired,
    Own: lambda story, op, group: story._judge.owned(op, group),
    StreamsEnded: lambda story, op, group: story._judge.streams_ended(op, group),
    Committed: lambda story, op, group: story._judge.committed(op, group),
    Sought: lambda story, op, group: story._judge.sought(op, group),
    Cancelled: Story._cancelled,
    Purged: Story._purged,
    Redriven: Story._redriven,
}
