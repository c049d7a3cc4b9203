"""Dead letters of a group: list, count, redrive and purge them.

They stay where they are in the log: a redrive makes them ready again for this group alone, under
the same id and offset.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Annotated

import msgspec
from aiohttp import web
from msgspec import UNSET, Meta, Struct, UnsetType

from goqueue.wire.errors import BadRequest, GoQueueError, NotFound
from goqueue.wire.ids import OFFSET_MAX, PARTITIONS_MAX, MessageId, validate_topic_name
from node.api.dead_letters import DeadFilter, DeadMessage, DeadPage, RedriveView
from node.api.times import format_time, parse_time_ms
from node.http.messages.fields import Message, key_of
from node.http.queue.views import QueuedView, fitting_into, queued_views
from node.http.request.answers import page_room, told
from node.http.request.call import Call, answer
from node.http.text.known_fields import Body

LIMIT_DEFAULT = 100
LIMIT_MAX = 1000
IDS_MAX = 10_000

_AFTER = re.compile(r"(\d{1,10}):(\d{1,19})", re.ASCII)
_Partition = Annotated[int, Meta(ge=0, le=PARTITIONS_MAX)]
_Rate = Annotated[float, Meta(ge=0, le=1e9)]


class PastAttempt(Struct):
    """A failed attempt."""

    time: str
    reason: str


class DeadLetterView(QueuedView, omit_defaults=True, kw_only=True):
    """A dead letter: the message, and why and when it died for this group."""

    reason: str
    died_at: str
    attempts: int
    history: list[PastAttempt]
    original_id: str


class DeadLettersAnswer(Struct):
    """A page in the order of (partition, offset): `next` goes into `after`, null at the end.
    `total` and `by_reason` count all of the group's in the topic, whatever the filter."""

    group: str
    topic: str
    messages: list[DeadLetterView]
    next: str | None
    total: int
    by_reason: dict[str, int]


class DeadCountsAnswer(Struct):
    group: str
    topic: str
    total: int
    by_reason: dict[str, int]


class FilterBody(Body):
    """All conditions that are given must hold. `reason` is a part of the reason's text; times are
    of death, `to_time` exclusive; headers must have these values; `ids` are
    topic:partition:offset."""

    reason: str | None = None
    key: str | None = None
    key_encoding: str | None = None
    from_time: str | int | None = None
    to_time: str | int | None = None
    headers: dict[str, str] | None = None
    ids: Annotated[list[str], Meta(max_length=IDS_MAX)] | None = None
    partition: _Partition | None = None


class RedriveBody(Body):
    """`rate` is in messages a second, unbounded if absent; `force` takes those that died again
    after many redrives too; `dry_run` only counts."""

    topic: str
    filter: FilterBody | None = None
    rate: _Rate | None = None
    dry_run: bool | None = None
    force: bool | None = None


class PurgeBody(Body):
    """`dry_run` only counts."""

    topic: str
    filter: FilterBody | None = None
    dry_run: bool | None = None


class RedriveAnswer(Struct):
    """A redrive: `state` is running, done or stopped. Of `matched` dead letters `moved` are ready
    again, `refused` were left dead because they would go in a loop. A dry run has no job."""

    group: str
    topic: str
    matched: int
    dry_run: bool = False
    job: int | UnsetType = UNSET
    state: str | UnsetType = UNSET
    moved: int | UnsetType = UNSET
    refused: int | UnsetType = UNSET
    rate: float | UnsetType = UNSET
    created_at: str | UnsetType = UNSET
    error: str | UnsetType = UNSET


class RedrivesAnswer(Struct):
    group: str
    redrives: list[RedriveAnswer]


class PurgedAnswer(Struct):
    """How many dead letters are gone, or would be."""

    group: str
    topic: str
    purged: int
    dry_run: bool


_REDRIVE = msgspec.json.Decoder(RedriveBody)
_PURGE = msgspec.json.Decoder(PurgeBody)


async def list_dead(call: Call) -> web.Response:
    group, topic = call.group(), _topic(call)
    query = call.query
    partition = query.get("partition") or None
    wanted = FilterBody(
        reason=query.get("reason") or None,
        key=query.get("key") or None,
        from_time=query.get("from_time") or None,
        to_time=query.get("to_time") or None,
        partition=None if partition is None else call.query_int("partition", 0, 0, PARTITIONS_MAX),
    )
    limit = call.query_int("limit", LIMIT_DEFAULT, 1, LIMIT_MAX)
    which, after = filter_of(wanted, topic), after_of(query.get("after", ""))
    with await page_room(call, call.limits.read_bytes_max) as room:
        page = await call.broker.letters.dead_letters(group, topic, which, after=after, limit=limit)
        messages = [letter.message for letter in page.messages]
        fits = await fitting_into(room, messages, call.limits.queue_bytes_max)
        following = page.following
        if fits < len(messages):
            following = messages[fits].partition, messages[fits].offset
        page = replace(page, messages=page.messages[:fits], following=following)
        return await told(call, _page(group, topic, page), room=room)


