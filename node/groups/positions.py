"""How far groups have come, and setting them elsewhere, from any node."""

from __future__ import annotations

import asyncio
import dataclasses
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

from msgspec import structs

from coordinator.cluster.state import Topic
from coordinator.groups.settings import Group
from delivery.entries.ops import (
    FORCED,
    UNCLAIMED,
    Committed,
    CountResult,
    Op,
    OpenGroup,
    Sought,
    SoughtResult,
    StaleResult,
)
from delivery.entries.ops import UnknownGroup as NotOpen
from goqueue.wire.errors import (
    GoQueueError,
    GroupActive,
    StaleGeneration,
    Unavailable,
    UnknownGroup,
    UnknownPartition,
)
from goqueue.wire.types import NodeId, Offset, PartitionId
from node.api.claims import NOBODY, Claim
from node.api.members import LagView, ResetTo, ResetView
from node.cluster.host import ClusterHost
from node.cluster.topic_finder import TopicFinder
from node.groups.position_views import PositionViews
from node.groups.request_metrics import RequestMetrics
from node.partition.queue import stale_generation
from node.peers.all_of import all_of
from node.queue.calls import QueueCalls
from node.queue.group_admin import GroupsBroker, claim_in, group_ref
from node.rpc import positions as position_rpc
from node.rpc.positions import LagAnswer, LagRequest, LagRow, ResetAnswer, ResetRequest
from node.rpc.queue import GroupRef

LAG_ROUNDS = 30
"""How often leaders that do not answer are asked, 0.1 s apart: as long as elections take."""
NAMED_MAX = 20
"""Partitions named in an error."""
EARLIEST, END = -1, -2
"""Offsets to seek to by name."""
FAR_END = (1 << 62) - 1
"""Beyond every offset: the partition's end where it applies."""

Rows = dict[PartitionId, LagRow | None]


