"""How far groups have come: offsets, lag in messages and in seconds, and setting them elsewhere."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec
from aiohttp import web
from msgspec import Meta, Struct

from goqueue.wire.errors import BadRequest, GoQueueError, GroupActive, StaleGeneration
from goqueue.wire.ids import OFFSET_MAX, PARTITIONS_MAX, validate_topic_name
from node.api.claims import FORCED, Claim
from node.api.members import LagView, ResetTo, ResetView
from node.api.times import Duration, duration_ms, format_time, parse_time_ms
from node.http.groups.assignments import PLACE_WORK_BYTES
from node.http.groups.consumer_identity import Generation, Member, check_not_newer, claim_of
from node.http.groups.members import find_member
from node.http.groups.positions import committed_below
from node.http.request.body import off_loop
from node.http.request.call import Call, answer
from node.http.text.known_fields import Body

COMMITS_MAX = 100_000

_WHOLE = re.compile(r"-?\d{1,19}", re.ASCII)
_Partition = Annotated[int, Meta(ge=0, le=PARTITIONS_MAX)]
_Offset = Annotated[int, Meta(ge=0, le=OFFSET_MAX)]


class CommittedPlace(Body):
    topic: str
    partition: _Partition
    offset: _Offset


class CommitOffsetsBody(Body):
    """Everything below each offset is settled: `{topic: {partition: offset}}`, or a list.

    A member commits what it owns; who is none, what nobody does. `force` commits whoever owns it.
    """

    offsets: (
        dict[str, dict[str, int]]
        | Annotated[list[CommittedPlace], Meta(max_length=COMMITS_MAX)]
        | None
    ) = None
    member_id: Member | None = None
    generation: Generation | None = None
    force: bool | None = None


class CommitOffsetsAnswer(Struct):
    """The offsets after it, by topic and partition."""

    status: str
    success: bool
    committed: bool
    group: str
    group_id: str
    offsets: dict[str, dict[str, int]]


class OffsetDetail(Struct):
    """Everything below `committed_offset` is settled; `lag_seconds` is for how long the oldest
    message that is not could have been."""

    topic: str
    partition: int
    committed_offset: int
    end_offset: int
    lag: int
    lag_seconds: float
    in_flight: int
    owner: str


class GroupOffsets(Struct):
    """The committed offsets, as `topics` and as `offsets`: by topic and partition."""

    group: str
    group_id: str
    topics: dict[str, dict[str, int]]
    offsets: dict[str, dict[str, int]]
    details: list[OffsetDetail]
    generation: int
    updated_at: str


class LagDetail(Struct):
    """`lag` counts messages that are due and not settled; `delayed` those that are not due yet."""

    topic: str
    partition: int
    committed_offset: int
    end_offset: int
    lag: int
    lag_seconds: float
    in_flight: int
    delayed: int
    dead: int
    owner: str
    generation: int


class LagAnswer(Struct):
    group: str
    total_lag: int
    max_lag_seconds: float
    partitions: list[LagDetail]


class ResetBody(Body):
    """Exactly one of `to` (earliest or latest), `offset`, `time` (RFC 3339 or epoch milliseconds),
    `duration` (so long ago) and `shift` (messages forward, or back). All partitions, unless some
    are named; `dry_run` changes nothing."""

    topic: str | None = None
    partitions: Annotated[list[_Partition], Meta(max_length=100_000)] | None = None
    partition: _Partition | None = None
    to: str | int | None = None
    offset: int | None = None
    time: str | int | None = None
    duration: Duration | None = None
    shift: int | None = None
    dry_run: bool | None = None
    force: bool | None = None
    member_id: Member | None = None
    generation: Generation | None = None


class ResetPartition(Struct):
    """`replayed` messages come again; `skipped` were not settled, and don't come any more."""

    topic: str
    partition: int
    before: int
    after: int
    replayed: int
    skipped: int


class Refusal(Struct):
    """What a dry run would be refused with, were it none."""

    code: str
    error: str


