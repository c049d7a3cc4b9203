"""Taking messages for a group: receive leases them, peek only looks.

A receive waits for its first message, up to 60 s. What was granted to a client that hung up before
it could read the answer is given back as if it had not been delivered.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Annotated, Any, TypeVar

import msgspec
from aiohttp import web
from msgspec import Meta, Struct

from delivery.config import LANES_COUNT
from goqueue.wire.errors import BadRequest, GoQueueError, OverBudget
from goqueue.wire.ids import validate_topic_name
from log.levels import Feature
from node.api.queue import QueuedMessage, SettleRequest
from node.api.receiving import TAKING
from node.api.times import Duration, duration_ms
from node.http.budget.memory import Kind, Reserved
from node.http.groups.assignments import Partition, Place
from node.http.groups.consumer_identity import Generation, Member, claim_of
from node.http.messages import fields
from node.http.messages.request_spans import traced_request
from node.http.queue.settle import (
    SettleItem,
    SettleResult,
    settle_items,
    visibility_ms,
    weighed,
)
from node.http.queue.views import QueuedView, fitting, fitting_into, queued_views, weights_of
from node.http.request.answers import PAGE_TIMES, page_room, told
from node.http.request.call import Call, either
from node.http.request.long_poll import has_hung_up, long_poll
from node.http.text.known_fields import Body
from node.http.text.pieces import chunked

LIMIT_DEFAULT = 10
LIMIT_MAX = 1000
TOPICS_MAX = 100
PLACE_BYTES = 200
"""What a partition that is named takes while the request waits."""

T = TypeVar("T")
_Limit = Annotated[int, Meta(ge=1, le=LIMIT_MAX)]


class Sources(Body):
    """Where messages come from: `topic` or `topics`, all partitions or some."""

    topic: str | None = None
    topics: Annotated[list[str], Meta(max_length=TOPICS_MAX)] | None = None
    partitions: Annotated[list[Partition], Meta(max_length=100_000)] | None = None
    limit: _Limit | None = None
    max_messages: _Limit | None = None


class ReceiveBody(Sources):
    """`wait` (or `timeout`) is at most 60 s; `visibility` is 0 s to 12 h, the group's if absent.

    A member of the group names itself, its generation, and the partitions it was assigned, instead
    of topics. Messages of lanes below `lowest_priority` are left for later.

    `settle` is done at once, whatever becomes of the receive, each receipt on its own: what this
    consumer has received before needs no request of its own then. It needs feature level 2.
    """

    wait: Duration | None = None
    timeout: Duration | None = None
    visibility: Duration | None = None
    visibility_timeout: Duration | None = None
    member: Member | None = None
    generation: Generation | None = None
    assignment: Annotated[list[Place], Meta(max_length=100_000)] | None = None
    lowest_priority: str | int | None = None
    settle: Annotated[list[SettleItem], Meta(max_length=LIMIT_MAX)] | None = None


class ReceivedAnswer(Struct, omit_defaults=True):
    """`unanswered` is there where leaders of partitions did not answer in time, or could not read
    a message, as damage is being mended: what they may have leased for this receive, or could not
    read, comes (again) soon, as the same attempt, and maybe after later messages. `settle_results`
    are the ends of what was to be settled, in order; an error of the receive has them beside.
    """

    group: str
    messages: list[QueuedView]
    unanswered: list[Place] = []
    settle_results: list[SettleResult] = []


_RECEIVE = msgspec.json.Decoder(ReceiveBody)
_PEEK = msgspec.json.Decoder(Sources)


async def receive(call: Call) -> web.Response:
    group = call.group()
    tracing = traced_request(call)
    wanted = await call.document(_RECEIVE)
    wait_ms = duration_ms(either(wanted.wait, wanted.timeout, "wait", "timeout"), "wait") or 0
    visibility = either(
        wanted.visibility, wanted.visibility_timeout, "visibility", "visibility_timeout"
    )
    stopping = call.shared.stopping.is_set()
    wait_s = 0.0 if stopping else min(wait_ms / 1000, call.limits.long_poll_s_max)
    places = _places_of(wanted)
    claim = claim_of(wanted.member, wanted.generation)
    items = wanted.settle or []
    if items:
        call.broker.upgrade.require(Feature.SETTLING_RECEIVES)
    receiving = call.broker.queue.receive(
        group,
        topics_of(wanted) if places is None else [],
        claim=claim,
        limit=limit_of(wanted),
        wait_s=wait_s,
        visibility_ms=visibility_ms(visibility),
        partitions=wanted.partitions,
        places=places,
        lowest_lane=LANES_COUNT - 1
        if wanted.lowest_priority is None
        else fields.lane_of(wanted.lowest_priority) or 0,
        beside=[item.receipt or item.receipt_handle or "" for item in items],
    )
    named = len(places or ()) * PLACE_BYTES
    with room_for(call):
        polled = partial(long_poll, call, held_bytes=named) if wait_s else _polled
        if items:
            settling = settle_items(call, group, claim, items)
            settled, found = await _both(settling, receiving, polled)
        else:
            settled, found = [], await polled(receiving)
    unanswered = [] if found is None else found.unanswered
    with _telling(settled):
        async with granted(call, group, found or []) as (messages, weights):
            if tracing is not None:
                tracing.received(group, messages)
            missing = [Place(topic, partition) for topic, partition in unanswered]
            views = chunked(queued_views(messages), weights)
            results, results_bytes = weighed(settled)
            given = ReceivedAnswer(group, views, missing, results)
            return await told(call, given, weight=sum(weights) + results_bytes)


async def _polled(receiving: Coroutine[Any, Any, T]) -> T | None:
    return await receiving


async def _both(
    settling: Coroutine[Any, Any, list[SettleResult]],
    receiving: Coroutine[Any, Any, T],
    polled: Callable[[Coroutine[Any, Any, T]], Awaitable[T | None]],
) -> tuple[list[SettleResult], T | None]:
    """At the same time, so that they share an entry where they are of one partition; what is
    settled is so whatever becomes of the receive, and an error of that tells it."""
    begun: list[asyncio.Future[list[SettleResult]]] = []

    async def both() -> T:
        begun.append(asyncio.ensure_future(settling))
        return await receiving

    found, refused = None, None
    try:
        try:
            found = await polled(both())
        except GoQueueError as error:
            refused = error
        if not begun:  # it was refused, or cut off, before
            receiving.close()
            begun.append(asyncio.ensure_future(settling))
        settled = await begun[0]
    finally:
        for task in begun:
            task.cancel()
    if refused is not None:
        with _telling(settled):
            raise refused
    return settled, found


@contextmanager
def _telling(settled: list[SettleResult]) -> Iterator[None]:
    """An error of the receive tells what was settled, too, and that something has happened: whoever
    repeated the request as it is would be told that nothing is there to settle any more."""
    try:
        yield
    except GoQueueError as error:
        if settled:
            error.outcome = "unknown"
            error.data["settle_results"] = msgspec.to_builtins(settled)
        raise


async def peek(call: Call) -> web.Response:
    group = call.group()
    wanted = await call.document(_PEEK)
    with await page_room(call, call.limits.read_bytes_max) as room:
        found = await call.broker.queue.peek(
            group, topics_of(wanted), limit=limit_of(wanted), partitions=wanted.partitions
        )
        fits = await fitting_into(room, found, call.limits.queue_bytes_max)
        return await told(call, ReceivedAnswer(group, queued_views(found[:fits])), room=room)


def topics_of(wanted: Sources) -> list[str]:
    """Each named once. Raises BadRequest, BadName."""
    if wanted.partitions == []:
        raise BadRequest("partitions names none: leave it out for all of them")
    if wanted.topic is not None and wanted.topics is not None:
        raise BadRequest("give topic or topics, not both")
    names = [wanted.topic] if wanted.topic is not None else wanted.topics
    if not names:
        raise BadRequest("topic is required")
    return list(dict.fromkeys(map(validate_topic_name, names)))


def _places_of(wanted: ReceiveBody) -> list[tuple[str, int]] | None:
    """The partitions of a member's assignment. Raises BadRequest, BadName."""
    if wanted.assignment is None:
        return None
    if wanted.topic is not None or wanted.topics is not None or wanted.partitions is not None:
        raise BadRequest("give assignment, or topics and partitions, not both")
    if not wanted.assignment:
        raise BadRequest("assignment names no partition")
    return [(validate_topic_name(place.topic), place.partition) for place in wanted.assignment]


