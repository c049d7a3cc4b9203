"""What is to become of received messages, and what became of each.

A settle is safe to repeat: the second one finds the lease ended and changes nothing. So a call
whose answer was lost repeats itself, and repeats the part that no leader could settle. Where the
repeat then finds a message `not_in_flight`, most likely the lost attempt settled it; as that can't
be known for certain, the error says so with the outcome `unknown`. Whoever acked may take it for
done: if it was not, the message comes again.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from goqueue.http import Answer
from goqueue.times import Duration, datetime_ms, duration_text
from goqueue.wire.errors import GoQueueError, NotInFlight, ServerError
from goqueue.wire.unreadable import UNREADABLE

ACTIONS = ("ack", "nack", "reject", "extend", "release")
SETTLES_MAX = 1000
"""In one request; more are sent in several."""


class Settle(msgspec.Struct, frozen=True):
    """One receipt and what is to become of it.

    `action` is ack, nack, reject, extend or release; `reason` is for nack and reject, `delay` and
    `position` (front, back) for nack, `visibility` for extend.
    """

    receipt: str
    action: str = "ack"
    reason: str = ""
    delay: Duration | None = None
    position: str | None = None
    visibility: Duration | None = None

    def to_body(self) -> dict[str, object]:
        """As it travels. Raises BadRequest on what is no duration. What no text can hold in a
        reason, such as half a surrogate pair of an error about a file's name, is escaped."""
        body: dict[str, object] = {"receipt": self.receipt, "action": self.action}
        if self.reason:
            body["reason"] = self.reason.encode(errors="backslashreplace").decode()
        if self.delay is not None:
            body["delay"] = duration_text(self.delay, "delay")
        if self.position is not None:
            body["position"] = self.position
        if self.visibility is not None:
            body["visibility"] = duration_text(self.visibility, "visibility")
        return body


class Settled(msgspec.Struct, frozen=True):
    """What became of one receipt.

    `state` is acked, requeued, dead, parked, halted, expired, extended or released. `visible_at_ms`
    is when the message may be delivered again, or an extended lease ends. All of the partition
    below `committed_offset` is settled; `in_flight` of its messages are leased.
    """

    receipt: str
    action: str
    state: str
    topic: str
    partition: int
    offset: int
    attempts: int = 0
    visible_at_ms: int | None = None
    committed_offset: int = 0
    in_flight: int = 0

    @property
    def id(self) -> str:
        """`topic:partition:offset`"""
        return f"{self.topic}:{self.partition}:{self.offset}"


class _Body(msgspec.Struct):
    receipt: str
    action: str
    state: str
    topic: str
    partition: int
    offset: int
    attempts: int = 0
    visible_at: datetime | None = None
    committed_offset: int = 0
    in_flight: int = 0


class _Results(msgspec.Struct):
    results: list[dict[str, Any]]


SettleResult = Settled | GoQueueError


def decode_settles(answer: Answer, expected: int) -> list[SettleResult]:
    """One result for each of the `expected` receipts, in their order. Raises ServerError."""
    try:
        results = msgspec.json.decode(answer.body, type=_Results).results
    except UNREADABLE as error:
        raise ServerError(f"an answer that is not understood: {error}") from None
    if len(results) != expected:
        raise ServerError(f"{len(results)} results where {expected} were due")
    return [_result(told, is_repeat=answer.is_repeat) for told in results]


def _result(told: dict[str, Any], *, is_repeat: bool) -> SettleResult:
    if told.get("error"):
        error = GoQueueError.from_body(told)
        if is_repeat and isinstance(error, NotInFlight):
            error.outcome = "unknown"
        return error
    try:
        body = msgspec.convert(told, _Body)
    except msgspec.ValidationError as error:
        raise ServerError(f"a result that is not understood: {error}") from None
    return Settled(
        body.receipt,
        body.action,
        body.state,
        body.topic,
        body.partition,
        body.offset,
        body.attempts,
        None if body.visible_at is None else datetime_ms(body.visible_at),
        body.committed_offset,
        body.in_flight,
    )
