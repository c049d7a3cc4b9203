"""Finding messages: by the producer's id, trace id, key, header, time and state, in pages.

`GET /messages` answers the newest first. It never leaves anything out in silence: `next` goes on
where more may be, `not_searched` names what could not be asked or read in time.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import unquote_plus

from aiohttp import web
from msgspec import UNSET, Struct, UnsetType

from delivery.lookup.message_states import STATES as STATES
from goqueue.wire.errors import BadRequest
from goqueue.wire.ids import OFFSET_MAX, PARTITIONS_MAX, validate_topic_name
from goqueue.wire.layout import DEFAULT_LIMITS
from node.api.search import FoundMessage, NotSearched, SearchFilter, SearchPage
from node.api.times import format_time, parse_time_ms
from node.http.budget.limits import MIB
from node.http.messages.fields import Message, key_of
from node.http.messages.trace_context import parse_trace_id
from node.http.queue.views import QueuedView, fitting_into, queued_views
from node.http.request.answers import page_room, told
from node.http.request.call import QUERY_FIELDS_MAX, Call, validate_group_name

LIMIT_DEFAULT = 100
LIMIT_MAX = 1000
SEARCH_BYTES = 4 * MIB
"""What the answer of a leader that is asked comes to, at most."""
HEADERS_MAX = 8
STATUSES = ("in_progress", "completed", "failed", "retrying", "delayed", "cancelled", "expired")
"""GoQueue's words for a message's life so far."""
AS_STATUS = {"error": "failed", "pending": "in_progress"}
"""Words of GoQueue's published clients."""
_PLACE = re.compile(r"(?:([A-Za-z0-9][A-Za-z0-9._-]{0,248}):)?(\d{1,10}):(\d{1,19})", re.ASCII)

Place = tuple[str, int]


class EventView(Struct):
    """One event of a message; `attributes` says who and why."""

    timestamp: str
    event_type: str
    attributes: dict[str, Any]


class FoundView(Struct, omit_defaults=True):
    """A message that was found, its state for each group, and its status: in_progress, completed,
    failed, retrying, delayed, cancelled or expired. `trace_id` is the W3C one that it carries."""

    id: str
    topic: str
    partition: int
    offset: int
    timestamp: str
    value: str | None
    priority: str
    status: str
    states: dict[str, str]
    key: str | None = None
    headers: dict[str, str] | None = None
    message_id: str | None = None
    trace_id: str | None = None
    value_encoding: str | None = None
    key_encoding: str | None = None
    header_encodings: dict[str, str] | None = None
    deliver_at: str | None = None
    expires_at: str | None = None
    events: list[EventView] | None = None


class NotSearchedView(Struct):
    """What of a partition may hold other matches, and why it was not searched."""

    topic: str
    partition: int
    reason: str


class FoundAnswer(Struct):
    """Matches, newest first. `complete` says that there are no others: nothing follows under
    `next`, and nothing was left out."""

    messages: list[FoundView]
    complete: bool
    not_searched: list[NotSearchedView]
    next: str | UnsetType = UNSET


async def search(call: Call) -> web.Response:
    """GET /messages: those that match all that the query says."""
    topic = call.query.get("topic")
    topics = None if topic is None else [validate_topic_name(topic)]
    limit = call.query_int("limit", LIMIT_DEFAULT, 1, LIMIT_MAX)
    which, below = search_filter(call), below_of(call.query.get("next", ""), topic)
    with_events = call.query_flag("events")
    with await page_room(call, SEARCH_BYTES) as room:
        page = await call.broker.lookup.search(
            topics, which, below=below, limit=limit, with_events=with_events
        )
        messages = [found.message for found in page.found]
        fits = await fitting_into(room, messages, call.limits.queue_bytes_max)
        return await told(call, _answer(_cut(page, fits), topic), room=room)


def search_filter(call: Call) -> SearchFilter:
    """What the query asks for. Raises BadRequest, naming the field."""
    query = call.query
    begin = "from_time" if query.get("from_time") else "start"
    end = "to_time" if query.get("to_time") else "end"
    group = query.get("group") or query.get("consumer_group")
    trace_id, partition = query.get("trace_id"), query.get("partition")
    message_id = query.get("message_id")
    if message_id is not None and not 0 < len(message_id) <= DEFAULT_LIMITS.message_id_bytes_max:
        raise BadRequest(f"message_id: want 1 to {DEFAULT_LIMITS.message_id_bytes_max} bytes")
    return SearchFilter(
        message_id=message_id,
        trace_id=parse_trace_id(trace_id) if trace_id is not None else None,
        key=key_of(Message(key=query.get("key"), key_encoding=query.get("key_encoding"))),
        headers=headers_of(call),
        from_ms=parse_time_ms(query[begin], begin) if query.get(begin) else None,
        to_ms=parse_time_ms(query[end], end) if query.get(end) else None,
        partition=None if partition is None else call.query_int("partition", 0, 0, PARTITIONS_MAX),
        group=None if group is None else validate_group_name(group),
        states=_states(query.get("state", "")),
        status=_status(query.get("status")),
    )


