"""Messages as a queue shows them: about to be delivered, delivered, or dead."""

from __future__ import annotations

import base64
import binascii
from datetime import datetime
from typing import Any, Protocol

import msgspec

from goqueue.models.messages import Message
from goqueue.models.options import Action, Position
from goqueue.models.settles import Settled
from goqueue.models.times import Duration, datetime_ms
from goqueue.wire.errors import ServerError
from goqueue.wire.layout import LANES


class QueuedMessage(Message, frozen=True, gc=False):
    """A message of a group: the `attempt` that delivers it, from 1, and why the one before failed.

    `redrives` counts how often it was dead and made alive again.
    """

    attempt: int = 0
    last_reason: str = ""
    redrives: int = 0


class Leased(QueuedMessage, frozen=True, gc=False):
    """A message that a group gave to one consumer, known by its `receipt`, until
    `visible_until_ms`; 0 for as long as the stream lives that it came over."""

    group: str = ""
    receipt: str = ""
    visible_until_ms: int = 0


class Settles(Protocol):
    """Who a received message asks to settle it."""

    async def settle_one(
        self,
        message: Leased,
        action: Action,
        *,
        reason: str = "",
        delay: Duration | None = None,
        position: Position | None = None,
        visibility: Duration | None = None,
    ) -> Settled: ...


class Received(Leased, frozen=True, gc=True):
    """A message leased to this caller until `visible_until_ms`: settle it before.

    Nobody else of the group gets it meanwhile. Left alone, it is delivered again after that time,
    and is dead after the group's `max_attempts`. Each method below raises what went wrong:
    `ReceiptExpired` where the time is over, `NotInFlight` where it was settled before.
    """

    settler: Settles | None = None

    async def ack(self) -> Settled:
        """Done: the group never gets it again."""
        return await self._settle("ack")

    async def nack(
        self,
        reason: str = "",
        *,
        delay: Duration | None = None,
        position: Position | None = None,
    ) -> Settled:
        """Failed: it comes again after `delay` (the group's backoff if not given), ahead of its
        lane or, with `position="back"`, behind it; or it is dead if it has failed too often."""
        return await self._settle("nack", reason=reason, delay=delay, position=position)

    async def reject(self, reason: str = "") -> Settled:
        """It can't succeed: it is dead at once, to be seen among the group's dead letters."""
        return await self._settle("reject", reason=reason)

    async def extend(self, visibility: Duration) -> Settled:
        """Needs longer: the lease ends this long after now, at the answer's `visible_at_ms`."""
        return await self._settle("extend", visibility=visibility)

    async def release(self) -> Settled:
        """Give it back as if it had not been delivered."""
        return await self._settle("release")

    async def _settle(
        self,
        action: Action,
        *,
        reason: str = "",
        delay: Duration | None = None,
        position: Position | None = None,
        visibility: Duration | None = None,
    ) -> Settled:
        if self.settler is None:
            raise TypeError("only a client's received message can be settled by itself")
        return await self.settler.settle_one(
            self, action, reason=reason, delay=delay, position=position, visibility=visibility
        )


class DeadLetter(Message, frozen=True, gc=False):
    """A message that a group gave up: why, when, and after how many attempts.

    `history` holds (Unix milliseconds, reason) of the attempts that are remembered, oldest first.
    """

    group: str = ""
    reason: str = ""
    died_ms: int = 0
    attempts: int = 0
    history: tuple[tuple[int, str], ...] = ()
    redrives: int = 0


class PastAttempt(msgspec.Struct, frozen=True):
    """One failed attempt in an answer."""

    time: datetime
    reason: str = ""


class MessageBody(msgspec.Struct, frozen=True):
    """A message in a JSON answer, whichever kind it is."""

    partition: int
    offset: int
    timestamp: datetime
    value: str | None
    topic: str = ""
    priority: str = "normal"
    key: str | None = None
    headers: dict[str, str] | None = None
    message_id: str | None = None
    value_encoding: str | None = None
    key_encoding: str | None = None
    header_encodings: dict[str, str] | None = None
    deliver_at: datetime | None = None
    expires_at: datetime | None = None
    attempt: int = 0
    last_reason: str | None = None
    redrives: int | None = None
    receipt: str | None = None
    visible_until: datetime | None = None
    reason: str | None = None
    died_at: datetime | None = None
    attempts: int = 0
    history: list[PastAttempt] = []


def queued_message(body: MessageBody) -> QueuedMessage:
    """A message as a peek shows it."""
    return QueuedMessage(**_fields(body), **_attempt(body))


def received_message(body: MessageBody, group: str, settler: Settles) -> Received:
    """Raises ServerError where the answer has no receipt."""
    if not body.receipt:
        raise ServerError("a received message without its receipt")
    return Received(
        **_fields(body),
        **_attempt(body),
        group=group,
        receipt=body.receipt,
        visible_until_ms=_ms(body.visible_until) or 0,
        settler=settler,
    )


def dead_letter(body: MessageBody, group: str) -> DeadLetter:
    """A dead letter as its list shows it."""
    return DeadLetter(
        **_fields(body),
        group=group,
        reason=body.reason or "",
        died_ms=_ms(body.died_at) or 0,
        attempts=body.attempts,
        history=tuple((datetime_ms(past.time), past.reason) for past in body.history),
        redrives=body.redrives or 0,
    )


def _fields(body: MessageBody) -> dict[str, Any]:
    encodings = body.header_encodings or {}
    headers = (body.headers or {}).items()
    return {
        "topic": body.topic,
        "partition": body.partition,
        "offset": body.offset,
        "timestamp_ms": datetime_ms(body.timestamp),
        "value": b"" if body.value is None else blob(body.value, body.value_encoding),
        "is_null": body.value is None,
        "key": None if body.key is None else blob(body.key, body.key_encoding),
        "headers": tuple((name, blob(text, encodings.get(name))) for name, text in headers),
        "lane": LANES.index(body.priority) if body.priority in LANES else LANES.index("normal"),
        "message_id": body.message_id,
        "deliver_at_ms": _ms(body.deliver_at),
        "expires_at_ms": _ms(body.expires_at),
    }


def _attempt(body: MessageBody) -> dict[str, Any]:
    return {
        "attempt": body.attempt,
        "last_reason": body.last_reason or "",
        "redrives": body.redrives or 0,
    }


def blob(text: str, encoding: str | None) -> bytes:
    """The bytes of a JSON field. Raises ServerError on bad base64."""
    if encoding != "base64":
        return text.encode()
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ServerError(f"an answer with bad base64: {error}") from None


def _ms(time: datetime | None) -> int | None:
    return None if time is None else datetime_ms(time)