def limit_of(wanted: Sources) -> int:
    return int(either(wanted.limit, wanted.max_messages, "limit", "max_messages") or LIMIT_DEFAULT)


@asynccontextmanager
async def granted(
    call: Call, group: str, found: list[QueuedMessage]
) -> AsyncIterator[tuple[list[QueuedMessage], list[int]]]:
    """Those of what was leased that are answered, charged while they are encoded; their weights.

    The others are given back as if they had not been delivered: all of them where the client has
    hung up, or there is no room for them (OverBudget); those that an answer is too small for.
    """
    kept, weights = 0, weights_of(found)
    try:
        with call.hold(Kind.ANSWERS, sum(weights)) as held:
            if not has_hung_up(call):
                kept = await fitting(found, weights, call.limits.queue_bytes_max)
            held.resize(sum(weights[:kept]))
            yield found[:kept], weights[:kept]
    except OverBudget:
        kept = 0
        raise
    finally:
        if rest := found[kept:]:
            await call.broker.receipts.settle(
                [SettleRequest(m.receipt, "release") for m in rest], group
            )


@contextmanager
def room_for(call: Call) -> Iterator[None]:
    """Whatever is taken inside is charged, from before it is leased until this ends."""
    room = _Room(call)
    token = TAKING.set(room)
    try:
        yield
    finally:
        TAKING.reset(token)
        room.end()


class _Room:
    """Implements `Taking`."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._held: Reserved | None = None

    async def begin(self, bytes_max: int) -> int:
        self.end()
        self._held = await page_room(self._call, bytes_max)
        return min(self._held.size // PAGE_TIMES, bytes_max)

    def end(self) -> None:
        if self._held is not None:
            self._held.release()
