"""A partition's events in bulk, in order, to be read on from where one stopped."""

from __future__ import annotations

import msgspec
from aiohttp import web

from goqueue.wire.errors import BadRequest
from goqueue.wire.events import EVENTS_MEDIA_TYPE, EventColumns, EventsPage
from goqueue.wire.ids import OFFSET_MAX
from node.api.traces import EventsView, EventsWanted
from node.http.budget.memory import Kind
from node.http.budget.slices import pause
from node.http.request.answers import finished, in_parts, page_room
from node.http.request.call import Call, answer
from node.http.request.long_poll import long_poll

_NIL = b"\xc0"


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


async def read(call: Call) -> web.StreamResponse:
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
    found = None
    if wanted.wait_s > 0:
        found = await long_poll(call, call.broker.traces.events(topic, partition, wanted))
    if found is None:  # nobody waits, or the node stops: nothing has come
        at_once = msgspec.structs.replace(wanted, wait_s=0)
        with await page_room(call, limits.read_bytes_max):
            found = await call.broker.traces.events(topic, partition, at_once)
    topic_id, view = found
    if EVENTS_MEDIA_TYPE in call.request.headers.get("Accept", ""):
        head = _packed(topic, topic_id, partition, view)
        size = len(head) + len(view.columns)
        held, told = call.hold(Kind.ANSWERS, size), {"Content-Type": EVENTS_MEDIA_TYPE}
        return in_parts(call, [head, view.columns], told, size, held)
    with call.hold(Kind.ANSWERS, len(view.columns)):
        return await finished(call, answer(await _json(topic, topic_id, partition, view)))


def _packed(topic: str, topic_id: str, partition: int, view: EventsView) -> bytes:
    """All but the columns, which come last."""
    page = _Encoded(topic, topic_id, partition, *_place(view), msgspec.Raw(_NIL))
    return msgspec.msgpack.encode(page).removesuffix(_NIL)


async def _json(topic: str, topic_id: str, partition: int, view: EventsView) -> EventsAnswer:
    """A column after the other is decoded; what is encoded of them is for the front."""
    columns = EventColumns()
    raw = msgspec.msgpack.decode(view.columns, type=dict[str, msgspec.Raw])
    for field in msgspec.structs.fields(EventColumns):
        if field.name in raw:
            column = msgspec.msgpack.decode(raw[field.name], type=field.type)
            setattr(columns, field.name, column)
            await pause()
    return EventsAnswer(topic, topic_id, partition, *_place(view), columns)


def _place(view: EventsView) -> tuple[int, int, int, int | None, bool]:
    return view.first, view.end, view.next, view.next_offset, view.exact