class ResetAnswer(Struct, omit_defaults=True):
    group: str
    topic: str
    dry_run: bool
    offsets: list[ResetPartition]
    refusal: Refusal | None = None
    """Of a dry run only, where something stands in the way: `force` goes ahead."""


Committed = Mapping[str, Mapping[str, int]] | Sequence[CommittedPlace]

_COMMIT = msgspec.json.Decoder(CommitOffsetsBody)
_RESET = msgspec.json.Decoder(ResetBody)


async def get(call: Call) -> web.Response:
    group = call.group()
    rows, view = await asyncio.gather(
        call.broker.positions.lag(group, _topics(call)), call.broker.members.membership(group)
    )
    by_topic: dict[str, dict[str, int]] = {}
    for row in rows:
        by_topic.setdefault(row.topic, {})[str(row.partition)] = row.committed
    now = format_time(int(time.time() * 1000))
    details = list(map(_detail, rows))
    return answer(GroupOffsets(group, group, by_topic, by_topic, details, view.generation, now))


async def lag(call: Call) -> web.Response:
    group = call.group()
    rows = await call.broker.positions.lag(group, _topics(call))
    return answer(
        LagAnswer(
            group,
            sum(row.lag for row in rows),
            _seconds(max((row.lag_ms for row in rows), default=0)),
            list(map(_lag, rows)),
        )
    )


async def commit(call: Call) -> web.Response:
    """POST /groups/{group}/offsets. Topics are committed one after the other: an error tells those
    that were committed before it."""
    group = call.group()
    wanted = await call.document(_COMMIT)
    offsets = await off_loop(_work_bytes(wanted.offsets), _by_topic, wanted.offsets)
    claim = await _claim(call, group, wanted.member_id, wanted.generation, force=wanted.force)
    done: dict[str, dict[str, int]] = {}
    for topic, below in offsets.items():
        try:
            committed_offsets = await call.broker.positions.commit(group, topic, below, claim)
        except GoQueueError as error:
            error.data["committed"] = done
            raise
        done[topic] = {
            str(partition): committed_offset
            for partition, committed_offset in sorted(committed_offsets.items())
        }
    return answer(CommitOffsetsAnswer("committed", True, True, group, group, done))


async def reset(call: Call) -> web.Response:
    """POST /groups/{group}/offsets/reset."""
    group = call.group()
    wanted = await call.document(_RESET)
    topic, to, partitions = _reset_of(wanted)
    dry_run = bool(wanted.dry_run)
    claim = await _claim(call, group, wanted.member_id, wanted.generation, force=wanted.force)
    refusal = None
    try:
        views = await call.broker.positions.reset(
            group, topic, to, partitions=partitions, dry_run=dry_run, claim=claim
        )
    except (GroupActive, StaleGeneration) as error:
        if not dry_run:
            raise
        refusal = Refusal(error.code, error.message)
        views = await call.broker.positions.reset(
            group, topic, to, partitions=partitions, dry_run=True, claim=FORCED
        )
    return answer(ResetAnswer(group, topic, dry_run, list(map(_reset_view, views)), refusal))


async def _claim(
    call: Call, group: str, member: str | None, generation: int | None, *, force: bool | None
) -> Claim:
    """Who acts. A member that says no generation acts in the present one, as GoQueue's clients do;
    of one that says it, whoever leads a partition judges, also where it is a member no longer.
    Partitions of a shared group are nobody's. Raises UnknownMember, StaleGeneration."""
    if force or not member:
        return claim_of(member, generation, force=force)
    view = await call.broker.members.membership(group)
    if generation is None:
        find_member(view, member)
    check_not_newer(group, generation, view.generation)
    if view.mode == "shared":
        return Claim(member)
    return Claim(member, view.generation if generation is None else generation)


def _topics(call: Call) -> list[str] | None:
    topic = call.query.get("topic")
    return [validate_topic_name(topic)] if topic else None


