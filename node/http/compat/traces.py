"""Traces as GoQueue's clients read them: a trace is a message's life, or that of all messages that
carry one W3C trace id.

A message that carries none has a trace id of its own (`node.http.compat.trace_ids`).
Events are told twice: as `spans`, as GoQueue's server does, and as `events`, as its clients read
them; what Python and Go read differently there (`details`) is left out, and stands in `attributes`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from aiohttp import web
from msgspec import UNSET, Struct, UnsetType

from goqueue.wire.errors import NotFound, Unavailable
from goqueue.wire.ids import MessageId, validate_topic_name
from node.api.search import FoundEvent, FoundMessage, NotSearched, SearchFilter
from node.api.times import format_duration, format_time
from node.http.compat.trace_ids import own_trace_id, place_of, span_id
from node.http.lookup.search import (
    AS_STATUS,
    SEARCH_BYTES,
    NotSearchedView,
    not_searched_views,
    search_filter,
)
from node.http.messages.trace_context import parse_trace_id
from node.http.request.answers import page_room, told
from node.http.request.call import Call, answer

LIMIT_DEFAULT = 100
GO_AGENT = "Go-http-client/"
"""How Go's clients name themselves where their program does not."""
LIMIT_MAX = 1000
MESSAGES_MAX = 100
"""Messages of one trace that are told of."""
_LASTING = "RETAINED"
"""An event of the future: a trace doesn't last until then."""


class TraceSummary(Struct):
    """One trace of a list. Times are log times; `end_time` is of the last thing that happened."""

    trace_id: str
    topic: str
    partition: int
    offset: int
    start_time: str
    end_time: str
    duration_ms: int
    status: str
    span_count: int
    id: str
    states: dict[str, str]
    message_id: str | None = None


class TracesAnswer(Struct):
    """Traces, newest first; `total` is how many these are. `not_searched` names what may hold
    others, where something could not be asked."""

    traces: list[TraceSummary]
    total: int
    query: dict[str, str] | UnsetType = UNSET
    not_searched: list[NotSearchedView] | UnsetType = UNSET


class SpanView(Struct, omit_defaults=True):
    """One event of a message. `parent_span_id` is its PUBLISHED's; attributes are texts."""

    span_id: str
    event_type: str
    timestamp: str
    topic: str
    partition: int
    offset: int
    attributes: dict[str, str]
    parent_span_id: str | None = None
    consumer_group: str | None = None
    consumer_id: str | None = None
    error: str | None = None


class TraceEventView(Struct):
    """The same, shorter. `details` are the attributes by the name that GoQueue's clients read; its
    Go client, which reads a text there, gets none."""

    timestamp: str
    event_type: str
    attributes: dict[str, str]
    details: dict[str, str] | UnsetType = UNSET


class TraceAnswer(Struct):
    """One trace. Place and status are of its first message; `messages` names all of them."""

    trace_id: str
    topic: str
    partition: int
    offset: int
    start_time: str
    end_time: str
    duration_ms: int
    status: str
    spans: list[SpanView]
    events: list[TraceEventView]
    messages: list[str]
    not_searched: list[NotSearchedView] | UnsetType = UNSET


class TraceStats(Struct):
    """Figures of all nodes that answer. `traces_total` counts messages that are stored,
    `traces_indexed` hashes by which they are found, `traces_completed` acks, `traces_error` dead
    letters; `avg_latency` is from ready to delivered. Every message is traced. Spans are read from
    the log, not buffered: what is in memory are the hashes of the newest entries."""

    enabled: bool
    traces_total: int
    traces_completed: int
    traces_error: int
    avg_latency: str
    traces_indexed: int
    spans_in_buffer: int
    buffer_capacity: int
    sampling_rate: float
    exporters_enabled: bool
    index_disk_bytes: int
    index_memory_bytes: int
    index_behind_entries: int
    index_segments: int
    nodes: int


async def list_recent(call: Call) -> web.Response:
    """GET /traces: the newest messages of all topics."""
    return await told(call, await _traces(call, None, SearchFilter()))


async def search(call: Call) -> web.Response:
    """GET /traces/search: those that match all that the query says."""
    topic = call.query.get("topic")
    topics = None if topic is None else [validate_topic_name(topic)]
    found = await _traces(call, topics, search_filter(call))
    found.query = dict(call.query)
    asked = call.query.get("status", "").lower()
    if asked in AS_STATUS:  # whoever asks in GoQueue's words is answered in them
        for trace in found.traces:
            trace.status = asked
    return await told(call, found)


async def get(call: Call) -> web.Response:
    """GET /traces/{trace_id}: one trace, with all that happened."""
    trace_id = parse_trace_id(call.params["trace_id"])
    found, missing = await _messages_of(call, trace_id)
    if not found:
        if missing:
            one = missing[0]
            where = f"{one.topic}:{one.partition}"
            raise Unavailable(f"trace {trace_id}: {where} was not searched: {one.reason}")
        raise NotFound(f"no trace {trace_id}", trace_id=trace_id)
    trace = _trace(trace_id, sorted(found, key=_place))
    if not call.request.headers.get("User-Agent", "").startswith(GO_AGENT):
        for event in trace.events:
            event.details = event.attributes
    if missing:
        trace.not_searched = not_searched_views(missing)
    return await told(call, trace)


