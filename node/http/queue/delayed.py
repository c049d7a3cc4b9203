"""Delayed messages: list, look up, cancel."""

from __future__ import annotations

from aiohttp import web
from msgspec import Struct

from goqueue.wire.batch import LANES
from goqueue.wire.errors import UnknownPartition
from goqueue.wire.ids import OFFSET_MAX, PARTITIONS_MAX
from node.api.delays import DelayedView
from node.api.times import format_time, format_uptime
from node.http.messages.render import text_or_base64
from node.http.request.call import Call, answer

LIMIT_DEFAULT = 100
LIMIT_MAX = 1000


class DelayedMessage(Struct, omit_defaults=True):
    """A message with a delay; `state` is pending, delivered (it is due), cancelled or expired."""

    id: str
    topic: str
    partition: int
    offset: int
    deliver_at: str
    time_remaining: str
    remaining_ms: int
    state: str
    priority: str
    key: str | None = None
    key_encoding: str | None = None
    message_id: str | None = None


class DelayedAnswer(Struct):
    """Soonest first; `total` counts all that are pending, `count` those in this answer."""

    topic: str
    messages: list[DelayedMessage]
    count: int
    limit: int
    skip: int
    total: int


class CancelledAnswer(Struct):
    canceled: bool
    cancelled: bool
    topic: str
    partition: int
    offset: int


async def list_delayed(call: Call) -> web.Response:
    topic = call.topic()
    limit = call.query_int("limit", LIMIT_DEFAULT, 1, LIMIT_MAX)
    skip = call.query_int("skip", 0, 0, OFFSET_MAX)
    views, total = await call.broker.delays.delayed(topic, limit=limit, skip=skip)
    shown = list(map(_message, views))
    return answer(DelayedAnswer(topic, shown, len(shown), limit, skip, total))


async def find_by_offset(call: Call) -> web.Response:
    """In any partition, unless one is named: offsets are a partition's own."""
    topic, offset = call.topic(), call.number("offset")
    partition: int | None = None
    if call.query.get("partition"):
        partition = call.query_int("partition", 0, 0, PARTITIONS_MAX + 1)
        if partition > PARTITIONS_MAX:
            raise UnknownPartition(topic, partition)
    return answer(_message(await call.broker.delays.find_delayed(topic, partition, offset)))


async def find(call: Call) -> web.Response:
    topic, partition, offset = call.topic(), call.partition(), call.number("offset")
    return answer(_message(await call.broker.delays.find_delayed(topic, partition, offset)))


async def cancel(call: Call) -> web.Response:
    topic, partition, offset = call.topic(), call.partition(), call.number("offset")
    await call.broker.delays.cancel_delayed(topic, partition, offset)
    return answer(CancelledAnswer(True, True, topic, partition, offset))


def _message(view: DelayedView) -> DelayedMessage:
    key, key_encoding = (None, None) if view.key is None else text_or_base64(view.key)
    return DelayedMessage(
        id=f"{view.topic}:{view.partition}:{view.offset}",
        topic=view.topic,
        partition=view.partition,
        offset=view.offset,
        deliver_at=format_time(view.deliver_at_ms),
        time_remaining=format_uptime(view.remaining_ms / 1000),
        remaining_ms=view.remaining_ms,
        state=view.state,
        priority=LANES[view.lane],
        key=key,
        key_encoding=key_encoding,
        message_id=view.message_id,
    )
