"""`Subscribe`: a member of a group for as long as the stream lasts, given what the group has.

The node sends the member's heartbeats, and receives for it; each message has a receipt, which
`AckService` settles at any node. Leases last as the group's settings say, and no longer than the
stream: when that ends, what was not settled is ready again at once, and its member leaves. gRPC
does not tell a client that has done from one that is lost, so it is a failed attempt, of "consumer
lost": a message that kills its consumer is dead in the end. Where the node stops, or is
drained, it is none, and none for what had not been sent.

Of partitions that are taken away nothing more is given; the group waits until what is in flight
there is settled, or for its rebalance timeout.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

from goqueue.background import TaskSet
from goqueue.wire.errors import (
    BadRequest,
    GoQueueError,
    GroupHalted,
    OverBudget,
    StaleGeneration,
)
from goqueue.wire.ids import validate_topic_name
from node.api.members import Assignment, JoinRequest, Place
from node.api.queue import QueuedMessage, SettleRequest
from node.api.spans import MESSAGES_MAX
from node.http.budget.memory import Held, Kind
from node.http.request.troubles import FIRST_S, Troubles
from node.listeners.grpc.call import Rpc
from node.listeners.grpc.consume import Page, heartbeat, page_of
from node.listeners.grpc.failures import error_of
from node.listeners.grpc.limits import GrpcLimits
from node.listeners.grpc.messages import in_answers, queued
from node.listeners.grpc.names import group_of
from node.listeners.grpc.protocol import goqueue_pb2 as pb
from node.listeners.grpc.times import duration_ms
from node.listeners.waiting import TAKING_TIMES, room_for

CLIENT_ID = "grpc"
"""Of a member that does not say what it is called."""
BEATS_A_SESSION = 3
TOLD_S = 1.0
"""How long messages wait for their client to be told of their partition."""
LOST = "consumer lost"


async def subscribe(rpc: Rpc) -> None:
    """Until the client cancels, or the member is none any more. Raises BadName, BadRequest,
    UnknownTopic, UnknownMember, what joining raises, and Unavailable where the node stops."""
    given: pb.SubscribeRequest = await rpc.request()
    group = group_of(given.group_id)
    rpc.seen.target = group
    page = page_of(given.max_messages, given.max_bytes, rpc.limits)
    silence = _silence_s(given, rpc.limits)
    request = _join_of(rpc, given)
    joined = await rpc.broker.members.join(group, request, wait_s=0.0)
    subscription = _Subscription(rpc, group, joined, page, silence)
    rpc.moves_on_drain = True
    try:
        await subscription.run()
    finally:
        rpc.desk.behind.begin(_leave(rpc, group, joined.member, subscription.over()))


class _Subscription:
    """One member's. Loop thread only."""

    def __init__(
        self, rpc: Rpc, group: str, joined: Assignment, page: Page, silence_s: float
    ) -> None:
        self._rpc = rpc
        self._group = group
        self._joined = joined
        self._told = joined
        """What the client knows of its partitions."""
        self._learned = asyncio.Event()
        self._page = page
        self._silence_s = silence_s
        self._turn = asyncio.Lock()
        self._said_s = asyncio.get_running_loop().time()
        self._tasks = TaskSet(None)
        self._troubles = Troubles()
        self._unsent: list[str] = []
        """Receipts of what was leased, and never told."""
        self._given = dict[str, None]()
        """Receipts of what was told, and may not be settled."""
        self._kept: Held = rpc.hold(Kind.POLLS)

    async def run(self) -> None:
        await self._say(_assignment(self._joined))
        works = (self._be_member(), self._deliver(), self._beat(), self._judge())
        tasks = [self._tasks.begin(work) for work in works]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            await self._tasks.stop()

    def over(self) -> list[SettleRequest]:
        """How what it has in flight ends."""
        self._kept.release()
        for receipt in self._given:
            self._rpc.desk.given.pop(receipt, None)
        if self._rpc.is_stopping or self._rpc.is_moved:
            lost = [SettleRequest(receipt, "release") for receipt in self._given]
        else:
            lost = [SettleRequest(receipt, "nack", LOST, delay_ms=0) for receipt in self._given]
        return [*(SettleRequest(receipt, "release") for receipt in self._unsent), *lost]

    # private: the member

    async def _be_member(self) -> None:
        """Alive, and told of its partitions. Ends only by raising."""
        while True:
            told = self._told
            try:
                following = await self._rpc.broker.members.heartbeat(
                    self._group,
                    told.member,
                    revision=told.revision,
                    wait_s=told.session_timeout_ms / 1000 / BEATS_A_SESSION,
                )
            except GoQueueError as error:
                if not error.retriable:
                    raise
                await asyncio.sleep(FIRST_S)
                continue
            if following.generation < told.generation or following.revision == told.revision:
                continue  # of a node that is behind, or nothing new
            await self._say(*_changes(told, following), _assignment(following))
            self._told = following
            self._learned.set()

    async def _judge(self) -> None:
        """The key may be revoked meanwhile. Ends only by raising."""
        while True:
            await asyncio.sleep(self._rpc.desk.parts.limits.tail_keepalive_s)
            await self._rpc.admit_again("streamGroup")

    async def _beat(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            left_s = self._said_s + self._silence_s - loop.time()
            if left_s <= 0:
                await self._say(heartbeat())
            else:
                await asyncio.sleep(left_s)

    # private: messages

    async def _deliver(self) -> None:
        """Ends only by raising."""
        while True:
            try:
                with room_for(self._rpc.desk.requests, self._rpc.caller, self._page.bytes) as room:
                    found = await self._rpc.broker.polls.poll(
                        self._group,
                        self._joined.member,
                        generation=None,
                        limit=self._page.messages,
                        wait_s=self._rpc.limits.wait_s,
                    )
                    if found:
                        there = TAKING_TIMES * sum(len(message.value) for message in found)
                        room.resize(min(there, room.size))
                        await self._give(found)
                self._troubles.passed()
            except GoQueueError as error:
                if not _is_passing(error):
                    raise
                await self._give_back()
                await self._tell_trouble(error)
                await asyncio.sleep(self._troubles.next_pause_s())

    async def _give(self, found: Sequence[QueuedMessage]) -> None:
        left = [message.receipt for message in found]
        limits = self._rpc.limits
        try:
            await self._until_told(found)
            count = min(len(self._given) + len(found), limits.given_max)
            self._kept.resize(count * limits.given_bytes)
            for run in in_answers(list(map(queued, found)), self._rpc.limits.batch_bytes_max):
                await self._say(pb.ConsumeResponse(messages=pb.MessageBatch(messages=run)))
                self._remember(left[: len(run)])
                del left[: len(run)]
        finally:
            self._unsent += left
        places = tuple((one.topic, one.partition, int(one.offset)) for one in found[:MESSAGES_MAX])
        self._rpc.seen.tell_span(
            "receive", found[0].topic, len(found), group=self._group, places=places
        )

    async def _until_told(self, found: Sequence[QueuedMessage]) -> None:
        """A client hears of a partition before it is given its messages: the heartbeat that tells
        may come after the poll. Where none comes they are given all the same: their leases run."""
        places = {(message.topic, message.partition) for message in found}
        with suppress(TimeoutError):
            async with asyncio.timeout(TOLD_S):
                while not places.issubset(self._told.assigned):
                    self._learned.clear()
                    await self._learned.wait()

    def _remember(self, receipts: Sequence[str]) -> None:
        """The oldest are forgotten for them: their leases end by themselves."""
        for receipt in receipts:
            self._given[receipt] = None
            self._rpc.desk.given[receipt] = self._given
        while len(self._given) > self._rpc.limits.given_max:
            oldest = next(iter(self._given))
            del self._given[oldest]
            self._rpc.desk.given.pop(oldest, None)

    async def _give_back(self) -> None:
        unsent, self._unsent = self._unsent, []
        requests = [SettleRequest(receipt, "release") for receipt in unsent]
        if requests:
            with suppress(GoQueueError):  # their leases end by themselves
                await self._rpc.broker.receipts.settle(requests, self._group)

    async def _tell_trouble(self, error: GoQueueError) -> None:
        """Once, until it passes."""
        if not isinstance(error, StaleGeneration) and self._troubles.is_new(error.code):
            await self._say(pb.ConsumeResponse(error=error_of(error)))

    async def _say(self, *told: pb.ConsumeResponse) -> None:
        """One at a time, and nothing between these. Raises ConnectionError."""
        async with self._turn:
            for one in told:
                await self._rpc.write(one)
            self._said_s = asyncio.get_running_loop().time()


def _is_passing(error: GoQueueError) -> bool:
    return error.retriable or isinstance(error, GroupHalted | OverBudget | StaleGeneration)


def _silence_s(given: pb.SubscribeRequest, limits: GrpcLimits) -> float:
    """By `heartbeat_interval`, or else `max_wait`. Raises BadRequest."""
    for name in ("heartbeat_interval", "max_wait"):
        if given.HasField(name):
            found_s = duration_ms(getattr(given, name), name) / 1000
            return min(max(found_s, limits.heartbeat_s_min), limits.heartbeat_s_max)
    return limits.heartbeat_s


def _join_of(rpc: Rpc, given: pb.SubscribeRequest) -> JoinRequest:
    """Raises BadName, BadRequest."""
    topics = list(dict.fromkeys(map(validate_topic_name, given.topics)))
    if not topics:
        raise BadRequest("topics is required: at least one topic")
    if len(topics) > rpc.limits.topics_max:
        raise BadRequest(f"{len(topics)} topics: at most {rpc.limits.topics_max}")
    starts = {
        pb.CONSUME_START_POSITION_EARLIEST: "earliest",
        pb.CONSUME_START_POSITION_LATEST: "latest",
    }
    if given.start_position not in starts:
        raise BadRequest(
            "start_position: a group begins at EARLIEST or LATEST; OffsetService sets it elsewhere"
        )
    session_ms = 0
    if given.HasField("session_timeout"):
        session_ms = duration_ms(given.session_timeout, "session_timeout")
    return JoinRequest(
        given.consumer_id or CLIENT_ID,
        topics,
        host=rpc.caller.address,
        session_timeout_ms=session_ms,
        settings={"start": starts[given.start_position]},
    )


def _assignment(told: Assignment) -> pb.ConsumeResponse:
    gone = set(told.revoking)
    mine = [place for place in told.assigned if place not in gone]
    return pb.ConsumeResponse(
        assignment=pb.Assignment(
            generation=told.generation, partitions=_places(mine), member_id=told.member
        )
    )


def _changes(former: Assignment, told: Assignment) -> Iterator[pb.ConsumeResponse]:
    had, has = ({*one.assigned} - {*one.revoking} for one in (former, told))
    pairs = ((pb.REBALANCE_TYPE_REVOKE, had - has), (pb.REBALANCE_TYPE_ASSIGN, has - had))
    for kind, places in pairs:
        if places:
            yield pb.ConsumeResponse(
                rebalance=pb.RebalanceNotification(
                    type=kind, partitions=_places(sorted(places)), generation=told.generation
                )
            )


def _places(places: Iterable[Place]) -> list[pb.TopicPartition]:
    return [pb.TopicPartition(topic=topic, partition=number) for topic, number in places]


async def _leave(rpc: Rpc, group: str, member: str, requests: Sequence[SettleRequest]) -> None:
    """What is not done here is done when the leases, and the member's session, end."""
    with suppress(GoQueueError):
        if requests:
            await rpc.broker.receipts.settle(requests, group)
    with suppress(GoQueueError):
        await rpc.broker.members.leave(group, member)
