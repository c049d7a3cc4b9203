"""Events of every message as seen from outside: what each operation changed in the real queue.

It knows nothing of entries or of how they are judged: it looks where every message is before and
after each step, and at what the operation resulted in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from delivery.entries.ops import (
    ACK,
    EXTEND,
    NACK,
    OK,
    REJECT,
    Cancelled,
    Committed,
    Delivered,
    Expired,
    Own,
    Purged,
    Redriven,
    Settled,
    Sought,
    StreamsEnded,
)
from delivery.group.lag import coming
from delivery.group.state import GroupState
from delivery.state.queue import QueueState
from delivery.timeline.groups import TimelineEvent


@dataclass(slots=True)
class Seen:
    """Where a group's messages are, and how often each has failed."""

    leased: dict[int, tuple[int, str, int, str]]
    coming: set[int]
    dead: dict[int, tuple[int, str]]
    failed: dict[int, int]

    def place(self, offset: int) -> str:
        if offset in self.leased:
            return "leased"
        if offset in self.dead:
            return "dead"
        return "coming" if offset in self.coming else "settled"


def see(group: GroupState) -> Seen:
    leases = {offset: group.leases.get(offset) for offset in group.leases}
    known = {*leases, *coming(group), *group.dead}
    return Seen(
        {
            o: (lease.delivery, lease.member, lease.deadline_ms, str(lease.stream or ""))
            for o, lease in leases.items()
            if lease
        },
        set(coming(group)),
        {o: (letter.attempts, letter.reason) for o, letter in group.dead.items()},
        {o: group.failures.count(o) for o in known},
    )


@dataclass(slots=True)
class Recorder:
    """`events` of each offset, in order."""

    events: dict[int, list[TimelineEvent]] = field(default_factory=dict[int, list[TimelineEvent]])
    kept: set[int] = field(default_factory=set[int])
    watched: QueueState | None = None

    def watch(self, queue: QueueState) -> None:
        """Look at each step of this queue from now on."""
        if self.watched is queue:
            return
        self.watched = queue
        apply, advance, trim = queue._apply, queue.advance, queue.trim
        stands_in: Any = queue

        def applying(op: Any, index: int, time_ms: int) -> Any:
            return self._applied(queue, op, index, time_ms, apply)

        def advancing(now_ms: int) -> None:
            self._advanced(queue, now_ms, advance)

        def trimming(index: int, offset: int) -> None:
            trim(index, offset)
            for kept in {*queue.reappended} - self.kept:
                if kept < offset:
                    self.kept.add(kept)
                    self._add(kept, queue.time_ms, "KEPT", log_start=offset)

        stands_in._apply, stands_in.advance, stands_in.trim = applying, advancing, trimming

    def _add(self, offset: int, time_ms: int, type_: str, **what: Any) -> None:
        self.events.setdefault(offset, []).append((time_ms, type_, what))

    # -- time

    def _advanced(self, queue: QueueState, now_ms: int, advance: Callable[[int], None]) -> None:
        due = {o: queue.delays.time_of(o) or 0 for o in queue.hidden}
        withdrawn = set(queue.withdrawn)
        dead = {id: set(group.dead) for id, group in queue.groups.items()}
        advance(now_ms)
        for offset, due_ms in due.items():
            if due_ms <= now_ms:
                self._add(offset, now_ms, "DUE")
        for offset in set(queue.withdrawn) - withdrawn:
            self._add(offset, now_ms, "EXPIRED")
        for id, group in sorted(queue.groups.items()):
            for offset in dead[id] - set(group.dead):
                self._add(offset, now_ms, "PURGED", group=group.name, reason="dead_retention")

    # -- operations

    def _applied(
        self, queue: QueueState, op: Any, index: int, now_ms: int, apply: Callable[..., Any]
    ) -> Any:
        group = queue.groups.get(getattr(op, "group", 0))
        hidden = set(queue.hidden)
        known = queue.results.of(op.request) if getattr(op, "request", 0) else None
        before = None if group is None else see(group)
        result = apply(op, index, now_ms)
        if isinstance(op, Cancelled):
            for offset in sorted(hidden - set(queue.hidden)):
                self._add(offset, now_ms, "CANCELLED")
        elif group is not None and before is not None and (known is None or result != known):
            step = _Step(self, group, before, see(group), index, now_ms)
            step.tell(op, result, range(queue.next_offset))
        return result


