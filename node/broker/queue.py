"""The queue as the HTTP front sees it, from any node."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain, zip_longest

from coordinator.cluster.state import Topic
from delivery.config import LANES_COUNT
from delivery.entries.ops import (
    Committed,
    CountResult,
    Op,
    Parked,
    Resumed,
    Sought,
    StaleResult,
    Unparked,
)
from delivery.entries.ops import UnknownGroup as NotOpen
from goqueue.wire.errors import (
    BadRequest,
    GoQueueError,
    GroupActive,
    StaleGeneration,
    UnknownGroup,
    UnknownPartition,
)
from goqueue.wire.types import GroupId, Offset
from node.api.claims import NOBODY, NOBODYS, Claim, Maker
from node.api.dead_letters import DeadFilter, DeadPage, RedriveView
from node.api.delays import DelayedView, ScheduleView
from node.api.figures import GroupPartitionView, PartitionQueueStats
from node.api.groups import GroupView, Owners
from node.api.queue import QueuedMessage, Received, SettleRequest, SettleView
from node.broker.all_of import all_of
from node.broker.queue_parts import QueueParts
from node.cluster.topic_finder import TopicFinder
from node.partition.queue import stale_generation
from node.partition.reading.message_reader import row_bytes
from node.queue.group_admin import claim_in, group_ref
from node.queue.receiver import Poll
from node.rpc.queue import GroupRef, PeekRequest, queued

EARLIEST, END = -1, -2
"""Offsets to seek to by name."""
PEEKED_AT_ONCE = 16
"""Partitions: as many more are asked while there is less than was asked for, and than fits."""
FAR_END = (1 << 62) - 1
"""Beyond every offset: the partition's end where it applies."""