async def stats(call: Call) -> web.Response:
    """GET /traces/stats."""
    found = await call.broker.lookup.search_stats()
    average_ms = round(found.wait_ms_sum / found.waits) if found.waits else 0
    return answer(
        TraceStats(
            enabled=found.timelines,
            traces_total=found.messages,
            traces_completed=found.acked,
            traces_error=found.dead,
            avg_latency=format_duration(average_ms),
            traces_indexed=found.items,
            spans_in_buffer=found.ram_items,
            buffer_capacity=found.ram_items_max,
            sampling_rate=1.0,
            exporters_enabled=found.exports,
            index_disk_bytes=found.disk_bytes,
            index_memory_bytes=found.ram_bytes,
            index_behind_entries=found.behind_entries,
            index_segments=found.segments,
            nodes=found.nodes,
        )
    )


async def _traces(call: Call, topics: list[str] | None, which: SearchFilter) -> TracesAnswer:
    limit = call.query_int("limit", LIMIT_DEFAULT, 1, LIMIT_MAX)
    with await page_room(call, SEARCH_BYTES):
        page = await call.broker.lookup.search(
            topics, which, below=None, limit=limit, with_events=True
        )
    told = TracesAnswer([_summary(found) for found in page.found], len(page.found))
    missing = list(page.not_searched)
    if len(page.found) < limit:  # whoever was asked stopped early
        missing += [
            NotSearched(*place, f"offsets below {below}: out of time")
            for place, below in sorted(page.following.items())
        ]
    if missing:
        told.not_searched = not_searched_views(missing)
    return told


async def _messages_of(
    call: Call, trace_id: str
) -> tuple[Sequence[FoundMessage], Sequence[NotSearched]]:
    """Messages that carry the id; or the one whose own id it is."""
    broker = call.broker
    place = place_of(trace_id, broker.topics.list_topics())
    if place is not None and place.partition < broker.topics.partition_count(place.topic):
        which = SearchFilter(partition=place.partition)
        below = {(place.topic, place.partition): place.offset + 1}
        page = await broker.lookup.search(
            [place.topic], which, below=below, limit=1, with_events=True
        )
        mine = [found for found in page.found if found.message.offset == place.offset]
        return mine, page.not_searched
    which = SearchFilter(trace_id=trace_id)
    with await page_room(call, SEARCH_BYTES):
        page = await broker.lookup.search(
            None, which, below=None, limit=MESSAGES_MAX, with_events=True
        )
    return page.found, page.not_searched


def _summary(found: FoundMessage) -> TraceSummary:
    message = found.message
    first_ms, last_ms = _lasts(found)
    return TraceSummary(
        _trace_id(found),
        message.topic,
        message.partition,
        message.offset,
        format_time(first_ms),
        format_time(last_ms),
        last_ms - first_ms,
        found.status,
        len(found.events or ()),
        _id(found),
        dict(found.states),
        message.message_id,
    )


def _trace(trace_id: str, found: Sequence[FoundMessage]) -> TraceAnswer:
    first = found[0]
    times = [time_ms for one in found for time_ms in _lasts(one)]
    told = [
        (event.time_ms, span)
        for one in found
        for event, span in zip(one.events or (), _spans(trace_id, one), strict=True)
    ]
    told.sort(key=lambda one: one[0])
    spans = [span for _, span in told]
    return TraceAnswer(
        trace_id,
        first.message.topic,
        first.message.partition,
        first.message.offset,
        format_time(min(times)),
        format_time(max(times)),
        max(times) - min(times),
        first.status,
        spans,
        [TraceEventView(span.timestamp, span.event_type, span.attributes) for span in spans],
        [_id(one) for one in found],
    )


def _spans(trace_id: str, found: FoundMessage) -> list[SpanView]:
    message, spans = found.message, list[SpanView]()
    for number, event in enumerate(found.events or ()):
        view = SpanView(
            span_id(trace_id, _id(found), number),
            event.type,
            format_time(event.time_ms),
            message.topic,
            message.partition,
            message.offset,
            _texts(event.attributes),
        )
        view.parent_span_id = spans[0].span_id if spans else None
        view.consumer_group = view.attributes.get("group")
        view.consumer_id = view.attributes.get("consumer", view.attributes.get("member"))
        if event.type in ("NACKED", "REDELIVERED", "REJECTED", "DEAD_LETTERED"):
            view.error = view.attributes.get("reason")
        spans.append(view)
    return spans


def _lasts(found: FoundMessage) -> tuple[int, int]:
    """When it began, and when the last thing happened."""
    events: Iterable[FoundEvent] = found.events or ()
    times = [event.time_ms for event in events if event.type != _LASTING]
    times.append(found.message.time_ms)
    return min(times), max(times)


def _texts(attributes: Mapping[str, object]) -> dict[str, str]:
    return {
        name: ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
        for name, value in attributes.items()
    }


def _trace_id(found: FoundMessage) -> str:
    message = found.message
    return found.trace_id or own_trace_id(message.topic, message.partition, message.offset)


def _id(found: FoundMessage) -> str:
    message = found.message
    return str(MessageId(message.topic, message.partition, message.offset))


def _place(found: FoundMessage) -> tuple[int, str, int, int]:
    message = found.message
    return message.time_ms, message.topic, message.partition, message.offset