@dataclass(slots=True)
class _Step:
    recorder: Recorder
    group: GroupState
    before: Seen
    after: Seen
    index: int
    now_ms: int

    def add(self, offset: int, type_: str, **what: Any) -> None:
        self.recorder._add(offset, self.now_ms, type_, group=self.group.name, **what)

    def by(self, member: str) -> dict[str, str]:
        return {"consumer": member, "member": member} if member else {}

    def tell(self, op: Any, result: Any, stored: Sequence[int]) -> None:
        if isinstance(op, Settled):
            self.settled(op, getattr(result, "settles", []))
            return
        for offset in stored:
            self.moved(op, offset, self.before.place(offset), self.after.place(offset))

    def moved(self, op: Any, offset: int, was: str, is_: str) -> None:
        failed = self.before.failed.get(offset, 0)
        lease = self.after.leased.get(offset, (0, "", 0, ""))
        holder = self.before.leased.get(offset, (0, "", 0, ""))[1]
        if isinstance(op, Delivered):
            if is_ == "leased" and was != "leased":
                what: dict[str, Any] = {"attempt": failed + 1}
                what |= {"visible_until_ms": lease[2]} if lease[2] else {}
                what |= {"stream": lease[3]} if lease[3] else {}
                self.add(offset, "DELIVERED", **self.by(lease[1]), **what)
        elif isinstance(op, Expired | Own | StreamsEnded):
            if was == "leased" and is_ != "leased":
                self.ended(op, offset, is_, failed + 1, holder)
        elif isinstance(op, Committed):
            if was in ("coming", "leased") and is_ == "settled":
                by = self.by(holder or op.member)
                self.add(offset, "ACKNOWLEDGED", **by, committed_offset=op.offset)
        elif isinstance(op, Sought):
            self.sought(op, offset, was, is_, failed)
        elif isinstance(op, Purged) and (was, is_) == ("dead", "settled"):
            self.add(offset, "PURGED")
        elif isinstance(op, Redriven) and (was, is_) == ("dead", "coming"):
            self.add(offset, "REDRIVEN", **({"job": op.job} if op.job else {}))

    def ended(
        self, op: Expired | Own | StreamsEnded, offset: int, is_: str, attempt: int, holder: str
    ) -> None:
        if (isinstance(op, Own) and not op.fence) or (isinstance(op, StreamsEnded) and not op.lost):
            self.add(offset, "RELEASED", **self.by(holder))
            return
        told, reason = "visibility_timeout", "visibility timeout"
        if not isinstance(op, Expired):
            told, reason = "consumer_lost", "consumer lost"
        final = 0 < self.group.config.max_attempts <= attempt
        if is_ == "coming" and not final:
            what: dict[str, Any] = {"attempt": attempt, "reason": told}
            waits = self.group.waiting.get(offset)
            if waits is not None:
                what["retry_at_ms"] = waits[0]
            self.add(offset, "REDELIVERED", **self.by(holder), **what)
        elif is_ != "settled":
            self.finally_(offset, is_, attempt, reason)

    def finally_(self, offset: int, is_: str, attempts: int, reason: str) -> None:
        type_ = "DEAD_LETTERED"
        if is_ == "coming":
            type_ = "HALTED" if self.group.failures.count(offset) else "PARKED"
        self.add(offset, type_, attempts=attempts, **({"reason": reason} if reason else {}))

    def sought(self, op: Sought, offset: int, was: str, is_: str, failed: int) -> None:
        if was in ("coming", "leased") and is_ == "settled" and offset < op.offset:
            self.add(offset, "SKIPPED", to_offset=op.offset)
        elif is_ == "coming" and offset >= op.offset:
            forgiven = failed and not self.after.failed.get(offset, 0)
            if was != "coming" or forgiven:
                self.add(offset, "REPLAYED", from_offset=op.offset)

    def settled(self, op: Settled, settles: Sequence[Any]) -> None:
        told = iter(settles)
        reason = {"reason": op.reason} if op.reason else {}
        for _delivery, offsets in op.deliveries:
            for offset in offsets:
                settle = next(told)
                if settle.code != OK:
                    continue
                by = self.by(self.before.leased[offset][1])
                attempt = {**by, "attempt": self.before.failed[offset] + 1}
                if op.action == ACK:
                    self.add(offset, "ACKNOWLEDGED", **attempt)
                elif op.action == EXTEND:
                    until_ms = settle.visible_at_ms
                    self.add(offset, "EXTENDED", **attempt, visible_until_ms=until_ms)
                elif op.action in (NACK, REJECT):
                    what = {**attempt, **reason}
                    if settle.outcome == "requeued" and settle.visible_at_ms > self.now_ms:
                        what["retry_at_ms"] = settle.visible_at_ms
                    self.add(offset, "NACKED" if op.action == NACK else "REJECTED", **what)
                    self.outcome(offset, settle, op.reason)
                else:
                    self.add(offset, "RELEASED", **by)

    def outcome(self, offset: int, settle: Any, reason: str) -> None:
        types = {"dead": "DEAD_LETTERED", "parked": "PARKED", "halted": "HALTED"}
        if settle.outcome in types:
            what = {"reason": reason} if reason else {}
            self.add(offset, types[settle.outcome], attempts=settle.attempts, **what)
