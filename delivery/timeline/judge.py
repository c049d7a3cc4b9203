"""What operations do to one message: the rules, the same as `delivery.group` has for many.

Whoever tells of messages says which one is meant (`Judge`), and what it is told is its to keep.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from delivery.config import VISIBILITY_MS_MAX, GroupConfig, bounded
from delivery.entries.ops import (
    ACK,
    EXTEND,
    NACK,
    REJECT,
    Committed,
    Delivered,
    Own,
    Redriven,
    Settled,
    Sought,
)
from delivery.group.rules import FENCED, TIMED_OUT
from delivery.history.outcome_notes import HALTED, Chronicle, Position
from delivery.timeline.groups import Attributes, GroupStory

VISIBILITY_TIMEOUT, CONSUMER_LOST = "visibility_timeout", "consumer_lost"


class Judge(ABC):
    """One message at a time, judged as of an operation."""

    def __init__(self, chronicle: Chronicle) -> None:
        self.offset = 0
        self.fate = ""
        """`delayed` until it is due, then nothing; or `cancelled`, or `expired`."""
        self.kept = False
        """Whether the log begins after it."""
        self.in_stream = False
        """Whether compaction has kept it."""
        self._chronicle = chronicle
        self._configs: dict[int, GroupConfig] = {}
        self._now_ms = 0
        self._at: Position = (0, 0)

    @abstractmethod
    def add(self, type_: str, what: Attributes) -> None:
        """Something happened to the message, at this time."""

    @property
    @abstractmethod
    def has_key(self) -> bool:
        """Whether it has a key that is not empty."""

    # -- operations that name the message

    def delivered(self, op: Delivered, group: GroupStory) -> None:
        """It was granted."""
        until_ms = self._now_ms + bounded(op.visibility_ms, 0, VISIBILITY_MS_MAX)
        group.lease(self._at[0], op.member, until_ms)
        what = {**_consumer(op.member), "attempt": group.failed + 1, "visible_until_ms": until_ms}
        self._tell(group, "DELIVERED", what)

    def settled(self, op: Settled, delivery: int, group: GroupStory) -> None:
        """Of its lease in this delivery."""
        if not group.holds(delivery):
            return
        by = _consumer(group.consumer)
        attempt: Attributes = {**by, "attempt": group.failed + 1}
        if op.action == ACK:
            group.settle()
            self._tell(group, "ACKNOWLEDGED", attempt)
        elif op.action == EXTEND:
            group.deadline_ms = self._now_ms + bounded(op.visibility_ms, 0, VISIBILITY_MS_MAX)
            self._tell(group, "EXTENDED", {**attempt, "visible_until_ms": group.deadline_ms})
        elif op.action == NACK:
            what = _with_reason(attempt, op.reason)
            self._fail(group, "NACKED", what, op.reason, op.delay_ms)
        elif op.action == REJECT:
            self._tell(group, "REJECTED", _with_reason(attempt, op.reason))
            group.failed += 1
            self._kill(group, op.reason)
        else:
            self._release(group, by, max(0, op.delay_ms))

    def timed_out(self, delivery: int, group: GroupStory) -> None:
        if group.holds(delivery) and group.deadline_ms <= self._now_ms:
            self._lose(group, VISIBILITY_TIMEOUT, TIMED_OUT, -1)

    def purged(self, group: GroupStory) -> None:
        if group.place == "dead":
            group.settle()
            self._tell(group, "PURGED", {})

    def redriven(self, op: Redriven, group: GroupStory) -> None:
        if group.place != "dead":
            return
        looping = group.redrives >= self._settings_of(group).redrives_max and not op.force
        if looping or self.fate in ("cancelled", "expired"):
            return
        redrives = group.redrives + 1
        group.settle("coming")
        group.redrives = redrives
        self._tell(group, "REDRIVEN", {"job": op.job} if op.job else {})

    # -- operations that may concern any message

    def owned(self, op: Own, group: GroupStory) -> None:
        if group.place == "leased" and group.consumer != op.member:
            if op.fence:
                self._lose(group, CONSUMER_LOST, FENCED, 0)
            else:
                self._release(group, _consumer(group.consumer), 0)

    def committed(self, op: Committed, group: GroupStory) -> None:
        if self.offset < op.offset and group.place in ("coming", "leased"):
            by = _consumer(group.consumer or op.member)
            group.settle()
            self._tell(group, "ACKNOWLEDGED", {**by, "committed_offset": op.offset})

    def sought(self, op: Sought, group: GroupStory) -> None:
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
            group.settle("over" if again or before != "never" else "never")
        elif again or before in ("coming", "leased"):
            redrives = 0 if again else group.redrives
            group.settle("coming")
            group.redrives, group.reason = redrives, ""
            if before != "coming" or failed:
                self._tell(group, "REPLAYED", {"from_offset": op.offset})

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
        """It has failed for good: dead, unless its key is parked or the group halts; what has
        expired is over there."""
        config = self._settings_of(group)
        group.reason = reason
        what = _with_reason({"attempts": group.failed}, reason)
        parks = config.ordering == "key" and config.on_poison == "park" and self.has_key
        halts = self._chronicle.excepts(*self._at, HALTED, self.offset)
        if (parks or halts) and self.fate in ("cancelled", "expired"):
            group.settle("over")
        elif parks:
            group.end_lease("coming")
            group.failed = 0
            self._tell(group, "PARKED", what)
        elif halts:
            group.end_lease("coming")
            self._tell(group, "HALTED", what)
        else:
            group.end_lease("dead")
            group.failed, group.died_ms = 0, self._now_ms
            self._tell(group, "DEAD_LETTERED", what)

    def _tell(self, group: GroupStory, type_: str, what: Attributes) -> None:
        self.add(type_, {"group": group.name, **what})


def _consumer(member: str) -> Attributes:
    return {"consumer": member, "member": member} if member else {}


def _with_reason(what: Attributes, reason: str) -> Attributes:
    return {**what, "reason": reason} if reason else what