def _work_bytes(given: Committed | None) -> int:
    if isinstance(given, Mapping):
        return PLACE_WORK_BYTES * sum(map(len, given.values()))
    return PLACE_WORK_BYTES * len(given or ())


def _by_topic(given: Committed | None) -> dict[str, dict[int, int]]:
    """Raises BadRequest, BadName."""
    if not given:
        raise BadRequest("offsets: nothing to commit")
    if isinstance(given, Mapping):
        return {
            validate_topic_name(topic): committed_below(below) for topic, below in given.items()
        }
    found: dict[str, dict[int, int]] = {}
    for place in given:
        below = found.setdefault(validate_topic_name(place.topic), {})
        if below.setdefault(place.partition, place.offset) != place.offset:
            raise BadRequest(f"offsets: {place.topic}:{place.partition} is given twice")
    return found


def _reset_of(wanted: ResetBody) -> tuple[str, ResetTo, list[int] | None]:
    """Raises BadRequest with every problem."""
    problems: list[str] = []
    if not wanted.topic:
        problems.append("topic is required")
    if wanted.partition is not None and wanted.partitions is not None:
        problems.append("give partition or partitions, not both")
    if wanted.partitions == []:
        problems.append("partitions names none: leave it out for all of them")
    given = {
        "to": wanted.to,
        "offset": wanted.offset,
        "time": wanted.time,
        "duration": wanted.duration,
        "shift": wanted.shift,
    }
    named = [name for name, value in given.items() if value is not None]
    to = ResetTo()
    if len(named) != 1:
        told = f": {', '.join(named)} are given" if named else ""
        problems.append(f"give one of {', '.join(given)}{told}")
    else:
        try:
            to = _target(named[0], given[named[0]])
        except BadRequest as error:
            problems.append(error.message)
    try:
        topic = validate_topic_name(wanted.topic) if wanted.topic else ""
    except BadRequest as error:
        problems.append(error.message)
        topic = ""
    if problems:
        raise BadRequest("; ".join(problems), problems=problems)
    partitions = wanted.partitions if wanted.partition is None else [wanted.partition]
    return topic, to, None if partitions is None else sorted(set(partitions))


def _target(name: str, value: Any) -> ResetTo:
    """Raises BadRequest."""
    text = str(value)[:100]
    if name == "to" and text in ("earliest", "latest"):
        return ResetTo(at=text)
    if name == "offset" or (name == "to" and _WHOLE.fullmatch(text)):
        if not _WHOLE.fullmatch(text) or not 0 <= int(text) <= OFFSET_MAX:
            raise BadRequest(f"{name}: {text[:40]} is not an offset")
        return ResetTo(offset=int(text))
    if name == "shift":
        if not -OFFSET_MAX <= value <= OFFSET_MAX:
            raise BadRequest(f"shift: {text[:40]} is too far")
        return ResetTo(shift=value)
    if name == "duration":
        return ResetTo(duration_ms=duration_ms(value, name))
    if name == "to" and not text[:1].isdigit():
        raise BadRequest(f"to: {text[:40]!r} is none of earliest, latest, an offset or a time")
    return ResetTo(time_ms=parse_time_ms(text, name))


def _detail(row: LagView) -> OffsetDetail:
    return OffsetDetail(
        row.topic,
        row.partition,
        row.committed,
        row.end,
        row.lag,
        _seconds(row.lag_ms),
        row.in_flight,
        row.owner,
    )


def _lag(row: LagView) -> LagDetail:
    return LagDetail(
        row.topic,
        row.partition,
        row.committed,
        row.end,
        row.lag,
        _seconds(row.lag_ms),
        row.in_flight,
        row.delayed,
        row.dead,
        row.owner,
        row.generation,
    )


def _reset_view(view: ResetView) -> ResetPartition:
    return ResetPartition(
        view.topic, view.partition, view.before, view.after, view.replayed, view.skipped
    )


def _seconds(ms: int) -> float:
    return round(ms / 1000, 3)