class QueueBrokerNode(ABC):
    """Implements `node.api.queue.Queue`. Loop thread only."""

    def __init__(self, finder: TopicFinder, parts: QueueParts) -> None:
        self._finder = finder
        self._queue = parts
        self.owners: Owners = parts.groups

    @abstractmethod
    async def offset_at(self, topic: str, partition: int, time_ms: int) -> Offset:
        """The first offset at or after a time."""
        ...

    # taking and settling

    async def receive(
        self,
        group: str,
        topics: Sequence[str],
        *,
        claim: Claim,
        limit: int,
        wait_s: float,
        visibility_ms: int | None,
        partitions: Sequence[int] | None = None,
        places: Sequence[tuple[str, int]] | None = None,
        lowest_lane: int = LANES_COUNT - 1,
    ) -> Received:
        if places is None:
            found = await self._partitions(topics, partitions)
        else:
            found = await self._places(places)
        known = await self._queue.groups.ensure_group(group, maker=claim.maker)
        ref, claim = group_ref(known), claim_in(known, claim)
        names = {id: topic.name for id, topic in found}
        start = self._queue.rng.randrange(len(found)) if found else 0
        poll = Poll(
            ref,
            [id for id, _topic in (*found[start:], *found[:start])],
            claim.member,
            limit,
            ref.config.visibility_ms if visibility_ms is None else visibility_ms,
            self._queue.answer_bytes,
            claim.generation,
            lowest_lane,
        )
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        try:
            taken = await self._queue.receiver.receive(poll, wait_s)
        except StaleGeneration as error:
            error.data["partitions"] = _named_places(error.data.get("partitions"), names)
            raise
        messages = [
            message
            for one in taken
            for message in self._queue.receipts.received(
                names[GroupId.unpack(one.partition)], ref.id, one
            )
        ]
        if places is None:  # else it is part of a member's poll
            self._queue.requests.polled(known.name, len(messages), loop.time() - began_s)
        unanswered = sorted(poll.doubtful | poll.unread)
        return Received(messages, [(names[id], id.partition) for id in unanswered])

    async def peek(
        self, group: str, topics: Sequence[str], *, limit: int, partitions: Sequence[int] | None
    ) -> list[QueuedMessage]:
        found = await self._partitions(topics, partitions)
        ref = group_ref(await self._queue.groups.find(group))
        bound = self._queue.answer_bytes
        share = bound // max(1, min(len(found), PEEKED_AT_ONCE))
        columns: list[list[QueuedMessage]] = []
        count = size = 0
        for at in range(0, len(found), PEEKED_AT_ONCE):
            asked = found[at : at + PEEKED_AT_ONCE]
            answers = await asyncio.gather(
                *(
                    self._queue.calls.peek(PeekRequest(id.pack(), ref, limit, share))
                    for id, _topic in asked
                )
            )
            for (id, topic), answer in zip(asked, answers, strict=True):
                columns.append(
                    [
                        queued(topic.name, id.partition, row, attempt=attempt)
                        for attempt, row in zip(answer.attempts, answer.messages, strict=True)
                    ]
                )
                count += len(answer.messages)
                size += sum(map(row_bytes, answer.messages))
            if count >= limit or size >= bound:
                break
        rows = chain.from_iterable(zip_longest(*columns))
        return [message for message in rows if message is not None][:limit]

    async def settle(
        self,
        requests: Sequence[SettleRequest],
        group: str | None = None,
        claim: Claim = NOBODY,
    ) -> list[SettleView | GoQueueError]:
        named = None if group is None else await self._queue.groups.find(group)
        return await self._queue.settles.settle(requests, named, claim)

    async def receipt_places(self, receipts: Sequence[str]) -> list[tuple[str, str] | None]:
        return await self._queue.settles.places(receipts)

    async def commit(
        self, group: str, topic: str, offsets: Mapping[int, int], claim: Claim = NOBODY
    ) -> dict[int, int]:
        found = await self._finder.find(topic, max(offsets, default=-1) + 1)
        for number in offsets:
            if not 0 <= number < len(found.partitions):
                raise UnknownPartition(topic, number)
        known = await self._queue.groups.ensure_group(group, maker=claim.maker)
        ref, claim = group_ref(known), claim_in(known, claim)
        ops = {
            number: Committed(ref.id, offset, claim.member, claim.generation)
            for number, offset in offsets.items()
        }
        requests, began_s = self._queue.requests, asyncio.get_running_loop().time()
        try:
            floors = await self._change(found, ref, ops)
        except GoQueueError as error:
            requests.commit_failed(found.name, known.name, error.code, len(ops))
            raise
        took_s = asyncio.get_running_loop().time() - began_s
        requests.committed(found.name, known.name, len(ops), took_s)
        return floors

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
        ref = group_ref(await self._queue.groups.find(group))
        ops: dict[int, Op] = {}
        for number in numbers:
            at = offset
            if time_ms is not None:
                at = await self.offset_at(topic, number, time_ms)
            ops[number] = Sought(
                ref.id,
                _absolute(at),
                self._queue.rng.getrandbits(63) or 1,
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

    async def resume(self, group: str, topic: str | None) -> int:
        ref = group_ref(await self._queue.groups.find(group))
        topics = self._finder.all() if topic is None else [await self._finder.find(topic)]
        figures = await self._queue.calls.figures(topics)
        told = {GroupId.unpack(packed) for packed, _dead in figures.dead}
        ids = {found.name: found.id for found in topics}
        halted = [
            GroupId(ids[one.topic], one.partition)
            for one in figures.partitions
            if one.topic in ids and group in one.groups and one.groups[group].halted
        ]
        # Where no leader tells now, it may be halted: it is resumed, or whoever asks is told.
        halted += [
            id
            for found in topics
            for number in range(len(found.partitions))
            if (id := GroupId(found.id, number)) not in told
        ]
        answers = await all_of(self._queue.calls.ops(id, [Resumed(ref.id)]) for id in halted)
        return sum(_count(answer.results[0]) for answer in answers)

    async def park(self, group: str, topic: str, key: bytes, *, release: bool) -> int:
        """In all partitions: a publisher may have chosen another one than the key's own."""
        found = await self._finder.find(topic)
        ref = group_ref(await self._queue.groups.find(group))
        if not release and ref.config.ordering != "key":
            raise BadRequest("keys are parked in groups of ordering: key", group=group)
        op: Op = Unparked(ref.id, key) if release else Parked(ref.id, key)
        answers = await all_of(
            self._queue.calls.ops(GroupId(found.id, number), [op], ref)
            for number in range(len(found.partitions))
        )
        return sum(_count(answer.results[0]) for answer in answers)

    # groups and figures

    async def put_group(
        self, name: str, settings: Mapping[str, object], maker: Maker = NOBODYS
    ) -> GroupView:
        return await self._queue.groups.put_group(name, settings, maker)

    async def list_groups(self) -> list[GroupView]:
        return await self._queue.groups.list_groups()

    async def group(self, name: str, topic: str | None = None) -> GroupView:
        found = self._queue.groups.view(await self._queue.groups.find(name))
        stats = await self.queue_stats(topic)
        views: list[GroupPartitionView] = [one.groups[name] for one in stats if name in one.groups]
        return replace(found, partitions=views, stale=any(one.stale for one in stats))

    async def delete_group(self, name: str, *, force: bool = False) -> None:
        await self._queue.groups.delete_group(name, force=force)

    async def queue_stats(self, topic: str | None = None) -> list[PartitionQueueStats]:
        topics = self._finder.all() if topic is None else [await self._finder.find(topic)]
        figures = await self._queue.calls.figures(topics)
        told = {GroupId.unpack(packed) for packed, _dead in figures.dead}
        stale = [
            self._queue.calls.unconfirmed(found.name, id)
            for found in topics
            for number in range(len(found.partitions))
            if (id := GroupId(found.id, number)) not in told
        ]
        return sorted((*figures.partitions, *stale), key=lambda one: (one.topic, one.partition))

    # dead letters

    async def dead_letters(
        self,
        group: str,
        topic: str,
        which: DeadFilter,
        *,
        after: tuple[int, int] | None,
        limit: int,
    ) -> DeadPage:
        letters = self._queue.letters
        return await letters.dead_letters(group, topic, which, after=after, limit=limit)

    async def dead_groups(self, topic: str) -> dict[str, dict[str, int]]:
        return await self._queue.letters.dead_groups(topic)

    async def purge(self, group: str, topic: str, which: DeadFilter, *, dry_run: bool) -> int:
        return await self._queue.letters.purge(group, topic, which, dry_run=dry_run)

    async def redrive(
        self,
        group: str,
        topic: str,
        which: DeadFilter,
        *,
        rate: float,
        dry_run: bool,
        force: bool,
    ) -> RedriveView:
        return await self._queue.redriving.redrive(
            group, topic, which, rate=rate, dry_run=dry_run, force=force
        )

    async def redrives(self, group: str) -> list[RedriveView]:
        return await self._queue.redriving.redrives(group)

    async def stop_redrive(self, group: str, job: int) -> RedriveView:
        return await self._queue.redriving.stop_redrive(group, job)

    # delays and schedules

    async def delayed(self, topic: str, *, limit: int, skip: int) -> tuple[list[DelayedView], int]:
        return await self._queue.delays.delayed(topic, limit=limit, skip=skip)

    async def find_delayed(self, topic: str, partition: int | None, offset: int) -> DelayedView:
        return await self._queue.delays.find_delayed(topic, partition, offset)

    async def cancel_delayed(self, topic: str, partition: int, offset: int) -> DelayedView:
        return await self._queue.delays.cancel_delayed(topic, partition, offset)

    async def put_schedule(self, schedule: Mapping[str, object]) -> ScheduleView:
        return await self._queue.scheduling.put_schedule(schedule)

    async def schedules(self) -> list[ScheduleView]:
        return await self._queue.scheduling.schedules()

    async def schedule(self, name: str) -> ScheduleView:
        return await self._queue.scheduling.schedule(name)

    async def pause_schedule(self, name: str, *, paused: bool) -> ScheduleView:
        return await self._queue.scheduling.pause_schedule(name, paused=paused)

    async def delete_schedule(self, name: str) -> None:
        await self._queue.scheduling.delete_schedule(name)

    # private

    async def _partitions(
        self, topics: Sequence[str], partitions: Sequence[int] | None
    ) -> list[tuple[GroupId, Topic]]:
        """The partitions meant; of several topics in turn. Raises `UnknownTopic`,
        `UnknownPartition`."""
        columns: list[list[tuple[GroupId, Topic]]] = []
        for name in topics:
            topic = await self._finder.find(name, max(partitions or (), default=-1) + 1)
            count = len(topic.partitions)
            for number in partitions or ():
                if not 0 <= number < count:
                    raise UnknownPartition(name, number)
            numbers = range(count) if partitions is None else sorted(set(partitions))
            columns.append([(GroupId(topic.id, number), topic) for number in numbers])
        rows = chain.from_iterable(zip_longest(*columns))
        return list({found[0]: found for found in rows if found is not None}.values())

    async def _places(self, places: Sequence[tuple[str, int]]) -> list[tuple[GroupId, Topic]]:
        """These very partitions. Raises `UnknownTopic`, `UnknownPartition`."""
        found: dict[GroupId, Topic] = {}
        for name, number in places:
            topic = await self._finder.find(name, number + 1)
            if not 0 <= number < len(topic.partitions):
                raise UnknownPartition(name, number)
            found[GroupId(topic.id, number)] = topic
        return list(found.items())

    async def _change(self, topic: Topic, ref: GroupRef, ops: Mapping[int, Op]) -> dict[int, int]:
        """Put one operation into each partition's log; where the group stands after it."""
        answers = await all_of(
            self._queue.calls.ops(GroupId(topic.id, number), [op], ref)
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
        return {number: answer.floor for number, answer in zip(ops, answers, strict=True)}


def _named_places(ids: object, names: Mapping[GroupId, str]) -> list[str]:
    """Partitions as topic:partition."""
    known = {str(id): f"{topic}:{id.partition}" for id, topic in names.items()}
    return [known[id] for id in ids if id in known] if isinstance(ids, list) else []


def _absolute(offset: int | None) -> int:
    if offset is None or offset == EARLIEST:
        return 0
    return FAR_END if offset == END else min(max(0, offset), FAR_END)


def _count(result: object) -> int:
    return result.count if isinstance(result, CountResult) else 0
