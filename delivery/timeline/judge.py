"""What operations do to one message, by the rules that `delivery.group` has for many.

Whoever tells of messages says which one is meant (`Subject`), and what it is told is its to keep.
"""

from __future__ import annotations

from typing import Protocol

from delivery.config import GroupConfig
from delivery.entries.ops import (
    ACK,
    EXTEND,
    NACK,
    REJECT,
    Committed,
    Delivered,
    DeliveredToStream,
    Own,
    Redriven,
    Settled,
    Sought,
    StreamsEnded,
)
from delivery.group.rules import (
    FENCED,
    NO_DEADLINE,
    TIMED_OUT,
    after_failure,
    after_last,
    granted_until_ms,
    is_ended,
    is_redriven,
    is_run_out,
    lease_end_ms,
)
from delivery.history.outcome_notes import HALTED, OutcomeNotes, Position
from delivery.timeline.groups import Attributes, GroupStory

VISIBILITY_TIMEOUT, CONSUMER_LOST = "visibility_timeout", "consumer_lost"


class Subject(Protocol):
    """The message that is judged now, and who is told."""

    offset: int
    fate: str
    """`delayed` until it is due, then nothing; or `cancelled`, or `expired`."""
    kept: bool
    """Whether the log begins after it."""
    in_stream: bool
    """Whether compaction has kept it."""

    @property
    def has_key(self) -> bool:
        """Whether it has a key that is not empty."""
        ...

    def add(self, type_: str, what: Attributes) -> None:
        """Something happened to the message, at this time."""
        ...


