"""`AckService`: what becomes of a message that was received, by its receipt, at any node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from delivery.config import VISIBILITY_MS_MAX
from delivery.entries.ops import KEPT_REASON_CHARACTERS
from goqueue.wire.errors import BadReceipt, BadRequest, GoQueueError
from goqueue.wire.ids import DEAD_LETTER_SUFFIX
from node.api.queue import SettleRequest, SettleView
from node.api.spans import MESSAGES_MAX
from node.api.streams import is_over
from node.listeners.grpc.call import Rpc, raised
from node.listeners.grpc.failures import error_of
from node.listeners.grpc.names import group_of
from node.listeners.grpc.protocol import goqueue_pb2 as pb
from node.listeners.grpc.times import duration_ms, put_time

_NONE = dict[str, None]()


async def ack(rpc: Rpc) -> None:
    """Raises BadReceipt, NotInFlight, ReceiptExpired, StaleGeneration."""
    given: pb.AckRequest = await rpc.request()
    await _settle(rpc, given, SettleRequest(_receipt(given), "ack"))
    await rpc.write(pb.AckResponse(success=True))


async def nack(rpc: Rpc) -> None:
    """As `ack`; the message comes again after `visibility_timeout`, at once where that is zero,
    after the group's backoff where it is not given."""
    given: pb.NackRequest = await rpc.request()
    delay_ms = _visibility_ms(given)
    view = await _settle(rpc, given, SettleRequest(_receipt(given), "nack", delay_ms=delay_ms))
    told = pb.NackResponse(success=True)
    if view.visible_at_ms:
        put_time(told.next_visible_at, view.visible_at_ms)
    await rpc.write(told)


async def reject(rpc: Rpc) -> None:
    """As `ack`; a dead letter stands where it stood, for the group alone."""
    given: pb.RejectRequest = await rpc.request()
    reason = given.reason[:KEPT_REASON_CHARACTERS]
    view = await _settle(rpc, given, SettleRequest(_receipt(given), "reject", reason))
    await rpc.write(
        pb.RejectResponse(
            success=True,
            dlq_topic=view.topic + DEAD_LETTER_SUFFIX,
            dlq_partition=view.partition,
            dlq_offset=view.offset,
        )
    )


async def extend_visibility(rpc: Rpc) -> None:
    """As `ack`; raises BadRequest for no time at all, or more than 12 h."""
    given: pb.ExtendVisibilityRequest = await rpc.request()
    wanted_ms = _visibility_ms(given)
    if wanted_ms == 0:
        raise BadRequest("visibility_timeout: 0 is no extension; Nack gives a message back")
    if wanted_ms is None:
        group = await rpc.broker.groups.group(group_of(given.group_id))
        wanted_ms = int(str(group.settings["visibility_ms"]))
    request = SettleRequest(_receipt(given), "extend", visibility_ms=wanted_ms)
    view = await _settle(rpc, given, request)
    told = pb.ExtendVisibilityResponse(success=True)
    put_time(told.new_deadline, view.visible_at_ms)
    await rpc.write(told)


async def batch_ack(rpc: Rpc) -> None:
    """Every receipt by itself; those that could not be settled are told, with a place that has no
    receipt among them. Raises BadRequest for none at all, or too many."""
    given: pb.BatchAckRequest = await rpc.request()
    receipts, places = given.receipt_handles, given.offsets
    count = len(receipts) + len(places)
    if not count:
        raise BadRequest("receipt_handles: nothing to settle")
    if count > rpc.limits.items_max:
        raise BadRequest(f"{count} receipts: at most {rpc.limits.items_max}")
    requests = [SettleRequest(receipt, "ack") for receipt in receipts]
    outcomes = await _outcomes(rpc, given.group_id, requests) if requests else ()
    told = pb.BatchAckResponse()
    for receipt, outcome in zip(receipts, outcomes, strict=True):
        if isinstance(outcome, GoQueueError):
            told.failures.add(receipt_handle=receipt, error=error_of(outcome))
        else:
            told.success_count += 1
    for place in places:
        told.failures.add(
            topic=place.topic,
            partition=place.partition,
            offset=place.offset,
            error=error_of(_no_receipt()),
        )
    await rpc.write(told)


async def _settle(rpc: Rpc, given: Any, request: SettleRequest) -> SettleView:
    (outcome,) = await _outcomes(rpc, given.group_id, [request])
    view = raised(outcome)
    assert isinstance(view, SettleView)
    return view


async def _outcomes(
    rpc: Rpc, group: str, requests: Sequence[SettleRequest]
) -> list[SettleView | GoQueueError]:
    """A receipt names its group: `group_id` may be left out, and is held against it otherwise."""
    named = group_of(group) if group else None
    rpc.seen.target = group
    outcomes = await rpc.broker.receipts.settle(requests, named)
    for request, outcome in zip(requests, outcomes, strict=True):
        if is_over(outcome):
            rpc.desk.given.pop(request.receipt, _NONE).pop(request.receipt, None)
    places = [
        (one.topic, one.partition, int(one.offset))
        for one in outcomes
        if isinstance(one, SettleView)
    ]
    failed = next((one.code for one in outcomes if isinstance(one, GoQueueError)), "")
    rpc.seen.tell_span(
        requests[0].action,
        places[0][0] if places else "",
        len(requests),
        group=group,
        places=tuple(places[:MESSAGES_MAX]),
        request=rpc.trace(),
        error=failed,
    )
    return outcomes


def _receipt(given: Any) -> str:
    """Raises BadReceipt: a place says nothing of which delivery is meant."""
    if not given.receipt_handle:
        raise _no_receipt()
    return str(given.receipt_handle)


def _no_receipt() -> BadReceipt:
    return BadReceipt("receipt_handle is required: a topic, partition and offset name no delivery")


def _visibility_ms(given: Any) -> int | None:
    """None where none is given. Raises BadRequest."""
    if not given.HasField("visibility_timeout"):
        return None
    found = duration_ms(given.visibility_timeout, "visibility_timeout")
    if found > VISIBILITY_MS_MAX:
        raise BadRequest(f"visibility_timeout: longer than {VISIBILITY_MS_MAX // 3_600_000} hours")
    return found