class GroupPositions:
    """Implements `node.api.members.Positions`. Loop thread only."""

    def __init__(
        self,
        *,
        cluster: ClusterHost,
        groups: GroupsBroker,
        finder: TopicFinder,
        calls: QueueCalls,
        views: PositionViews,
        rng: random.Random,
        requests: RequestMetrics,
        offset_at: Callable[[str, int, int], Awaitable[Offset]],
    ) -> None:
        """`offset_at` is as `node.api.records.Records` names it."""
        self._cluster = cluster
        self._groups = groups
        self._finder = finder
        self._calls = calls
        self._views = views
        self._rng = rng
        self._requests = requests
        self._offset_at = offset_at

    async def commit(
        self, group: str, topic: str, offsets: Mapping[int, int], claim: Claim = NOBODY
    ) -> dict[int, int]:
        found = await self._finder.find(topic, max(offsets, default=-1) + 1)
        for number in offsets:
            if not 0 <= number < len(found.partitions):
                raise UnknownPartition(topic, number)
        known = await self._groups.ensure_group(group, maker=claim.maker)
        ref, claim = group_ref(known), claim_in(known, claim)
        ops = {
            number: Committed(ref.id, offset, claim.member, claim.generation)
            for number, offset in offsets.items()
        }
        requests, began_s = self._requests, asyncio.get_running_loop().time()
        try:
            committed_offsets = await self._change(found, ref, ops)
        except GoQueueError as error:
            requests.commit_failed(found.name, known.name, error.code, len(ops))
            raise
        took_s = asyncio.get_running_loop().time() - began_s
        requests.committed(found.name, known.name, len(ops), took_s)
        return committed_offsets

    async def seek(
        self,
        group: str,
        topic: str,
        partition: int | None,
        *,
        offset: int | None,
        time_ms: int | None,
        claim: Claim = NOBODY,
    ) -> dict[int, int]:
        found = await self._finder.find(topic, 0 if partition is None else partition + 1)
        if partition is not None and not 0 <= partition < len(found.partitions):
            raise UnknownPartition(topic, partition)
        numbers = range(len(found.partitions)) if partition is None else (partition,)
        ref = group_ref(await self._groups.find(group))
        ops: dict[int, Op] = {}
        for number in numbers:
            at = offset
            if time_ms is not None:
                at = await self._offset_at(topic, number, time_ms)
            ops[number] = Sought(
                ref.id,
                _absolute(at),
                self._rng.getrandbits(63) or 1,
                claim.member,
                claim.generation,
            )
        try:
            return await self._change(found, ref, ops)
        except StaleGeneration as error:
            if claim != NOBODY:
                raise
            generation = error.data.get("generation")
            raise GroupActive(group=group, outcome=error.outcome, generation=generation) from None

    async def begin(self, group: str, topic: str, partition: int, *, offset: int) -> bool:
        """See `Positions.begin`. One operation, judged where it applies: nobody's look at what is
        there can be overtaken."""
        found = await self._finder.find(topic, partition + 1)
        _numbers(found, (partition,))
        ref = group_ref(await self._groups.find(group))
        start = "latest" if offset == END else ref.config.start
        config = structs.replace(ref.config, start=start)  # what is delayed behind the end is not
        op = OpenGroup(ref.id, ref.name, ref.version, config, _absolute(offset))
        answer = await self._calls.operations.put(PartitionId(found.id, partition), [op])
        result = answer.results[0]
        return not isinstance(result, CountResult) or result.count > 0  # 0.2.0 tells nothing

    async def lag(self, group: str, topics: Sequence[str] | None = None) -> list[LagView]:
        """See `Positions.lag`. Raises `Unavailable` where leaders don't answer: what is left out
        would look as if there were no lag."""
        known = await self._groups.find(group)
        if topics is not None:
            named = [await self._finder.find(name) for name in dict.fromkeys(topics)]
            found = await self._rows(known, named, [])
        else:
            named = self._subscribed(known)
            others = [topic for topic in self._finder.all() if topic not in named]
            found = await self._rows(known, named, others)
            begun = {id.topic for id, row in found.items() if row is not None}
            named = [topic for topic in (*named, *others) if topic.id in begun]
            if any(found[id] is None for id in _partitions(named)):
                found = await self._rows(known, named, [])
        views = [_lag_view(topic, found[id]) for topic in named for id in _partitions([topic])]
        return sorted(
            (view for view in views if view is not None),
            key=lambda view: (view.topic, view.partition),
        )

    async def reset(
        self,
        group: str,
        topic: str,
        to: ResetTo,
        *,
        partitions: Sequence[int] | None,
        dry_run: bool,
        claim: Claim,
    ) -> list[ResetView]:
        """See `Positions.reset`. All leaders are asked before any position is set. An error
        that came too late for that tells in `reset` where partitions went, and in `failed` which
        did not, and why."""
        found = await self._finder.find(topic, max(partitions or (), default=-1) + 1)
        numbers = _numbers(found, partitions)
        known = await self._groups.find(group)
        if claim.generation == UNCLAIMED:
            await self._check_active(known)
        told = await asyncio.gather(
            *(self._would_reset(known, PartitionId(found.id, number), to) for number in numbers)
        )
        if claim.generation not in (UNCLAIMED, FORCED):
            _check_owned(topic, dict(zip(numbers, told, strict=True)), claim)
        if dry_run:
            return [_reset_view(topic, n, one) for n, one in zip(numbers, told, strict=True)]
        outcomes = await asyncio.gather(
            *(
                self._seek(known, PartitionId(found.id, number), one.target, claim)
                for number, one in zip(numbers, told, strict=True)
            ),
            return_exceptions=True,
        )
        done: list[ResetView] = []
        failed: dict[int, GoQueueError] = {}
        for number, outcome in zip(numbers, outcomes, strict=True):
            if isinstance(outcome, GoQueueError):
                failed[number] = outcome
            elif isinstance(outcome, BaseException):
                raise outcome
            else:
                done.append(_reset_view(topic, number, outcome))
        if failed:
            raise _failure(topic, done, failed, repeats=to.shift is None)
        return done

    # lag

    def _subscribed(self, group: Group) -> list[Topic]:
        """Topics that any of its members subscribes to."""
        membership = self._cluster.state.members.of(group)
        return [topic for topic in self._finder.all() if membership.subscribes_to(topic.name)]

    async def _rows(self, group: Group, topics: Iterable[Topic], others: Iterable[Topic]) -> Rows:
        """Of all partitions of the topics, and of the others'; None where it is not open there."""
        wanted = set(_partitions(topics))
        found: Rows = {}

        async def ask(node: NodeId, asked: list[PartitionId]) -> Iterable[PartitionId]:
            request = LagRequest(
                group_ref(group),
                group.created_ms,
                [id.pack() for id in asked if id in wanted],
                [id.pack() for id in asked if id not in wanted],
            )
            answer = await self._calls.ask_node(
                node, request, self._views.lag, position_rpc.LAG, LagAnswer
            )
            if answer is None:
                return []
            told: Rows = {PartitionId.unpack(row.partition): row for row in answer.rows}
            told |= dict.fromkeys(map(PartitionId.unpack, answer.closed))
            found.update(told)
            return told

        left = await self._calls.each_leader({*wanted, *_partitions(others)}, ask, LAG_ROUNDS)
        if left:
            names = self._names(left)
            raise Unavailable(
                f"the leaders of {len(left)} partitions do not answer: {', '.join(names)}",
                partitions=names,
            )
        return found

    def _names(self, partitions: Iterable[PartitionId]) -> list[str]:
        state = self._cluster.state
        named = [(state.topic_of(id.topic), id.partition) for id in sorted(partitions)[:NAMED_MAX]]
        return [f"{'?' if topic is None else topic.name}:{number}" for topic, number in named]

    # reset

    async def _check_active(self, group: Group) -> None:
        """Raises `GroupActive`, or `Unavailable` where nobody can say whether it is. What happens
        after this look is judged where the partitions have owners."""
        if not await self._cluster.refresh():
            problem = self._cluster.not_ready() or "the cluster group's leader does not answer"
            raise Unavailable(
                f"nobody can say whether group {group.name} has members: {problem}",
                group=group.name,
            )
        membership = self._cluster.state.members.of(group)
        if membership.members:
            count = len(membership.members)
            raise GroupActive(
                f"group {group.name} has {count} active member{'s' * (count != 1)}",
                group=group.name,
                members=count,
                generation=membership.generation,
            )

    async def _would_reset(self, group: Group, partition: PartitionId, to: ResetTo) -> ResetAnswer:
        request = ResetRequest(
            partition.pack(), group_ref(group), group.created_ms, **dataclasses.asdict(to)
        )
        return await self._calls.ask(
            request,
            request.partition,
            self._views.would_reset,
            position_rpc.WOULD_RESET,
            ResetAnswer,
        )

    async def _change(self, topic: Topic, ref: GroupRef, ops: Mapping[int, Op]) -> dict[int, int]:
        """Put one operation into each partition's log; where the group stands after it."""
        answers = await all_of(
            self._calls.operations.put(PartitionId(topic.id, number), [op], ref)
            for number, op in ops.items()
        )
        stale: dict[int, StaleResult] = {}
        for number, answer in zip(ops, answers, strict=True):
            if isinstance(answer.results[0], NotOpen):
                raise UnknownGroup(ref.name)  # deleted, or made anew under its name
            if isinstance(answer.results[0], StaleResult):
                stale[number] = answer.results[0]
        if stale:
            error = stale_generation(next(iter(stale.values())))
            error.data["partitions"] = [f"{topic.name}:{number}" for number in stale]
            if len(stale) < len(ops):
                error.outcome = "unknown"  # the others' was done
            raise error
        return {
            number: answer.committed_offset for number, answer in zip(ops, answers, strict=True)
        }

    async def _seek(
        self, group: Group, partition: PartitionId, offset: int, claim: Claim
    ) -> SoughtResult:
        request = self._rng.getrandbits(63) or 1
        op = Sought(group.id, offset, request, claim.member, claim.generation)
        answer = await self._calls.operations.put(partition, [op], group_ref(group))
        result = answer.results[0]
        if isinstance(result, SoughtResult):
            return result
        if not isinstance(result, StaleResult):
            raise UnknownGroup(group.name)  # deleted, or made anew under its name
        if claim.generation != UNCLAIMED:
            raise stale_generation(result)
        raise GroupActive(group=group.name, generation=result.generation)


