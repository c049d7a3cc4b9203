"""What the load tools around GoQueue ask for: its k6 scripts, under `/api/v1` too.

They publish any JSON object as one message (`node.http.messages.any_object`),
consume by `?group=`, and ack by the id that came with a message: here it is the receipt.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from aiohttp import web

from goqueue.wire.errors import BadRequest, GoQueueError
from node.api.claims import NOBODY
from node.api.queue import QueuedMessage, SettleRequest
from node.http.messages.render import text_or_base64
from node.http.queue.receive import LIMIT_DEFAULT, LIMIT_MAX
from node.http.queue.settle import SETTLES_MAX
from node.http.request.call import Call, answer, validate_group_name
from node.http.request.long_poll import has_hung_up, long_poll
from node.http.text.known_fields import Body


class K6Message(msgspec.Struct):
    """`id` is the receipt, `timestamp` when the message was stored, in epoch milliseconds."""

    id: str
    timestamp: int
    topic: str
    partition: int
    offset: int
    value: str
    key: str | None = None


class K6Messages(msgspec.Struct):
    messages: list[K6Message]


class K6Ack(Body):
    """One `messageId`, or several."""

    group: str
    messageId: str | None = None
    messageIds: list[str] | None = None


class K6Acked(msgspec.Struct):
    success: bool
    acknowledged: int


_ACK = msgspec.json.Decoder(K6Ack)


async def consume(call: Call) -> web.Response:
    """GET /topics/{topic}/consume: 204 where nothing came in time."""
    topic, group = call.topic(), validate_group_name(call.query.get("group", ""))
    limit = call.query_int("maxMessages", LIMIT_DEFAULT, 1, LIMIT_MAX)
    wait_s = call.query_wait_s()
    receiving = call.broker.queue.receive(
        group, [topic], claim=NOBODY, limit=limit, wait_s=wait_s, visibility_ms=None
    )
    found: Sequence[QueuedMessage] = await long_poll(call, receiving) or []
    if found and has_hung_up(call):
        await call.broker.receipts.settle(
            [SettleRequest(m.receipt, "release") for m in found], group
        )
    if not found:
        return web.Response(status=204)
    return answer(
        K6Messages(
            [
                K6Message(
                    one.receipt,
                    one.time_ms,
                    one.topic,
                    one.partition,
                    one.offset,
                    text_or_base64(one.value)[0],
                    None if one.key is None else text_or_base64(one.key)[0],
                )
                for one in found
            ]
        )
    )


async def ack(call: Call) -> web.Response:
    """POST /topics/{topic}/ack: all of them, or the first one's error."""
    call.topic()
    wanted = await call.document(_ACK)
    ids = [wanted.messageId] if wanted.messageId is not None else wanted.messageIds
    if not ids:
        raise BadRequest("messageId or messageIds is required")
    if len(ids) > SETTLES_MAX:
        raise BadRequest(f"more than {SETTLES_MAX} messageIds")
    requests = [SettleRequest(id, "ack") for id in ids]
    outcomes = await call.broker.receipts.settle(
        requests, validate_group_name(wanted.group), NOBODY
    )
    for outcome in outcomes:
        if isinstance(outcome, GoQueueError):
            raise outcome
    return answer(K6Acked(True, len(outcomes)))