async def counts(call: Call) -> web.Response:
    group, topic = call.group(), _topic(call)
    found = await call.broker.letters.dead_letters(group, topic, DeadFilter(), after=None, limit=1)
    return answer(DeadCountsAnswer(group, topic, found.total, dict(found.by_reason)))


async def redrive(call: Call) -> web.Response:
    group = call.group()
    wanted = await call.document(_REDRIVE)
    topic = validate_topic_name(wanted.topic)
    dry_run = bool(wanted.dry_run)
    view = await call.broker.redriving.redrive(
        group,
        topic,
        filter_of(wanted.filter, topic),
        rate=wanted.rate or 0.0,
        dry_run=dry_run,
        force=bool(wanted.force),
    )
    if dry_run:
        return answer(RedriveAnswer(group, topic, view.matched, dry_run=True))
    return answer(_redrive(view), 202)


async def redrives(call: Call) -> web.Response:
    group = call.group()
    views = await call.broker.redriving.redrives(group)
    return answer(RedrivesAnswer(group, list(map(_redrive, views))))


async def redrive_job(call: Call) -> web.Response:
    group, job = call.group(), call.number("job")
    for view in await call.broker.redriving.redrives(group):
        if view.id == job:
            return answer(_redrive(view))
    raise NotFound(f"group {group} has no redrive {job}", group=group, job=job)


async def stop_redrive(call: Call) -> web.Response:
    return answer(
        _redrive(await call.broker.redriving.stop_redrive(call.group(), call.number("job")))
    )


async def purge(call: Call) -> web.Response:
    group = call.group()
    wanted = await call.document(_PURGE)
    topic = validate_topic_name(wanted.topic)
    dry_run = bool(wanted.dry_run)
    purged = await call.broker.letters.purge(
        group, topic, filter_of(wanted.filter, topic), dry_run=dry_run
    )
    return answer(PurgedAnswer(group, topic, purged, dry_run))


def filter_of(wanted: FilterBody | None, topic: str) -> DeadFilter:
    """Raises BadRequest with every problem."""
    if wanted is None:
        return DeadFilter()
    problems: list[str] = []
    times: list[int | None] = []
    key: bytes | None = None
    for name, given in (("from_time", wanted.from_time), ("to_time", wanted.to_time)):
        try:
            times.append(None if given is None else parse_time_ms(str(given)[:100], name))
        except BadRequest as error:
            problems.append(error.message)
    try:
        key = key_of(Message(key=wanted.key, key_encoding=wanted.key_encoding))
    except GoQueueError as error:
        problems.append(error.message)
    for text in wanted.ids or ():
        try:
            if MessageId.parse(text).topic != topic:
                problems.append(f"ids: {text[:80]} is not of topic {topic}")
        except GoQueueError as error:
            problems.append(f"ids: {error.message[:120]}")
    if problems:
        raise BadRequest(f"filter: {'; '.join(problems[:20])}")
    if wanted.ids == []:
        raise BadRequest("filter: ids names nothing")
    return DeadFilter(
        wanted.reason,
        times[0],
        times[1],
        key,
        wanted.headers or {},
        tuple(wanted.ids or ()),
        wanted.partition,
    )


def _topic(call: Call) -> str:
    name = call.query.get("topic", "")
    if not name:
        raise BadRequest("topic is required")
    return validate_topic_name(name)


def after_of(text: str) -> tuple[int, int] | None:
    """Where an earlier page's `next` goes on. Raises BadRequest."""
    if not text:
        return None
    found = _AFTER.fullmatch(text)
    if found is None or int(found[1]) > PARTITIONS_MAX or int(found[2]) > OFFSET_MAX:
        raise BadRequest(f"after: {text[:40]!r} is not partition:offset, as next was")
    return int(found[1]), int(found[2])


def _page(group: str, topic: str, page: DeadPage) -> DeadLettersAnswer:
    following = None if page.following is None else f"{page.following[0]}:{page.following[1]}"
    return DeadLettersAnswer(
        group,
        topic,
        list(map(_letter, page.messages)),
        following,
        page.total,
        dict(page.by_reason),
    )


def _letter(letter: DeadMessage) -> DeadLetterView:
    (view,) = queued_views((letter.message,))
    shown = msgspec.structs.asdict(view)
    shown.update(attempt=None, last_reason=None, redrives=letter.redrives)
    return DeadLetterView(
        **shown,
        reason=letter.reason,
        died_at=format_time(letter.died_ms),
        attempts=letter.attempts,
        history=[PastAttempt(format_time(at_ms), reason) for at_ms, reason in letter.history],
        original_id=view.id,
    )


def _redrive(view: RedriveView) -> RedriveAnswer:
    return RedriveAnswer(
        group=view.group,
        topic=view.topic,
        matched=view.matched,
        job=view.id,
        state=view.state,
        moved=view.moved,
        refused=view.refused,
        rate=view.rate,
        created_at=format_time(view.created_ms),
        error=view.error or UNSET,
    )
