"""GoQueue's own settling: one receipt a request, at /messages/ack, nack, reject and visibility.

Its published clients send null for what they leave out and name fields in two ways; answers hold
what its server answers and what its clients read.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from aiohttp import web
from msgspec import UNSET, Meta, Struct, UnsetType

from delivery.entries.ops import KEPT_REASON_CHARACTERS
from goqueue.wire.errors import BadRequest, GoQueueError
from goqueue.wire.ids import DEAD_LETTER_SUFFIX
from node.api.queue import SettleRequest, SettleView
from node.api.times import Duration, duration_ms, format_time
from node.http.groups.consumer_identity import Generation, Member, claim_of
from node.http.queue.settle import visibility_ms
from node.http.request.call import Call, answer, either
from node.http.text.known_fields import Body

SECOND_MS = 1000


class _Receipt(Body):
    """`consumer_id` is accepted and says nothing: the receipt names the lease. With a `member` and
    its `generation`, only what that member owns is settled."""

    receipt_handle: str | None = None
    receipt: str | None = None
    consumer_id: str | int | None = None
    member: Member | None = None
    generation: Generation | None = None


class AckBody(_Receipt):
    pass


class NackBody(_Receipt):
    """`delay` is the wait before the next attempt, the group's backoff if absent; `position` is
    where the message comes again, in front of its lane if absent."""

    reason: str | None = None
    delay: Duration | None = None
    position: Literal["front", "back"] | None = None


class RejectBody(_Receipt):
    reason: str | None = None


class VisibilityBody(_Receipt):
    """The lease ends so long from now: `extension_seconds`, or `timeout` as `60s`."""

    extension_seconds: Annotated[float, Meta(gt=0, le=43_200)] | None = None
    timeout: Duration | None = None


class AckAnswer(Struct):
    """Everything below `committed_offset` is settled for the group."""

    success: bool
    acknowledged: bool
    topic: str
    partition: int
    offset: int
    committed_offset: int
    offset_advanced: bool
    in_flight_count: int


class NackAnswer(Struct):
    """`action` is requeued, or dlq once the attempts are used up; `state` says it in our words."""

    success: bool
    requeued: bool
    action: str
    state: str
    topic: str
    partition: int
    offset: int
    delivery_count: int
    next_visible_at: str | UnsetType = UNSET
    dlq_topic: str | UnsetType = UNSET


class RejectAnswer(Struct):
    success: bool
    rejected: bool
    action: str
    state: str
    topic: str
    partition: int
    offset: int
    delivery_count: int
    dlq_topic: str
    reason: str


class VisibilityAnswer(Struct):
    """`extended_by` is in seconds."""

    success: bool
    extended: bool
    new_deadline: str
    extended_by: int | float
    topic: str
    partition: int
    offset: int


_ACK = msgspec.json.Decoder(AckBody)
_NACK = msgspec.json.Decoder(NackBody)
_REJECT = msgspec.json.Decoder(RejectBody)
_VISIBILITY = msgspec.json.Decoder(VisibilityBody)


async def ack(call: Call) -> web.Response:
    wanted = await call.document(_ACK)
    view = await _settle(call, wanted, SettleRequest(_receipt(wanted), "ack"))
    return answer(
        AckAnswer(
            True,
            True,
            view.topic,
            view.partition,
            view.offset,
            view.committed_offset,
            view.advanced,
            view.in_flight,
        )
    )


async def nack(call: Call) -> web.Response:
    wanted = await call.document(_NACK)
    given = None if wanted.delay == "" else wanted.delay
    request = SettleRequest(
        _receipt(wanted),
        "nack",
        _reason(wanted.reason),
        duration_ms(given, "delay"),
        wanted.position == "back",
    )
    view = await _settle(call, wanted, request)
    dead = view.outcome == "dead"
    return answer(
        NackAnswer(
            success=True,
            requeued=not dead,
            action="dlq" if dead else "requeued",
            state=view.outcome,
            topic=view.topic,
            partition=view.partition,
            offset=view.offset,
            delivery_count=view.attempts,
            next_visible_at=format_time(view.visible_at_ms) if view.visible_at_ms else UNSET,
            dlq_topic=view.topic + DEAD_LETTER_SUFFIX if dead else UNSET,
        )
    )


async def reject(call: Call) -> web.Response:
    wanted = await call.document(_REJECT)
    reason = _reason(wanted.reason)
    view = await _settle(call, wanted, SettleRequest(_receipt(wanted), "reject", reason))
    return answer(
        RejectAnswer(
            success=True,
            rejected=True,
            action="rejected",
            state=view.outcome,
            topic=view.topic,
            partition=view.partition,
            offset=view.offset,
            delivery_count=view.attempts,
            dlq_topic=view.topic + DEAD_LETTER_SUFFIX,
            reason=reason,
        )
    )


async def visibility(call: Call) -> web.Response:
    wanted = await call.document(_VISIBILITY)
    receipt = _receipt(wanted)
    seconds = wanted.extension_seconds
    given_ms = visibility_ms(None if wanted.timeout == "" else wanted.timeout, "timeout")
    asked_ms = None if seconds is None else round(seconds * SECOND_MS)
    found = either(asked_ms, given_ms, "extension_seconds", "timeout")
    if not found:
        raise BadRequest("extension_seconds (or timeout) is required and must be positive")
    ms = int(found)
    view = await _settle(call, wanted, SettleRequest(receipt, "extend", visibility_ms=ms))
    whole, rest = divmod(ms, SECOND_MS)
    return answer(
        VisibilityAnswer(
            True,
            True,
            format_time(view.visible_at_ms),
            ms / SECOND_MS if rest else whole,
            view.topic,
            view.partition,
            view.offset,
        )
    )


async def _settle(call: Call, wanted: _Receipt, request: SettleRequest) -> SettleView:
    claim = claim_of(wanted.member, wanted.generation)
    (outcome,) = await call.broker.receipts.settle([request], claim=claim)
    if isinstance(outcome, GoQueueError):
        raise outcome
    return outcome


def _receipt(wanted: _Receipt) -> str:
    found = either(
        wanted.receipt_handle or None, wanted.receipt or None, "receipt_handle", "receipt"
    )
    if not found:
        raise BadRequest("receipt_handle is required")
    return str(found)


def _reason(given: str | None) -> str:
    return (given or "")[:KEPT_REASON_CHARACTERS]