class Judge:
    """One message at a time, judged as of the operation `at`, which applied at `now_ms`."""

    def __init__(self, outcome_notes: OutcomeNotes, subject: Subject) -> None:
        self.outcome_notes = outcome_notes
        self.configs: dict[int, GroupConfig] = {}
        """Settings of groups, as of the operation."""
        self.now_ms = 0
        self.at: Position = (0, 0)
        self._subject = subject

    # -- operations that name the message

    def delivered(self, op: Delivered, group: GroupStory) -> None:
        """It was granted."""
        until_ms = granted_until_ms(op, self.now_ms)
        stream = op.stream if isinstance(op, DeliveredToStream) else None
        group.lease(self.at[0], op.member, until_ms, stream)
        what: Attributes = {**_consumer(op.member), "attempt": group.failed + 1}
        if until_ms != NO_DEADLINE:
            what["visible_until_ms"] = until_ms
        if stream is not None:
            what["stream"] = str(stream)
        self.tell(group, "DELIVERED", what)

    def settled(self, op: Settled, delivery: int, group: GroupStory) -> None:
        """Of its lease in this delivery."""
        if not group.holds(delivery):
            return
        by = _consumer(group.consumer)
        attempt: Attributes = {**by, "attempt": group.failed + 1}
        if op.action == ACK:
            group.settle()
            self.tell(group, "ACKNOWLEDGED", attempt)
        elif op.action == EXTEND:
            group.deadline_ms = lease_end_ms(self.now_ms, op.visibility_ms)
            self.tell(group, "EXTENDED", {**attempt, "visible_until_ms": group.deadline_ms})
        elif op.action == NACK:
            what = _with_reason(attempt, op.reason)
            self._fail(group, "NACKED", what, op.reason, op.delay_ms)
        elif op.action == REJECT:
            self.tell(group, "REJECTED", _with_reason(attempt, op.reason))
            group.failed += 1
            self._kill(group, op.reason)
        else:
            self._release(group, by, max(0, op.delay_ms))

    def timed_out(self, delivery: int, group: GroupStory) -> None:
        if group.holds(delivery) and is_run_out(group.deadline_ms, self.now_ms):
            self._lose(group, VISIBILITY_TIMEOUT, TIMED_OUT, -1)

    def purged(self, group: GroupStory) -> None:
        if group.place == "dead":
            group.settle()
            self.tell(group, "PURGED", {})

    def redriven(self, op: Redriven, group: GroupStory) -> None:
        if group.place != "dead":
            return
        config, is_withdrawn = self._settings_of(group), self._is_withdrawn
        if not is_redriven(config, group.redrives, force=op.force, is_withdrawn=is_withdrawn):
            return
        redrives = group.redrives + 1
        group.settle("coming")
        group.redrives = redrives
        self.tell(group, "REDRIVEN", {"job": op.job} if op.job else {})

    # -- operations that may concern any message

    def owned(self, op: Own, group: GroupStory) -> None:
        if group.place == "leased" and group.consumer != op.member:
            if op.fence:
                self._lose(group, CONSUMER_LOST, FENCED, 0)
            else:
                self._release(group, _consumer(group.consumer), 0)

    def streams_ended(self, op: StreamsEnded, group: GroupStory) -> None:
        if group.place == "leased" and is_ended(group.stream, op):
            if op.lost:
                self._lose(group, CONSUMER_LOST, FENCED, 0)
            else:
                self._release(group, _consumer(group.consumer), 0)

    def committed(self, op: Committed, group: GroupStory) -> None:
        if self._subject.offset < op.offset and group.place in ("coming", "leased"):
            by = _consumer(group.consumer or op.member)
            group.settle()
            self.tell(group, "ACKNOWLEDGED", {**by, "committed_offset": op.offset})

    def sought(self, op: Sought, group: GroupStory) -> None:
        before, failed = group.place, group.failed
        if before in ("dead", "over"):
            return
        if self._subject.offset < op.offset:
            if before in ("coming", "leased"):
                self.tell(group, "SKIPPED", {"to_offset": op.offset})
                group.settle()
            return
        delayed = self._subject.fate == "delayed"
        again = not self._subject.kept or self._subject.in_stream or delayed
        if self._is_withdrawn:
            group.settle("over" if again or before != "never" else "never")
        elif again or before in ("coming", "leased"):
            redrives = 0 if again else group.redrives
            group.settle("coming")
            group.redrives, group.reason = redrives, ""
            if before != "coming" or failed:
                self.tell(group, "REPLAYED", {"from_offset": op.offset})

    # -- failures

    @property
    def _is_withdrawn(self) -> bool:
        """Never delivered any more."""
        return self._subject.fate in ("cancelled", "expired")

    def _settings_of(self, group: GroupStory) -> GroupConfig:
        return self.configs.get(group.id) or GroupConfig()

    def _fail(
        self, group: GroupStory, type_: str, what: Attributes, reason: str, delay_ms: int
    ) -> None:
        """One more failed attempt, and what becomes of the message: it is only redelivered where
        it comes again."""
        config = self._settings_of(group)
        after = after_failure(config, group.failed + 1, is_withdrawn=self._is_withdrawn)
        if after != "again" and type_ == "NACKED":
            self.tell(group, type_, what)
        if after == "over":
            group.settle("over")
            return
        group.failed += 1
        if after == "last":
            self._kill(group, reason)
            return
        group.reason = reason
        group.retry(config, self.now_ms, delay_ms)
        if group.retry_at_ms:
            what = {**what, "retry_at_ms": group.retry_at_ms}
        self.tell(group, type_, what)

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
        if self._is_withdrawn:
            group.settle("over")
        else:
            group.retry(self._settings_of(group), self.now_ms, delay_ms)
        self.tell(group, "RELEASED", by)

    def _kill(self, group: GroupStory, reason: str) -> None:
        """It has failed for good."""
        config = self._settings_of(group)
        group.reason = reason
        what = _with_reason({"attempts": group.failed}, reason)
        after = after_last(
            config,
            has_key=self._subject.has_key,
            halts=self.outcome_notes.excepts(*self.at, HALTED, self._subject.offset),
            is_withdrawn=self._is_withdrawn,
        )
        if after == "over":
            group.settle("over")
        elif after == "parked":
            group.end_lease("coming")
            group.failed = 0
            self.tell(group, "PARKED", what)
        elif after == "halted":
            group.end_lease("coming")
            self.tell(group, "HALTED", what)
        else:
            group.end_lease("dead")
            group.failed, group.died_ms = 0, self.now_ms
            self.tell(group, "DEAD_LETTERED", what)

    def tell(self, group: GroupStory, type_: str, what: Attributes) -> None:
        """Something happened to the message in this group."""
        self._subject.add(type_, {"group": group.name, **what})


def _consumer(member: str) -> Attributes:
    return {"consumer": member, "member": member} if member else {}


def _with_reason(what: Attributes, reason: str) -> Attributes:
    return {**what, "reason": reason} if reason else what
