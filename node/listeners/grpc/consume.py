"""`Consume`: a topic's log as it is stored, from anywhere on, and then as it grows.

No group is asked, and nothing is leased: each partition is read by itself, and its messages come in
order. What is not due yet, or has expired, is there as well: `deliver_at` tells.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from goqueue.background import TaskSet
from goqueue.wire.errors import BadRequest, Unavailable, UnknownPartition, UnknownTopic
from goqueue.wire.ids import OFFSET_MAX, validate_topic_name
from goqueue.wire.types import Offset
from node.api.records import Slice
from node.http.budget.memory import Kind
from node.http.budget.slices import SLICE_BYTES, in_thread
from node.listeners.grpc.call import Rpc
from node.listeners.grpc.limits import KIB, GrpcLimits
from node.listeners.grpc.messages import (
    Parsed,
    in_answers,
    parsed,
    plain_bytes,
    read_messages,
)
from node.listeners.grpc.names import InvalidPartition
from node.listeners.grpc.protocol import goqueue_pb2 as pb
from node.listeners.grpc.rows import now_ms
from node.listeners.grpc.times import duration_ms, put_time, time_ms

PAGE_TIMES = 2
"""What a page holds while it is made, in its own size: stored and plain, as rows and as told."""
WAITING_BYTES_MAX = 64 * KIB
"""Of what a read gets that had to wait: nothing is held for it meanwhile, so it is little."""


async def consume(rpc: Rpc) -> None:
    """Until the client cancels, or the topic is gone. Raises BadName, BadRequest, UnknownTopic,
    UnknownPartition, OffsetOutOfRange, OverBudget, and Unavailable where the node stops."""
    given: pb.ConsumeRequest = await rpc.request()
    topic = rpc.seen.target = validate_topic_name(given.topic)
    count = await _partition_count(rpc, topic)
    named = sorted(set(given.partitions))
    for partition in named:
        if partition < 0:
            raise InvalidPartition(f"partition {partition}: partitions are numbered from 0")
        if partition >= count:
            raise UnknownPartition(topic, partition)
    following = _Following(rpc, topic, _page_of(given, rpc.limits), silence_s(given, rpc.limits))
    starts = await _starts(rpc, given, topic, named or range(count))
    await following.run(starts, grows=not named)


@dataclass(frozen=True, slots=True)
class Page:
    """At most so much in one answer."""

    messages: int
    bytes: int


class _Following:
    """One call's partitions. Loop thread only."""

    def __init__(self, rpc: Rpc, topic: str, page: Page, silence_s: float) -> None:
        self._rpc = rpc
        self._topic = topic
        self._page = page
        self._silence_s = silence_s
        self._turn = asyncio.Lock()
        self._said_s = asyncio.get_running_loop().time()
        self._tasks = TaskSet(None)

    async def run(self, starts: dict[int, Offset], *, grows: bool) -> None:
        """With `grows`, partitions that the topic gets are read from their beginning."""
        tasks = [self._begin(partition, offset) for partition, offset in starts.items()]
        tasks.append(self._tasks.begin(self._beat()))
        try:
            while True:
                done, _ = await asyncio.wait(
                    tasks,
                    timeout=self._rpc.desk.parts.limits.tail_keepalive_s,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                for task in done:
                    task.result()
                await self._rpc.admit_again("tailTopic")
                if grows:
                    count = await _partition_count(self._rpc, self._topic)
                    new = range(len(tasks) - 1, count)
                    tasks += [self._begin(partition, Offset(0)) for partition in new]
        finally:
            await self._tasks.stop()

    # private

    def _begin(self, partition: int, offset: Offset) -> asyncio.Task[None]:
        return self._tasks.begin(self._follow(partition, offset))

    async def _follow(self, partition: int, offset: Offset) -> None:
        while True:
            offset = await self._step(partition, offset)

    async def _step(self, partition: int, offset: Offset) -> Offset:
        """What is there, or what comes within a while; where reading goes on."""
        page, wait_s = self._page, self._rpc.limits.wait_s
        with await self._rpc.room(Kind.ANSWERS, PAGE_TIMES * page.bytes) as held:
            found = await self._read(partition, offset, page.bytes, 0.0)
            if found.batches:
                batches = parsed(found)
                held.resize(PAGE_TIMES * plain_bytes(batches))
                return await self._give(partition, offset, found, batches)
        bytes_max = min(page.bytes, WAITING_BYTES_MAX)
        found = await self._read(partition, offset, bytes_max, wait_s)
        batches = parsed(found)
        with await self._rpc.room(Kind.ANSWERS, PAGE_TIMES * plain_bytes(batches)):
            return await self._give(partition, offset, found, batches)

    async def _read(self, partition: int, offset: Offset, bytes_max: int, wait_s: float) -> Slice:
        return await self._rpc.broker.records.read(
            self._topic,
            partition,
            offset,
            max_records=self._page.messages,
            max_bytes=bytes_max,
            wait_s=wait_s,
        )

    async def _give(self, partition: int, offset: Offset, found: Slice, batches: Parsed) -> Offset:
        make = partial(
            read_messages, self._topic, partition, found, batches, offset, self._page.messages
        )
        is_long = plain_bytes(batches) > SLICE_BYTES
        messages, following = await in_thread(make) if is_long else make()
        for run in in_answers(messages, self._page.bytes):
            batch = pb.MessageBatch(messages=run, high_watermark=found.end_offset)
            await self._say(pb.ConsumeResponse(messages=batch))
        return Offset(following)

    async def _say(self, told: pb.ConsumeResponse) -> None:
        """One at a time; Raises ConnectionError."""
        async with self._turn:
            await self._rpc.write(told)
            self._said_s = asyncio.get_running_loop().time()

    async def _beat(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            left_s = self._said_s + self._silence_s - loop.time()
            if left_s <= 0:
                await self._say(heartbeat())
            else:
                await asyncio.sleep(left_s)


def heartbeat() -> pb.ConsumeResponse:
    told = pb.ConsumeResponse()
    put_time(told.heartbeat.timestamp, now_ms())
    return told


def silence_s(given: pb.ConsumeRequest, limits: GrpcLimits) -> float:
    """How long nothing may be said. Raises BadRequest."""
    if not given.HasField("max_wait"):
        return limits.heartbeat_s
    found_s = duration_ms(given.max_wait, "max_wait") / 1000
    return min(max(found_s, limits.heartbeat_s_min), limits.heartbeat_s_max)


def page_of(max_messages: int, max_bytes: int, limits: GrpcLimits) -> Page:
    """0 is the usual size; what is beyond the bounds is cut to them. Raises BadRequest."""
    if max_messages < 0 or max_bytes < 0:
        raise BadRequest("max_messages and max_bytes are from 0 on: 0 is the usual size")
    return Page(
        min(max_messages or limits.batch_messages_default, limits.batch_messages_max),
        min(max_bytes or limits.batch_bytes_default, limits.batch_bytes_max),
    )


def _page_of(given: pb.ConsumeRequest, limits: GrpcLimits) -> Page:
    return page_of(given.max_messages, given.max_bytes, limits)


async def _partition_count(rpc: Rpc, topic: str) -> int:
    """Of one that another node has just created, too; creates none. Raises UnknownTopic."""
    try:
        return rpc.broker.topics.partition_count(topic)
    except UnknownTopic:
        return len((await rpc.broker.topics.topic(topic)).partitions)


async def _starts(
    rpc: Rpc, given: pb.ConsumeRequest, topic: str, partitions: Sequence[int]
) -> dict[int, Offset]:
    """Where reading begins in each partition. Raises BadRequest, Unavailable where no leader says
    where the end is."""
    records, position = rpc.broker.records, given.start_position
    if position == pb.CONSUME_START_POSITION_EARLIEST:
        return dict.fromkeys(partitions, Offset(0))
    if position == pb.CONSUME_START_POSITION_OFFSET:
        if not 0 <= given.start_offset <= OFFSET_MAX:
            raise BadRequest(f"start_offset: {given.start_offset} is not an offset")
        return dict.fromkeys(partitions, Offset(given.start_offset))
    if position == pb.CONSUME_START_POSITION_TIMESTAMP:
        if not given.HasField("start_timestamp"):
            raise BadRequest("start_timestamp is required with CONSUME_START_POSITION_TIMESTAMP")
        at_ms = time_ms(given.start_timestamp, "start_timestamp")
        found = await asyncio.gather(
            *(records.offset_at(topic, number, at_ms) for number in partitions)
        )
        return dict(zip(partitions, found, strict=True))
    if position != pb.CONSUME_START_POSITION_LATEST:
        raise BadRequest(f"start_position: {position} is none of those that there are")
    ends = await records.end_offsets(topic)
    for number in partitions:
        if number not in ends:
            raise Unavailable(f"the end of {topic}:{number} is not known now")
    return {number: ends[number][1] for number in partitions}
