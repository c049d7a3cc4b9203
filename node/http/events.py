"""A partition's events in bulk, in order, to be read on from where one stopped."""

from __future__ import annotations

import msgspec
from aiohttp import web

from goqueue.wire.errors import BadRequest
from goqueue.wire.events import EVENTS_MEDIA_TYPE, EventColumns, EventsPage
from goqueue.wire.ids import OFFSET_MAX
from node.http.body import off_loop
from node.http.call import Call, answer_bytes
from node.http.event_broker import EventsView, EventsWanted
from node.http.long_poll import long_poll


class EventsAnswer(EventsPage):
    """Events of the entries after `after`, in columns: row i of all of them is one event."""


class _Encoded(msgspec.Struct):
    """`EventsPage` with its columns as they came."""

    topic: str
    topic_id: str
    partition: int
    first: int
    end: int
    next: int
    next_offset: int | None
    exact: bool
    events: msgspec.Raw


async def read(call: Call) -> web.Response:
    """GET /topics/{topic}/partitions/{partition}/events: what happened to its messages."""
    topic, partition = call.topic(), call.partition()
    limits = call.limits
    offset = None
    if call.query.get("after_offset", ""):
        offset = call.query_int("after_offset", 0, 0, OFFSET_MAX)
    wanted = EventsWanted(
        call.query_int("after", 0, 0, OFFSET_MAX),
        offset,
        call.query_int("until", OFFSET_MAX, 0, OFFSET_MAX),
        call.query_int("limit", limits.events_default, 1, limits.events_max),
        call.query_wait_s(),
    )
    if wanted.until < wanted.after:
        raise BadRequest(f"until: {wanted.until} is before after={wanted.after}")
    work = call.broker.events(topic, partition, wanted)
    found = await (long_poll(call, work) if wanted.wait_s > 0 else work)
    if found is None:  # nobody waits, or the node stops: nothing has come
        found = await call.broker.events(
            topic, partition, msgspec.structs.replace(wanted, wait_s=0)
        )
    topic_id, view = found
    if EVENTS_MEDIA_TYPE in call.request.headers.get("Accept", ""):
        body = await off_loop(len(view.columns), _packed, topic, topic_id, partition, view)
        return web.Response(body=body, content_type=EVENTS_MEDIA_TYPE)
    return answer_bytes(await off_loop(len(view.columns), _json, topic, topic_id, partition, view))


def _packed(topic: str, topic_id: str, partition: int, view: EventsView) -> bytes:
    return msgspec.msgpack.encode(
        _Encoded(
            topic,
            topic_id,
            partition,
            view.first,
            view.end,
            view.next,
            view.next_offset,
            view.exact,
            msgspec.Raw(view.columns),
        )
    )


def _json(topic: str, topic_id: str, partition: int, view: EventsView) -> bytes:
    return msgspec.json.encode(
        EventsAnswer(
            topic,
            topic_id,
            partition,
            view.first,
            view.end,
            view.next,
            view.next_offset,
            view.exact,
            msgspec.msgpack.decode(view.columns, type=EventColumns),
        )
    )
