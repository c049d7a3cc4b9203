"""Taking messages as the HTTP front asks for it, from any node: a part of the broker."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from itertools import chain, zip_longest

from coordinator.cluster.state import Topic
from delivery.config import LANES_COUNT
from delivery.entries.ops import (
    NACK,
    CountResult,
    Delivered,
    Granted,
    Op,
    Parked,
    Resumed,
    Settled,
    Unparked,
)
from goqueue.wire.errors import BadReceipt, BadRequest, StaleGeneration, UnknownPartition
from goqueue.wire.types import Offset, PartitionId
from log.levels import Feature
from node.api.claims import Claim
from node.api.queue import Pending, PendingFilter, PendingMessage, QueuedMessage, Received
from node.cluster.topic_finder import TopicFinder
from node.groups.request_metrics import RequestMetrics
from node.partition.reading.message_reader import row_bytes
from node.peers.all_of import all_of
from node.queue.calls import QueueCalls
from node.queue.group_admin import GroupsBroker, claim_in, group_ref
from node.queue.poll import Poll
from node.queue.receipt import decode_receipt
from node.queue.receipts import Receipts
from node.queue.receiver import QueueReceiver
from node.queue.stream_leases import StreamLeases
from node.rpc.queue import GroupRef, PeekRequest, PendingAnswer, PendingRequest, Taken, queued

STAYS = 16
"""How often in a row, on average, a consumer that settles with each receive asks first the
partition that it has settled in."""
TAKEN_OVER = "taken over by another consumer"
"""Why an attempt failed whose message another consumer has claimed."""
PEEKED_AT_ONCE = 16
"""Partitions: as many more are asked while there is less than was asked for, and than fits."""


class NodeQueue:
    """Implements `node.api.queue.Queue`. Loop thread only."""

    def __init__(
        self,
        finder: TopicFinder,
        groups: GroupsBroker,
        calls: QueueCalls,
        receiver: QueueReceiver,
        receipts: Receipts,
        requests: RequestMetrics,
        rng: random.Random,
        answer_bytes: int,
    ) -> None:
        """`answer_bytes` bounds the values of one answer: what was leased beyond is given back."""
        self._finder = finder
        self._groups = groups
        self._calls = calls
        self._receiver = receiver
        self._receipts = receipts
        self._requests = requests
        self._rng = rng
        self._answer_bytes = answer_bytes

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
        beside: Sequence[str] = (),
        bytes_max: int | None = None,
        stream: StreamLeases | None = None,
    ) -> Received:
        """As `Queue.receive`; a stream's receive is also bounded in bytes, and its leases are noted
        as the stream's."""
        if places is None:
            found = await self._partitions(topics, partitions)
        else:
            found = await self._places(places)
        known = await self._groups.ensure_group(group, maker=claim.maker)
        ref, claim = group_ref(known), claim_in(known, claim)
        poll = Poll(
            ref,
            self._in_turn([id for id, _topic in found], beside),
            claim.member,
            limit,
            _visibility_ms(ref.config.visibility_ms, visibility_ms, stream),
            self._answer_bytes if bytes_max is None else min(bytes_max, self._answer_bytes),
            claim.generation,
            lowest_lane,
            stream,
        )
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        try:
            taken = await self._receiver.receive(poll, wait_s)
        except StaleGeneration as error:
            names = {id: topic.name for id, topic in found}
            error.data["partitions"] = _named_places(error.data.get("partitions"), names)
            raise
        names = {id: topic.name for id, topic in found}  # not before: most of the time, it waits
        messages = [
            message
            for one in taken
            for message in self._receipts.received(
                names[PartitionId.unpack(one.partition)], ref.id, one
            )
        ]
        if stream is not None:
            stream.receipts.update(dict.fromkeys(message.receipt for message in messages))
        if places is None:  # else it is part of a member's poll
            self._requests.polled(known.name, len(messages), loop.time() - began_s)
        unanswered = sorted(poll.doubtful | poll.unread)
        return Received(messages, [(names[id], id.partition) for id in unanswered])

    def _in_turn(self, ids: list[PartitionId], beside: Sequence[str]) -> list[PartitionId]:
        """From one at random on; first the partitions of receipts that are settled beside it, but
        for one time in a few, as the others would have to wait until these are empty."""
        start = self._rng.randrange(len(ids)) if ids else 0
        ordered = [*ids[start:], *ids[:start]]
        if beside and self._rng.randrange(STAYS):
            settled = {_partition_of(receipt) for receipt in beside}
            ordered.sort(key=lambda id: id not in settled)
        return ordered

    async def peek(
        self, group: str, topics: Sequence[str], *, limit: int, partitions: Sequence[int] | None
    ) -> list[QueuedMessage]:
        found = await self._partitions(topics, partitions)
        ref = group_ref(await self._groups.find(group))
        bound = self._answer_bytes
        share = bound // max(1, min(len(found), PEEKED_AT_ONCE))
        columns: list[list[QueuedMessage]] = []
        count = size = 0
        for at in range(0, len(found), PEEKED_AT_ONCE):
            asked = found[at : at + PEEKED_AT_ONCE]
            answers = await asyncio.gather(
                *(
                    self._calls.peek(PeekRequest(id.pack(), ref, limit, share))
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

    async def pending(
        self, group: str, topic: str, partition: int, which: PendingFilter
    ) -> Pending:
        self._groups.require(Feature.PENDING)
        ((id, found),) = await self._places([(topic, partition)])
        ref = group_ref(await self._groups.find(group))
        return self._told(found.name, ref, id, await self._asked(id, ref, which))

    async def take_over(
        self, group: str, topic: str, partition: int, consumer: str, which: PendingFilter
    ) -> tuple[Received, Pending]:
        self._groups.require(Feature.PENDING)
        ((id, found),) = await self._places([(topic, partition)])
        ref = group_ref(await self._groups.find(group))
        answer = await self._asked(id, ref, which)
        before = self._told(found.name, ref, id, answer)
        if not answer.rows:
            return Received(), before
        deliveries: dict[int, list[int]] = {}
        for row in answer.rows:
            deliveries.setdefault(row.delivery, []).append(row.offset)
        offsets = [row.offset for row in answer.rows]
        given_up = Settled(ref.id, NACK, list(deliveries.items()), TAKEN_OVER, delay_ms=0)
        taken = Delivered(ref.id, consumer, ref.config.visibility_ms, offsets)
        done = await self._calls.operations.put(id, [given_up, taken], ref)
        granted = done.results[1]
        if not isinstance(granted, Granted):
            raise StaleGeneration
        rows = {row.offset: row.message for row in answer.rows}
        grants = [one for one in granted.grants if rows.get(one.offset) is not None]
        messages = [message for one in grants if (message := rows[one.offset]) is not None]
        lease = Taken(id.pack(), granted.delivery, granted.deadline_ms, grants, messages)
        return Received(self._receipts.received(found.name, ref.id, lease)), before

    async def _asked(self, id: PartitionId, ref: GroupRef, which: PendingFilter) -> PendingAnswer:
        return await self._calls.pending(
            PendingRequest(
                id.pack(),
                ref.id,
                which.start,
                which.end,
                which.limit,
                which.consumer,
                which.idle_ms_min,
                None if which.offsets is None else list(which.offsets),
                self._answer_bytes,
            )
        )

    def _told(self, topic: str, ref: GroupRef, id: PartitionId, answer: PendingAnswer) -> Pending:
        packed, found = id.pack(), list[PendingMessage]()
        for row in answer.rows:
            (receipt,) = self._receipts.write(packed, ref.id, row.delivery, [row.offset])
            message = None
            if row.message is not None:
                message = queued(
                    topic,
                    id.partition,
                    row.message,
                    receipt=receipt,
                    attempt=row.attempt,
                    deadline_ms=row.deadline_ms,
                )
            found.append(
                PendingMessage(
                    id.partition,
                    Offset(row.offset),
                    row.member,
                    row.idle_ms,
                    row.attempt,
                    receipt,
                    message,
                )
            )
        return Pending(found, answer.following, answer.by_member, answer.first, answer.last)

    async def resume(self, group: str, topic: str | None) -> int:
        ref = group_ref(await self._groups.find(group))
        topics = self._finder.all() if topic is None else [await self._finder.find(topic)]
        figures = await self._calls.figures(topics)
        told = {PartitionId.unpack(packed) for packed, _dead in figures.dead}
        ids = {found.name: found.id for found in topics}
        halted = [
            PartitionId(ids[one.topic], one.partition)
            for one in figures.partitions
            if one.topic in ids and group in one.groups and one.groups[group].halted
        ]
        # Where no leader tells now, it may be halted: it is resumed, or whoever asks is told.
        halted += [
            id
            for found in topics
            for number in range(len(found.partitions))
            if (id := PartitionId(found.id, number)) not in told
        ]
        answers = await all_of(self._calls.operations.put(id, [Resumed(ref.id)]) for id in halted)
        return sum(_count(answer.results[0]) for answer in answers)

    async def park(self, group: str, topic: str, key: bytes, *, release: bool) -> int:
        """In all partitions: a publisher may have chosen another one than the key's own."""
        found = await self._finder.find(topic)
        ref = group_ref(await self._groups.find(group))
        if not release and ref.config.ordering != "key":
            raise BadRequest("keys are parked in groups of ordering: key", group=group)
        op: Op = Unparked(ref.id, key) if release else Parked(ref.id, key)
        answers = await all_of(
            self._calls.operations.put(PartitionId(found.id, number), [op], ref)
            for number in range(len(found.partitions))
        )
        return sum(_count(answer.results[0]) for answer in answers)

    async def _partitions(
        self, topics: Sequence[str], partitions: Sequence[int] | None
    ) -> list[tuple[PartitionId, Topic]]:
        """The partitions meant; of several topics in turn. Raises `UnknownTopic`,
        `UnknownPartition`."""
        columns: list[list[tuple[PartitionId, Topic]]] = []
        for name in topics:
            topic = await self._finder.find(name, max(partitions or (), default=-1) + 1)
            count = len(topic.partitions)
            for number in partitions or ():
                if not 0 <= number < count:
                    raise UnknownPartition(name, number)
            numbers = range(count) if partitions is None else sorted(set(partitions))
            columns.append([(PartitionId(topic.id, number), topic) for number in numbers])
        rows = chain.from_iterable(zip_longest(*columns))
        return list({found[0]: found for found in rows if found is not None}.values())

    async def _places(self, places: Sequence[tuple[str, int]]) -> list[tuple[PartitionId, Topic]]:
        """These very partitions. Raises `UnknownTopic`, `UnknownPartition`."""
        found: dict[PartitionId, Topic] = {}
        for name, number in places:
            topic = await self._finder.find(name, number + 1)
            if not 0 <= number < len(topic.partitions):
                raise UnknownPartition(name, number)
            found[PartitionId(topic.id, number)] = topic
        return list(found.items())


def _visibility_ms(of_group: int, wanted: int | None, stream: StreamLeases | None) -> int:
    """0 of a stream: no deadline. One that asks for none at all has the least there is."""
    if stream is None:
        return of_group if wanted is None else wanted
    return 0 if wanted is None else max(1, wanted)


def _partition_of(receipt: str) -> PartitionId | None:
    """None for what is no receipt: whoever settles it is told so."""
    try:
        return decode_receipt(receipt).partition
    except BadReceipt:
        return None


def _named_places(ids: object, names: Mapping[PartitionId, str]) -> list[str]:
    """Partitions as topic:partition."""
    known = {str(id): f"{topic}:{id.partition}" for id, topic in names.items()}
    return [known[id] for id in ids if id in known] if isinstance(ids, list) else []


def _count(result: object) -> int:
    return result.count if isinstance(result, CountResult) else 0
