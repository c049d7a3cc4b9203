"""What the queue did with one message: its entries in order, judged as they were when they applied.

Whoever reads entries may leave out those that don't name the message: what time alone brings about
(`next_due_ms`) must then be told by the first entry that has that time, see `advances`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from delivery.chronicle import HALTED, NOT_GRANTED, Chronicle, GroupPast, Position
from delivery.config import VISIBILITY_MS_MAX, GroupConfig, QueueConfig, bounded
from delivery.group_failures import FENCED, TIMED_OUT
from delivery.keys import NO_KEY, key_hash
from delivery.ops import (
    ACK,
    EXTEND,
    NACK,
    REJECT,
    Cancelled,
    Committed,
    Delivered,
    Expired,
    Op,
    Own,
    Purged,
    Redriven,
    Settled,
    Sought,
    decode_ops,
)
from delivery.records import decode_trim
from delivery.survivors import decode_compaction
from delivery.timeline_groups import Attributes, GroupStory, Place, TimelineEvent
from log.entry import Entry, EntryKind

VISIBILITY_TIMEOUT, CONSUMER_LOST = "visibility_timeout", "consumer_lost"
_LAST, _NOW = 1 << 30, 1 << 62
_IDLE = (EntryKind.NOOP, EntryKind.VOTERS)
_STARTS = (EntryKind.TRIM, EntryKind.COMPACT)


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


class Story:
    """One message from the entry `index` on, which stores it or tells of it so far."""

    def __init__(self, offset: int, chronicle: Chronicle, record: StoryRecord) -> None:
        self.offset = offset
        self.index = record.index
        self.key = record.key
        self.fate = record.fate
        """`delayed` until it is due, then nothing; or `cancelled`, or `expired`."""
        self.kept = record.kept
        """Whether the log begins after it."""
        self.in_stream = record.in_stream
        """Whether compaction has kept it."""
        self.omitted = record.omitted
        self.events = list(record.events)
        self.groups = {group.id: msgspec.structs.replace(group) for group in record.groups}
        self._chronicle = chronicle
        self._due_ms, self._expires_ms = record.due_ms, record.expires_ms
        self._late_until_ms = record.late_until_ms
        self._config = QueueConfig()
        self._configs: dict[int, GroupConfig] = {}
        self._changes = self._all_changes()
        self._change = next(self._changes, None)
        self._now_ms = 0
        self._at: Position = (record.index, 0)
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
        )

    def states(self) -> dict[str, str]:
        """Group -> state, of those that the message is or was for."""
        return {
            group.name: group.state(self.fate)
            for group in self.groups.values()
            if group.place != "never"
        }

    @property
    def config(self) -> QueueConfig:
        """The partition's settings as of the newest entry that was told."""
        return self._config

    @property
    def is_in_flight(self) -> bool:
        return any(group.place == "leased" for group in self.groups.values())

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
        self._at = entry.index, -1
        self._now_ms = entry.time_ms
        self._advance(entry.time_ms)
        if entry.kind == EntryKind.QUEUE:
            for number, op in enumerate(decode_ops(entry.body)):
                self.tell_op(op, number)
        elif entry.kind in _STARTS and not self._chronicle.did_nothing(entry.index, 0):
            self._trimmed(entry)

    def tell_op(self, op: Op, number: int) -> None:
        """Take an operation of this entry."""
        at = self._at[0], number
        telling = _TELLING.get(type(op))
        if telling is None:
            return
        self._catch_up(at)
        self._at = at
        group = self.groups.get(getattr(op, "group", 0))
        if group is None and not isinstance(op, Cancelled):
            return
        if not self._chronicle.did_nothing(*at):
            telling(self, op, group)

    # -- what is not the message's own

    def _all_changes(self) -> Iterator[tuple[Position, Any, Any]]:
        settings = [(at, None, config) for at, config in self._chronicle.settings]
        return iter(sorted([*self._chronicle.changes(), *settings], key=lambda change: change[0]))

    def _catch_up(self, at: Position, *, known: bool = False) -> None:
        """Settings and groups as of this operation; `known`: as the message is stored."""
        while self._change is not None and self._change[0] <= at:
            _at, past, config = self._change
            if past is None:
                self._config = config
            elif config is None:
                self.groups.pop(past.id, None)
                self._configs.pop(past.id, None)
            else:
                is_new = past.id not in self._configs
                self._configs[past.id] = config
                if is_new and past.id not in self.groups:
                    place: Place = "coming" if known or self._is_for(past) else "never"
                    self.groups[past.id] = GroupStory(past.id, past.name, place)
            self._change = next(self._changes, None)

    def _is_for(self, past: GroupPast) -> bool:
        """Whether a group that begins now gets the message."""
        if self.offset < past.base or self.fate in ("cancelled", "expired"):
            return False
        late = self._late_until_ms > past.opened_ms
        return not self.kept or self.in_stream or self.fate == "delayed" or late

    def _advance(self, now_ms: int) -> None:
        if self.fate == "delayed" and self._due_ms <= now_ms:
            self.fate = ""
            if self._config.retention_ms >= 0:
                self._late_until_ms = self._due_ms + self._config.retention_ms
            self._add("DUE", {})
        if self._expires_ms and self._expires_ms <= now_ms and self.fate in ("", "delayed"):
            self.fate = "expired"
            self._add("EXPIRED", {})
            self._withdraw()
        keep_ms = self._config.dead_retention_ms
        if keep_ms < 0:
            return
        for group in self.groups.values():
            if group.place == "dead" and keep_ms < now_ms - group.died_ms:
                group.settle()
                self._tell(group, "PURGED", {"reason": "dead_retention"})

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
            self._add("KEPT", {"log_start": start})

    # -- operations

    def _delivered(self, op: Delivered, group: GroupStory) -> None:
        if self.offset not in op.offsets:
            return
        if self._chronicle.excepts(*self._at, NOT_GRANTED, self.offset):
            return
        until_ms = self._now_ms + bounded(op.visibility_ms, 0, VISIBILITY_MS_MAX)
        group.lease(self._at[0], op.member, until_ms)
        what = {**_consumer(op.member), "attempt": group.failed + 1, "visible_until_ms": until_ms}
        self._tell(group, "DELIVERED", what)

    def _settled(self, op: Settled, group: GroupStory) -> None:
        for delivery, offsets in op.deliveries:
            if not group.holds(delivery) or self.offset not in offsets:
                continue
            by = _consumer(group.consumer)
            attempt: Attributes = {**by, "attempt": group.failed + 1}
            if op.action == ACK:
                group.settle()
                self._tell(group, "ACKNOWLEDGED", attempt)
            elif op.action == EXTEND:
                visible_ms = bounded(op.visibility_ms, 0, VISIBILITY_MS_MAX)
                group.deadline_ms = self._now_ms + visible_ms
                what = {**attempt, "visible_until_ms": group.deadline_ms}
                self._tell(group, "EXTENDED", what)
            elif op.action == NACK:
                what = _with_reason(attempt, op.reason)
                self._fail(group, "NACKED", what, op.reason, op.delay_ms)
            elif op.action == REJECT:
                self._tell(group, "REJECTED", _with_reason(attempt, op.reason))
                group.failed += 1
                self._kill(group, op.reason)
            else:
                self._release(group, by, max(0, op.delay_ms))

    def _expired(self, op: Expired, group: GroupStory) -> None:
        for delivery, offsets in op.deliveries:
            held = group.holds(delivery) and group.deadline_ms <= self._now_ms
            if held and self.offset in offsets:
                self._lose(group, VISIBILITY_TIMEOUT, TIMED_OUT, -1)

    def _owned(self, op: Own, group: GroupStory) -> None:
        if group.place == "leased" and group.consumer != op.member:
            if op.fence:
                self._lose(group, CONSUMER_LOST, FENCED, 0)
            else:
                self._release(group, _consumer(group.consumer), 0)

    def _committed(self, op: Committed, group: GroupStory) -> None:
        if self.offset < op.offset and group.place in ("coming", "leased"):
            by = _consumer(group.consumer or op.member)
            group.settle()
            self._tell(group, "ACKNOWLEDGED", {**by, "committed_offset": op.offset})

    def _sought(self, op: Sought, group: GroupStory) -> None:
        before, failed = group.place, group.failed
        if before in ("dead", "over"):
            return
        if self.offset < op.offset:
            if before in ("coming", "leased"):
                self._tell(group, "SKIPPED", {"to_offset": op.offset})
                group.settle()
            return
        delayed = self.fate == "delayed"
        again = not self.kept or self.in_stream or delayed
        if self.fate in ("cancelled", "expired"):
            group.settle("over")
        elif again or before in ("coming", "leased"):
            redrives = 0 if again else group.redrives
            group.settle("coming")
            group.redrives, group.reason = redrives, ""
            if before != "coming" or failed:
                self._tell(group, "REPLAYED", {"from_offset": op.offset})

    def _cancelled(self, op: Cancelled, _group: None) -> None:
        if self.fate == "delayed" and self.offset in op.offsets:
            self.fate = "cancelled"
            self._add("CANCELLED", {})
            self._withdraw()

    def _purged(self, op: Purged, group: GroupStory) -> None:
        if group.place == "dead" and self.offset in op.offsets:
            group.settle()
            self._tell(group, "PURGED", {})

    def _redriven(self, op: Redriven, group: GroupStory) -> None:
        if group.place != "dead" or self.offset not in op.offsets:
            return
        looping = group.redrives >= self._settings_of(group).redrives_max and not op.force
        if looping or self.fate in ("cancelled", "expired"):
            return
        redrives = group.redrives + 1
        group.settle("coming")
        group.redrives = redrives
        self._tell(group, "REDRIVEN", {"job": op.job} if op.job else {})

    # -- failures

    def _settings_of(self, group: GroupStory) -> GroupConfig:
        return self._configs.get(group.id) or GroupConfig()

    def _fail(
        self, group: GroupStory, type_: str, what: Attributes, reason: str, delay_ms: int
    ) -> None:
        """One more failed attempt, and what becomes of the message: it is only redelivered where
        it comes again."""
        if self.fate in ("cancelled", "expired"):
            group.settle("over")
            if type_ == "NACKED":
                self._tell(group, type_, what)
            return
        config = self._settings_of(group)
        group.failed += 1
        if 0 < config.max_attempts <= group.failed:
            if type_ == "NACKED":
                self._tell(group, type_, what)
            self._kill(group, reason)
            return
        group.reason = reason
        group.retry(config, self._now_ms, delay_ms)
        if group.retry_at_ms:
            what = {**what, "retry_at_ms": group.retry_at_ms}
        self._tell(group, type_, what)

    def _lose(self, group: GroupStory, told: str, reason: str, delay_ms: int) -> None:
        """The lease ends without its holder's word."""
        what: Attributes = {
            **_consumer(group.consumer),
            "attempt": group.failed + 1,
            "reason": told,
        }
        self._fail(group, "REDELIVERED", what, reason, delay_ms)

    def _release(self, group: GroupStory, by: Attributes, delay_ms: int) -> None:
        group.attempts -= 1
        if self.fate in ("cancelled", "expired"):
            group.settle("over")
        else:
            group.retry(self._settings_of(group), self._now_ms, delay_ms)
        self._tell(group, "RELEASED", by)

    def _kill(self, group: GroupStory, reason: str) -> None:
        """It has failed for good: dead, unless its key is parked or the group halts."""
        config = self._settings_of(group)
        group.reason = reason
        what = _with_reason({"attempts": group.failed}, reason)
        keyed = self.key is not None and key_hash(self.key) != NO_KEY
        if config.ordering == "key" and config.on_poison == "park" and keyed:
            group.end_lease("coming")
            group.failed = 0
            self._tell(group, "PARKED", what)
        elif self._chronicle.excepts(*self._at, HALTED, self.offset):
            group.end_lease("coming")
            self._tell(group, "HALTED", what)
        else:
            group.end_lease("dead")
            group.failed, group.died_ms = 0, self._now_ms
            self._tell(group, "DEAD_LETTERED", what)

    # -- events

    def _tell(self, group: GroupStory, type_: str, what: Attributes) -> None:
        self._add(type_, {"group": group.name, **what})

    def _add(self, type_: str, what: Attributes) -> None:
        self.events.append((self._now_ms, type_, what))


def _consumer(member: str) -> Attributes:
    return {"consumer": member, "member": member} if member else {}


def _with_reason(what: Attributes, reason: str) -> Attributes:
    return {**what, "reason": reason} if reason else what


_TELLING: dict[type, Callable[[Story, Any, Any], None]] = {
    Delivered: Story._delivered,
    Settled: Story._settled,
    Expired: Story._expired,
    Own: Story._owned,
    Committed: Story._committed,
    Sought: Story._sought,
    Cancelled: Story._cancelled,
    Purged: Story._purged,
    Redriven: Story._redriven,
}
