"""`OffsetService`: how far groups have come, and where they go on, as HTTP's routes have it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from goqueue.wire.errors import (
    BadRequest,
    GoQueueError,
    StaleGeneration,
    UnknownMember,
    UnknownPartition,
    UnknownTopic,
)
from goqueue.wire.ids import OFFSET_MAX, validate_topic_name
from node.api.claims import NOBODY, Claim
from node.api.members import LagView, Place, ResetTo, ResetView
from node.listeners.grpc.call import Rpc
from node.listeners.grpc.failures import error_of
from node.listeners.grpc.names import InvalidPartition, group_of
from node.listeners.grpc.protocol import goqueue_pb2 as pb
from node.listeners.grpc.times import time_ms

SHARED = "shared"
"""The mode of groups whose members own no partitions."""


async def commit_offsets(rpc: Rpc) -> None:
    """A member commits what it owns, who is none what nobody does. Each topic's partitions are
    committed together, and fail together. Raises BadRequest, UnknownMember, StaleGeneration."""
    given: pb.CommitOffsetsRequest = await rpc.request()
    group = rpc.seen.target = group_of(given.group_id)
    _check_count(rpc, "offsets", len(given.offsets))
    by_topic: dict[str, dict[int, int]] = {}
    refused: dict[Place, GoQueueError] = {}
    for one in given.offsets:
        try:
            _check_place(one)
            _check_offset(one.offset)
        except GoQueueError as error:
            refused[one.topic, one.partition] = error
            continue
        below = by_topic.setdefault(one.topic, {})
        if below.setdefault(one.partition, one.offset) != one.offset:
            raise BadRequest(f"offsets: {one.topic}:{one.partition} is given twice")
    claim = await _claim(rpc, group, given.member_id, given.generation)
    for topic, below in by_topic.items():
        try:
            await rpc.broker.positions.commit(group, topic, below, claim)
        except GoQueueError as error:
            refused.update({(topic, number): error for number in below})
    told = pb.CommitOffsetsResponse()
    for one in given.offsets:
        failed = refused.get((one.topic, one.partition))
        told.results.add(
            topic=one.topic,
            partition=one.partition,
            success=failed is None,
            error=None if failed is None else error_of(failed),
        )
    await rpc.write(told)


async def fetch_offsets(rpc: Rpc) -> None:
    """Raises BadName, UnknownGroup."""
    given: pb.FetchOffsetsRequest = await rpc.request()
    group = rpc.seen.target = group_of(given.group_id)
    wanted = [(one.topic, one.partition) for one in given.partitions]
    _check_count(rpc, "partitions", len(wanted), is_needed=False)
    topics = list(dict.fromkeys(validate_topic_name(topic) for topic, _ in wanted))
    rows = {
        (row.topic, row.partition): row
        for row in await rpc.broker.positions.lag(group, topics or None)
    }
    told = pb.FetchOffsetsResponse()
    for topic, partition in wanted or sorted(rows):
        row = rows.get((topic, partition))
        told.offsets.add(
            topic=topic,
            partition=partition,
            offset=0 if row is None else row.committed,
            error=None if row else error_of(_missing(rpc, topic, partition)),
        )
    await rpc.write(told)


async def reset_offsets(rpc: Rpc) -> None:
    """A group that has members is refused: they would lose what they work on. What is asked of one
    topic happens together, or not at all. Raises BadRequest, BadName."""
    given: pb.ResetOffsetsRequest = await rpc.request()
    group = rpc.seen.target = group_of(given.group_id)
    if given.strategy == pb.OFFSET_RESET_STRATEGY_OFFSET:
        views, failed = await _reset_to_offsets(rpc, group, given)
        wanted = [(one.topic, one.partition) for one in given.offsets]
    else:
        wanted = [(one.topic, one.partition) for one in given.partitions]
        views, failed = await _reset_to(rpc, group, wanted, _target(given))
    told = pb.ResetOffsetsResponse()
    for topic, partition in wanted or sorted({**views, **failed}):
        view, error = views.get((topic, partition)), failed.get((topic, partition))
        told.results.add(
            topic=topic,
            partition=partition,
            old_offset=0 if view is None else view.before,
            new_offset=0 if view is None else view.after,
            error=None if error is None else error_of(error),
        )
    await rpc.write(told)


Ends = tuple[dict[Place, ResetView], dict[Place, GoQueueError]]


async def _reset_to(rpc: Rpc, group: str, wanted: Sequence[Place], to: ResetTo) -> Ends:
    _check_count(rpc, "partitions", len(wanted), is_needed=False)
    by_topic: dict[str, set[int]] = {}
    if wanted:
        for topic, partition in wanted:
            by_topic.setdefault(validate_topic_name(topic), set()).add(partition)
    else:
        rows: list[LagView] = await rpc.broker.positions.lag(group)
        by_topic = {row.topic: set[int]() for row in rows}
    views: dict[Place, ResetView] = {}
    failed: dict[Place, GoQueueError] = {}
    for topic, numbers in by_topic.items():
        try:
            found = await _reset(rpc, group, topic, to, sorted(numbers) if wanted else None)
        except GoQueueError as error:
            failed.update({(topic, number): error for number in numbers or (0,)})
        else:
            views.update({(view.topic, view.partition): view for view in found})
    return views, failed


async def _reset_to_offsets(rpc: Rpc, group: str, given: pb.ResetOffsetsRequest) -> Ends:
    _check_count(rpc, "offsets", len(given.offsets))
    views: dict[Place, ResetView] = {}
    failed: dict[Place, GoQueueError] = {}
    for one in given.offsets:
        place = (one.topic, one.partition)
        try:
            _check_place(one)
            _check_offset(one.offset)
            to = ResetTo(offset=one.offset)
            (views[place],) = await _reset(rpc, group, one.topic, to, [one.partition])
        except GoQueueError as error:
            failed[place] = error
    return views, failed


async def _reset(
    rpc: Rpc, group: str, topic: str, to: ResetTo, partitions: Sequence[int] | None
) -> Sequence[ResetView]:
    return await rpc.broker.positions.reset(
        group, topic, to, partitions=partitions, dry_run=False, claim=NOBODY
    )


def _target(given: pb.ResetOffsetsRequest) -> ResetTo:
    """Raises BadRequest."""
    if given.strategy == pb.OFFSET_RESET_STRATEGY_EARLIEST:
        return ResetTo(at="earliest")
    if given.strategy == pb.OFFSET_RESET_STRATEGY_LATEST:
        return ResetTo(at="latest")
    if given.strategy == pb.OFFSET_RESET_STRATEGY_TIMESTAMP:
        if not given.HasField("timestamp"):
            raise BadRequest("timestamp is required with OFFSET_RESET_STRATEGY_TIMESTAMP")
        return ResetTo(time_ms=time_ms(given.timestamp, "timestamp"))
    raise BadRequest("strategy: want EARLIEST, LATEST, TIMESTAMP or OFFSET")


async def _claim(rpc: Rpc, group: str, member: str, generation: int) -> Claim:
    """Who acts: a member, in the present generation where it says none. Partitions of a shared
    group are nobody's. Raises BadRequest, UnknownMember, StaleGeneration."""
    if not member:
        if generation:
            raise BadRequest("generation needs a member: give member_id, too")
        return NOBODY
    view = await rpc.broker.members.membership(group)
    if not generation and all(one.id != member for one in view.members):
        raise UnknownMember(group, member)
    if generation < 0 or generation > view.generation:
        raise StaleGeneration(
            f"group {group} is in generation {view.generation}: {generation} is yet to come",
            generation=view.generation,
            partitions=[],
        )
    if view.mode == SHARED:
        return Claim(member)
    return Claim(member, generation or view.generation)


def _missing(rpc: Rpc, topic: str, partition: int) -> GoQueueError:
    """Why nothing is known of a partition."""
    try:
        count = rpc.broker.topics.partition_count(topic)
    except UnknownTopic as error:
        return error
    if not 0 <= partition < count:
        return UnknownPartition(topic, partition)
    return GoQueueError(
        f"the leader of {topic}:{partition} does not tell now", retriable=True, topic=topic
    )


def _check_count(rpc: Rpc, name: str, count: int, *, is_needed: bool = True) -> None:
    """Raises BadRequest."""
    if is_needed and not count:
        raise BadRequest(f"{name}: none are given")
    if count > rpc.limits.items_max:
        raise BadRequest(f"{name}: {count} are given, at most {rpc.limits.items_max}")


def _check_place(one: Any) -> None:
    """Raises BadName, InvalidPartition."""
    validate_topic_name(one.topic)
    if one.partition < 0:
        raise InvalidPartition(f"partition {one.partition}: partitions are numbered from 0")


def _check_offset(offset: int) -> None:
    """Raises BadRequest."""
    if not 0 <= offset <= OFFSET_MAX:
        raise BadRequest(f"offset {offset}: want a number from 0")