def _partitions(topics: Iterable[Topic]) -> list[PartitionId]:
    return [PartitionId(topic.id, n) for topic in topics for n in range(len(topic.partitions))]


def _numbers(topic: Topic, partitions: Sequence[int] | None) -> Sequence[int]:
    count = len(topic.partitions)
    if partitions is None:
        return range(count)
    for number in partitions:
        if not 0 <= number < count:
            raise UnknownPartition(topic.name, number)
    return sorted(set(partitions))


def _lag_view(topic: Topic, row: LagRow | None) -> LagView | None:
    if row is None:
        return None
    return LagView(
        topic=topic.name,
        partition=PartitionId.unpack(row.partition).partition,
        committed=row.committed,
        end=row.end,
        lag=row.lag,
        lag_ms=row.lag_ms,
        in_flight=row.in_flight,
        delayed=row.delayed,
        dead=row.dead,
        owner=row.owner,
        generation=row.generation,
    )


def _reset_view(topic: str, partition: int, told: ResetAnswer | SoughtResult) -> ResetView:
    return ResetView(topic, partition, told.before, told.after, told.replayed, told.skipped)


def _check_owned(topic: str, told: Mapping[int, ResetAnswer], claim: Claim) -> None:
    """Raises `StaleGeneration` where any of the partitions is not the member's."""
    others = {
        number: one
        for number, one in told.items()
        if one.owner != claim.member or one.generation > claim.generation
    }
    if others:
        names = [f"{topic}:{number}" for number in others]
        raise StaleGeneration(
            f"{', '.join(names[:NAMED_MAX])} belong to other members of the group, or to none",
            generation=max(one.generation for one in others.values()),
            partitions=names,
        )


def _failure(
    topic: str, done: Sequence[ResetView], failed: dict[int, GoQueueError], *, repeats: bool
) -> GoQueueError:
    """The worst of what went wrong, with what became of every partition. Doing it all again is
    harmless where it `repeats`."""
    told = [
        {"partition": number, "code": one.code, "error": one.message, "outcome": one.outcome}
        for number, one in failed.items()
    ]
    error = max(failed.values(), key=lambda one: one.outcome == "unknown")
    if done:
        numbers = ", ".join(map(str, failed))
        error.message = (
            f"{len(done)} of {len(done) + len(failed)} partitions were reset, but not {numbers}: "
            f"{error.message}"
        )
        error.args = (error.message,)
        error.outcome = "unknown"
    error.retriable = error.retriable and repeats
    error.data["reset"] = [dataclasses.asdict(view) for view in done]
    error.data["failed"] = told
    error.data["partitions"] = [f"{topic}:{number}" for number in failed]
    return error


def _absolute(offset: int | None) -> int:
    if offset is None or offset == EARLIEST:
        return 0
    return FAR_END if offset == END else min(max(0, offset), FAR_END)