def not_searched_views(missing: Sequence[NotSearched]) -> list[NotSearchedView]:
    return [NotSearchedView(one.topic, one.partition, one.reason) for one in missing]


def _cut(page: SearchPage, count: int) -> SearchPage:
    """The first ones of the page; it goes on at those left out."""
    following = dict(page.following)
    for found in reversed(page.found[count:]):
        following[found.message.topic, found.message.partition] = found.message.offset + 1
    return replace(page, found=page.found[:count], following=following)


def _answer(page: SearchPage, topic: str | None) -> FoundAnswer:
    views = queued_views(found.message for found in page.found)
    page_told = FoundAnswer(
        [_found(view, found) for view, found in zip(views, page.found, strict=True)],
        not page.following and not page.not_searched,
        not_searched_views(page.not_searched),
    )
    if page.following:
        page_told.next = cursor_of(page.following, topic)
    return page_told


def _found(view: QueuedView, found: FoundMessage) -> FoundView:
    events = None
    if found.events is not None:
        events = [
            EventView(format_time(event.time_ms), event.type, dict(event.attributes))
            for event in found.events
        ]
    return FoundView(
        view.id,
        view.topic,
        view.partition,
        view.offset,
        view.timestamp,
        view.value,
        view.priority,
        found.status,
        dict(found.states),
        view.key,
        view.headers,
        view.message_id,
        found.trace_id,
        view.value_encoding,
        view.key_encoding,
        view.header_encodings,
        view.deliver_at,
        view.expires_at,
        events,
    )


def cursor_of(following: Mapping[Place, int], topic: str | None) -> str:
    """`0:120,3:77`: below which offsets to go on; with the topics' names where none was asked."""
    return ",".join(
        f"{partition}:{offset}" if topic is not None else f"{name}:{partition}:{offset}"
        for (name, partition), offset in sorted(following.items())
    )


def below_of(text: str, topic: str | None) -> dict[Place, int] | None:
    if not text:
        return None
    found: dict[Place, int] = {}
    for part in text.split(","):
        place = _PLACE.fullmatch(part)
        name = None if place is None else place[1] or topic
        if place is None or name is None or int(place[3]) > OFFSET_MAX:
            raise BadRequest(f"next: {part[:40]!r} is not a cursor of an earlier answer")
        found[name, int(place[2])] = int(place[3])
    return found


def headers_of(call: Call) -> list[tuple[str, bytes]]:
    """The query's `header` fields, NAME:VALUE each. Raises BadRequest."""
    _ = call.query  # it is checked as it is first read
    found: list[tuple[str, bytes]] = []
    for text in _values(call.request.raw_path, "header"):
        name, separator, value = text.partition(":")
        if not separator or not name:
            raise BadRequest(f"header: {text[:40]!r} is not NAME:VALUE")
        found.append((name, value.encode()))
    if len(found) > HEADERS_MAX:
        raise BadRequest(f"header: at most {HEADERS_MAX}")
    return found


def _values(raw_path: str, name: str) -> list[str]:
    """All values of a query field that may be given several times; the query was checked before."""
    parts = raw_path.partition("?")[2].partition("#")[0].split("&")[:QUERY_FIELDS_MAX]
    pairs = [part.partition("=") for part in parts]
    return [unquote_plus(value) for field, _, value in pairs if unquote_plus(field) == name]


def _states(text: str) -> list[str]:
    states = [state.strip().lower() for state in text.split(",") if state.strip()]
    for state in states:
        if state not in STATES:
            raise BadRequest(f"state: {state[:40]!r} is none of {', '.join(STATES)}")
    return states


def _status(text: str | None) -> str | None:
    if not text:
        return None
    status = AS_STATUS.get(text.lower(), text.lower())
    if status not in STATUSES:
        raise BadRequest(f"status: {text[:40]!r} is none of {', '.join(STATUSES)}")
    return status
