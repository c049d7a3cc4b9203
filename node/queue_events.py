"""What the queue did with one message, as the operations in the log after it tell.

Operations are judged when they apply, and the log keeps what was asked: a delivery of a message
that was leased or settled already is no event, and so is a settle under another delivery.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from delivery.config import GroupConfig
from delivery.ops import (
    ACK,
    EXTEND,
    NACK,
    REJECT,
    Cancelled,
    Committed,
    Delivered,
    DropGroup,
    Expired,
    OpenGroup,
    Purged,
    Redriven,
    Settled,
    Sought,
    decode_ops,
)
from goqueue.wire.types import Index, Offset
from log.entry import Entry, EntryKind
from node.partition import PartitionHost

ENTRIES_MAX = 50_000
"""Entries after the message's that are searched for what became of it."""
STEP_BYTES = 512 << 10
"""Read before the loop is given back."""
STEP_ENTRIES = 256
NEVER_MS = 1 << 63

Attributes = dict[str, str | int | list[str]]
Event = tuple[int, str, Attributes]


async def queue_events(
    host: PartitionHost,
    offset: Offset,
    after: Index,
    deliver_at_ms: int | None,
    expires_at_ms: int | None,
) -> list[Event]:
    """Events of one message in the order of the log, from the entry after `after` on."""
    story = _Story(host, offset, deliver_at_ms or 0, expires_at_ms or NEVER_MS)
    last = min(host.applied_index, Index(after + ENTRIES_MAX))
    index = Index(after + 1)
    time_ms = 0
    while index <= last:
        entries = host.log.entries(index, max_bytes=STEP_BYTES, max_count=STEP_ENTRIES)
        if not entries:
            break
        for entry in entries:
            if entry.kind == EntryKind.QUEUE and entry.index <= last:
                story.tell(entry)
                time_ms = entry.time_ms
        index = Index(entries[-1].index + 1)
        await asyncio.sleep(0)
    if last < host.applied_index:
        story.events.append((time_ms, "NOT_SEARCHED_FURTHER", {"entries": ENTRIES_MAX}))
    else:
        story.mend()
    return story.events


@dataclass(slots=True)
class _Group:
    """Where the message is for one group."""

    name: str
    config: GroupConfig
    failed: int = 0
    lease: int | None = None
    state: str = "ready"  # ready | leased | acked | dead


