"""What is to become of received messages, and what became of each.

A settle is safe to repeat: the second one finds the lease ended and changes nothing. So a call
whose answer was lost repeats itself, and repeats the part that no leader could settle. Where the
repeat then finds a message `not_in_flight`, most likely the lost attempt settled it; as that can't
be known for certain, the error says so with the outcome `unknown`. Whoever acked may take it for
done: if it was not, the message comes again.
"""

from __future__ import annotations

import msgspec

from goqueue.models.options import Action, Position
from goqueue.models.times import Duration, duration_text
from goqueue.wire.errors import GoQueueError

ACTIONS = ("ack", "nack", "reject", "extend", "release")
SETTLES_MAX = 1000
"""In one request; more are sent in several."""


class Settle(msgspec.Struct, frozen=True):
    """One receipt and what is to become of it.

    `action` is ack, nack, reject, extend or release; `reason` is for nack and reject, `delay` and
    `position` (front, back) for nack, `visibility` for extend.
    """

    receipt: str
    action: Action = "ack"
    reason: str = ""
    delay: Duration | None = None
    position: Position | None = None
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


SettleResult = Settled | GoQueueError