class _Story:
    def __init__(
        self, host: PartitionHost, offset: Offset, deliver_at_ms: int, expires_at_ms: int
    ) -> None:
        self.events: list[Event] = []
        self._host = host
        self._offset = offset
        self._deliver_at_ms = deliver_at_ms
        self._expires_at_ms = expires_at_ms
        self._groups: dict[int, _Group] = {}
        self._cancelled = False

    def tell(self, entry: Entry) -> None:
        """Take the next queue entry."""
        for op in decode_ops(entry.body):
            telling = _TELLING.get(type(op))
            if telling is not None:
                telling(self, op, entry)

    def mend(self) -> None:
        """A death that halted its group instead: the log says what was asked, the state what came
        of it."""
        for id_, told in self._groups.items():
            group = self._host.state.queue.groups.get(id_)
            if told.state != "dead" or group is None or self._offset in group.dead:
                continue
            if self._offset in group.ready or self._offset in group.leases:
                row = max(n for n, event in enumerate(self.events) if _is_death(event, told.name))
                time_ms, _, what = self.events[row]
                self.events[row] = (time_ms, "HALTED", what)

    # operations

    def _opened(self, op: OpenGroup, _entry: Entry) -> None:
        known = self._groups.get(op.group)
        if known is None:
            self._groups[op.group] = _Group(op.name, op.config)
        else:
            known.config = op.config

    def _dropped(self, op: DropGroup, _entry: Entry) -> None:
        self._groups.pop(op.group, None)

    def _delivered(self, op: Delivered, entry: Entry) -> None:
        if self._offset not in op.offsets:
            return
        group = self._group(op.group)
        if group.state != "ready" or self._cancelled or self._is_over(entry):
            return
        group.state, group.lease = "leased", entry.index
        until_ms = entry.time_ms + op.visibility_ms
        what: Attributes = {"attempt": group.failed + 1, "visible_until_ms": until_ms}
        if op.member:
            what["member"] = op.member
        self._add(entry, "DELIVERED", group, what)

    def _settled(self, op: Settled, entry: Entry) -> None:
        group = self._leased(op.group, op.deliveries)
        if group is None:
            return
        attempt: Attributes = {"attempt": group.failed + 1}
        if op.action == ACK:
            group.state, group.lease = "acked", None
            self._add(entry, "ACKNOWLEDGED", group, attempt)
        elif op.action == EXTEND:
            until_ms = entry.time_ms + op.visibility_ms
            self._add(entry, "EXTENDED", group, {**attempt, "visible_until_ms": until_ms})
        elif op.action == NACK:
            self._add(entry, "NACKED", group, _with_reason(attempt, op.reason))
            self._fail(entry, group, op.reason)
        elif op.action == REJECT:
            self._add(entry, "REJECTED", group, _with_reason(attempt, op.reason))
            self._fail(entry, group, op.reason, for_good=True)
        else:
            group.state, group.lease = "ready", None
            self._add(entry, "RELEASED", group, {})

    def _expired(self, op: Expired, entry: Entry) -> None:
        group = self._leased(op.group, op.deliveries)
        if group is not None:
            self._add(entry, "LEASE_EXPIRED", group, {"attempt": group.failed + 1})
            self._fail(entry, group, "visibility timeout")

    def _committed(self, op: Committed, entry: Entry) -> None:
        group = self._group(op.group)
        if self._offset < op.offset and group.state in ("ready", "leased"):
            group.state, group.lease = "acked", None
            self._add(entry, "ACKNOWLEDGED", group, {"committed_offset": op.offset})

    def _sought(self, op: Sought, entry: Entry) -> None:
        group = self._group(op.group)
        if group.state == "dead":
            return
        group.lease = None
        if self._offset >= op.offset:
            if group.state == "acked" and not self._cancelled and not self._is_over(entry):
                self._add(entry, "REPLAYED", group, {"from_offset": op.offset})
            group.state, group.failed = "ready", 0
        else:
            group.state = "acked"

    def _cancelled_at(self, op: Cancelled, entry: Entry) -> None:
        is_pending = entry.time_ms < self._deliver_at_ms and not self._cancelled
        if is_pending and self._offset in op.offsets:
            self._cancelled = True
            self.events.append((entry.time_ms, "CANCELLED", {}))

    def _purged(self, op: Purged, entry: Entry) -> None:
        group = self._group(op.group)
        if self._offset in op.offsets and group.state == "dead":
            group.state = "acked"
            self._add(entry, "PURGED", group, {})

    def _redriven(self, op: Redriven, entry: Entry) -> None:
        group = self._group(op.group)
        if self._offset in op.offsets and group.state == "dead":
            group.state, group.failed = "ready", 0
            self._add(entry, "REDRIVEN", group, {"job": op.job} if op.job else {})

    # private

    def _is_over(self, entry: Entry) -> bool:
        return self._expires_at_ms <= entry.time_ms

    def _group(self, id: int) -> _Group:
        """A group that was opened before the message was published is known by the state."""
        found = self._groups.get(id)
        if found is None:
            known = self._host.state.queue.groups.get(id)
            named = ("", GroupConfig()) if known is None else (known.name, known.config)
            found = self._groups[id] = _Group(*named)
        return found

    def _leased(self, id: int, deliveries: list[tuple[int, list[int]]]) -> _Group | None:
        """The group, where one of these deliveries is the one under which it has the message."""
        for delivery, offsets in deliveries:
            if self._offset in offsets:
                group = self._group(id)
                if group.state == "leased" and group.lease == delivery:
                    return group
        return None

    def _fail(self, entry: Entry, group: _Group, reason: str, *, for_good: bool = False) -> None:
        group.failed += 1
        group.state, group.lease = "acked" if self._is_over(entry) else "ready", None
        if not for_good and group.state == "acked":
            return
        if not for_good and not 0 < group.config.max_attempts <= group.failed:
            return
        if group.config.on_poison == "park":
            group.failed = 0
            self._add(entry, "PARKED", group, _with_reason({}, reason))
            return
        group.state = "dead"
        self._add(entry, "DEAD_LETTERED", group, _with_reason({"attempts": group.failed}, reason))

    def _add(self, entry: Entry, type_: str, group: _Group, what: Attributes) -> None:
        self.events.append((entry.time_ms, type_, {"group": group.name, **what}))


def _is_death(event: Event, group: str) -> bool:
    return event[1] == "DEAD_LETTERED" and event[2].get("group") == group


def _with_reason(what: Attributes, reason: str) -> Attributes:
    return {**what, "reason": reason} if reason else what


_TELLING: dict[type, Callable[[_Story, Any, Entry], None]] = {
    OpenGroup: _Story._opened,
    DropGroup: _Story._dropped,
    Delivered: _Story._delivered,
    Settled: _Story._settled,
    Expired: _Story._expired,
    Committed: _Story._committed,
    Sought: _Story._sought,
    Cancelled: _Story._cancelled_at,
    Purged: _Story._purged,
    Redriven: _Story._redriven,
}
