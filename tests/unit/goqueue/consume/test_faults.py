"""The consumer goes on, whatever the servers answer, in whatever order and however late."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import AsyncIterator
from typing import Any

import pytest

from goqueue import AsyncClient, AsyncConsumer, OutgoingMessage, Received, RetryPolicy
from goqueue.errors import (
    BadRequest,
    Busy,
    Conflict,
    Forbidden,
    GoQueueError,
    NoQuorum,
    OutcomeUnknown,
    ReceiptExpired,
    ServerError,
    StaleGeneration,
    UnknownMember,
    UnknownTopic,
)
from goqueue.models.groups import TopicPartition
from node.api.members import Assignment
from node.api.queue import SettleView
from node.assembly import NodeAssembly
from node.broker.node import NodeBroker
from tests.one_node import eventually, one_node, until

QUICK = RetryPolicy(attempts_max=2, backoff_s=0.001, backoff_max_s=0.005)
PLACES = [TopicPartition("orders", number) for number in range(4)]


class Faulty:
    """In the place of a broker's methods: fails and hangs as it is told, call by call."""

    def __init__(self, broker: NodeBroker) -> None:
        self.faults: dict[str, deque[GoQueueError]] = {}
        self._going: dict[str, asyncio.Event] = {}
        self.asked: Counter[str] = Counter()
        self.answers: deque[Assignment] = deque()
        """What heartbeats are answered, in place of what is so."""
        self.stuck: int | None = None
        """A partition whose messages cannot be settled."""
        self.since_fault: list[list[tuple[str, int]] | None] = []
        """The places of each receive that began after the last fault, None for a heartbeat that was
        answered."""
        self._join = broker.members.join
        self.heartbeat = broker.members.heartbeat
        self._receive = broker.queue.receive
        self._settle = broker.receipts.settle
        broker.members.join = self._joins  # type: ignore[method-assign]
        broker.members.heartbeat = self._beats  # type: ignore[method-assign]
        broker.queue.receive = self._receives  # type: ignore[method-assign]
        broker.receipts.settle = self._settles  # type: ignore[method-assign]

    def fail(self, call: str, *errors: GoQueueError) -> None:
        self.faults[call] = deque(errors)

    def hang(self, call: str) -> None:
        self._going[call] = asyncio.Event()

    def go_on(self, call: str) -> None:
        self._going.pop(call).set()

    async def _go(self, call: str) -> None:
        self.asked[call] += 1
        if call in self._going:
            await self._going[call].wait()
        if self.faults.get(call):
            self.since_fault.clear()
            raise self.faults[call].popleft()

    async def _joins(self, *args: Any, **options: Any) -> Assignment:
        await self._go("join")
        return await self._join(*args, **options)

    async def _beats(self, *args: Any, **options: Any) -> Assignment:
        await self._go("heartbeat")
        if self.answers:
            return self.answers.popleft()
        told = await self.heartbeat(*args, **options)
        self.since_fault.append(None)
        return told

    async def _receives(self, *args: Any, **options: Any) -> Any:
        await self._go("receive")
        self.since_fault.append(list(options["places"] or ()))
        return await self._receive(*args, **options)

    async def _settles(self, *args: Any, **options: Any) -> list[SettleView | GoQueueError]:
        await self._go("settle")
        return [
            NoQuorum() if isinstance(one, SettleView) and one.partition == self.stuck else one
            for one in await self._settle(*args, **options)
        ]


@pytest.fixture
async def node(way: str) -> AsyncIterator[NodeAssembly]:
    async with one_node() as node:
        if way == "stream":
            await node.broker.upgrade.finish_level()
        yield node


@pytest.fixture
async def broker(node: NodeAssembly) -> Faulty:
    return Faulty(node.broker)


@pytest.fixture
async def client(node: NodeAssembly) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(
        f"http://127.0.0.1:{node.front.port}", retry=QUICK, timeout_s=20.0, attempt_timeout_s=5.0
    ) as client:
        await client.create_topic("orders", partitions=4)
        yield client


@pytest.fixture
async def consumer(client: AsyncClient) -> AsyncIterator[AsyncConsumer]:
    async with AsyncConsumer(client, "billing", "orders", session_timeout="3s") as consumer:
        await eventually(lambda: consumer.assignment == PLACES)
        yield consumer


async def publish(client: AsyncClient, count: int) -> None:
    await client.publish_many(
        "orders", [OutgoingMessage(str(number), partition=number % 4) for number in range(count)]
    )


async def work(consumer: AsyncConsumer, count: int) -> list[Received]:
    found: list[Received] = []
    while len(found) < count:
        message = await consumer.next(30.0)
        assert message is not None
        await message.ack()
        found.append(message)
    return found


TRANSIENT = [
    NoQuorum(),
    Busy(),
    ServerError("a fault"),
    OutcomeUnknown(),
    Conflict("not now"),
    BadRequest("a node of another version"),
]


@pytest.mark.parametrize("call", ["heartbeat", "receive", "settle"])
async def test_what_fails_for_now_is_asked_again(
    client: AsyncClient, broker: Faulty, consumer: AsyncConsumer, call: str
) -> None:
    member = consumer.member_id
    await publish(client, 4)
    await work(consumer, 4)
    broker.fail(call, *(TRANSIENT if call != "settle" else [NoQuorum()]))
    await publish(client, 8)

    found = await work(consumer, 8)

    assert {message.attempt for message in found} == {1}
    await eventually(lambda: not broker.faults[call])
    assert (consumer.member_id, consumer.assignment) == (member, PLACES)


async def test_an_ack_that_failed_for_now_may_be_repeated_and_its_lease_is_kept_meanwhile(
    client: AsyncClient, broker: Faulty
) -> None:
    async with AsyncConsumer(client, "billing", "orders", visibility=2.5) as consumer:
        await publish(client, 1)
        message = await consumer.next(30.0)
        assert message is not None
        broker.fail("settle", NoQuorum(), NoQuorum())
        with pytest.raises(NoQuorum):
            await message.ack()
        before = broker.asked["settle"]
        await eventually(lambda: broker.asked["settle"] >= before + 1)

        assert (await message.ack()).state == "acked"


async def test_a_topic_that_a_node_does_not_know_yet_is_asked_for_again(
    client: AsyncClient, broker: Faulty, consumer: AsyncConsumer
) -> None:
    broker.fail("receive", UnknownTopic("orders"), UnknownTopic("orders"))
    await publish(client, 1)

    await work(consumer, 1)


async def test_a_join_is_repeated_until_it_succeeds_once_it_has_been_a_member(
    client: AsyncClient, broker: Faulty, consumer: AsyncConsumer
) -> None:
    former = consumer.member_id
    broker.fail("join", NoQuorum(), NoQuorum(), NoQuorum(), Busy(), ServerError("a fault"))
    await client.leave_group("billing", former)

    await eventually(lambda: consumer.member_id != former and consumer.assignment == PLACES)


async def test_what_is_not_allowed_any_more_ends_it_and_says_why(
    client: AsyncClient, broker: Faulty, consumer: AsyncConsumer
) -> None:
    broker.fail("heartbeat", Forbidden())

    with pytest.raises(Forbidden):
        await consumer.next(30.0)


async def test_a_receive_that_can_never_be_meant_ends_it_and_says_why(client: AsyncClient) -> None:
    async with AsyncConsumer(client, "billing", "orders", visibility="13h") as consumer:
        with pytest.raises(BadRequest, match="12 hours"):
            await consumer.next(30.0)


async def test_a_handler_may_take_longer_than_the_session(
    client: AsyncClient, broker: Faulty, consumer: AsyncConsumer
) -> None:
    await publish(client, 1)
    member = consumer.member_id

    async def handle(message: Received) -> None:
        await asyncio.sleep(4.0)
        consumer.stop()

    await consumer.run(handle)

    assert consumer.member_id == member
    assert broker.asked["heartbeat"] >= 2
    await until(lambda: client.lag("billing"), lambda lag: lag.total_lag == 0)


async def test_receives_that_hang_do_not_hold_up_heartbeats(
    client: AsyncClient, broker: Faulty, consumer: AsyncConsumer
) -> None:
    member = consumer.member_id
    broker.hang("receive")
    await publish(client, 4)
    before = broker.asked["heartbeat"]
    await eventually(lambda: broker.asked["heartbeat"] >= before + 5)
    broker.go_on("receive")

    await work(consumer, 4)

    assert consumer.member_id == member


async def test_a_partition_that_is_refused_rests_until_it_is_known_whose_it_is(
    client: AsyncClient, broker: Faulty, consumer: AsyncConsumer, way: str
) -> None:
    broker.fail("receive", StaleGeneration(generation=1, partitions=["orders:2"]))
    await publish(client, 8)
    found = await work(consumer, 8)
    await eventually(lambda: not broker.faults["receive"])  # by the receive after the last message

    await publish(client, 8)
    found += await work(consumer, 8)

    assert {message.attempt for message in found} == {1}
    if way == "polls":  # a stream's node knows it
        first_told = broker.since_fault.index(None)
        before = [place for places in broker.since_fault[:first_told] for place in places or ()]
        assert ("orders", 2) not in before


async def test_an_answer_of_a_node_that_is_behind_takes_nothing_away(
    client: AsyncClient, broker: Faulty, consumer: AsyncConsumer
) -> None:
    lost: list[TopicPartition] = []
    told = await broker.heartbeat("billing", consumer.member_id)
    old = Assignment(
        "billing", told.member, told.generation - 1, [], [], 0, "older", "", [], "exclusive",
        "stable", told.session_timeout_ms, told.heartbeat_ms,
    )  # fmt: skip
    broker.answers.extend([old, old, old])
    await eventually(lambda: not broker.answers)
    await publish(client, 4)

    await work(consumer, 4)

    assert (lost, consumer.assignment) == ([], PLACES)


async def test_a_partition_that_cannot_settle_does_not_hold_up_the_others(
    client: AsyncClient, broker: Faulty
) -> None:
    await publish(client, 4)
    acked: list[int] = []
    broker.stuck = 2

    async def handle(message: Received) -> None:
        await message.ack()
        acked.append(message.partition)

    consumer = AsyncConsumer(client, "billing", "orders")
    running = asyncio.create_task(consumer.run(handle, concurrency=4))
    await eventually(lambda: sorted(acked) == [0, 1, 3])
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await consumer.close()


async def test_what_waits_behind_a_slow_handler_keeps_its_lease(
    client: AsyncClient, broker: Faulty
) -> None:
    await publish(client, 8)
    attempts: list[int] = []

    async def handle(message: Received) -> None:
        if not attempts:
            await asyncio.sleep(5.2)
        attempts.append(message.attempt)
        if len(attempts) == 8:
            consumer.stop()

    async with AsyncConsumer(client, "billing", "orders", visibility=4) as consumer:
        await consumer.run(handle)

    assert attempts == [1] * 8


async def test_members_that_share_do_not_hoard_what_they_do_not_begin(
    client: AsyncClient, broker: Faulty
) -> None:
    await client.put_group("billing", mode="shared")
    await publish(client, 8)
    slow = AsyncConsumer(client, "billing", "orders", visibility=2)
    async with slow:
        first = await slow.next(30.0)
        assert first is not None
        async with AsyncConsumer(client, "billing", "orders", prefetch=8) as quick:
            found = await work(quick, 3)

    assert {message.attempt for message in found} == {1}


async def test_a_member_that_shares_gives_back_what_it_had_when_it_is_given_up(
    client: AsyncClient, broker: Faulty, way: str
) -> None:
    await client.put_group("billing", mode="shared")
    await publish(client, 8)
    async with AsyncConsumer(client, "billing", "orders") as consumer:
        first = await consumer.next(30.0)
        assert first is not None
        former = consumer.member_id
        broker.hang("join")
        await client.leave_group("billing", former)

        found: list[Received] = []
        ends_s = time.monotonic() + 30.0
        while len(found) < 7:
            assert time.monotonic() < ends_s
            found += await client.receive("billing", "orders", wait=0.1)

        assert {message.attempt for message in found} == {1}
        if way == "polls":
            assert (await first.ack()).state == "acked"
        else:  # a stream ends with its member
            with pytest.raises(ReceiptExpired):
                await first.ack()
        broker.go_on("join")


async def test_a_member_that_slept_past_its_session_finds_its_acks_refused_and_joins_again(
    client: AsyncClient, broker: Faulty, consumer: AsyncConsumer
) -> None:
    await publish(client, 1)
    message = await consumer.next(30.0)
    assert message is not None
    former = consumer.member_id
    async with AsyncConsumer(client, "billing", "orders") as other:
        await client.leave_group("billing", former)
        await eventually(lambda: consumer.member_id != former)
        await eventually(lambda: len(consumer.assignment) == len(other.assignment) == 2)

        with pytest.raises(GoQueueError) as refused:
            await message.ack()

        assert refused.value.code in ("stale_generation", "not_in_flight", "receipt_expired")


@pytest.mark.parametrize("way", ["polls"], indirect=True)
async def test_a_heartbeat_that_hangs_is_given_up_in_time(
    client: AsyncClient, broker: Faulty, consumer: AsyncConsumer
) -> None:
    member = consumer.member_id
    broker.hang("heartbeat")
    before = broker.asked["heartbeat"]
    await eventually(lambda: broker.asked["heartbeat"] > before + 1)
    broker.go_on("heartbeat")
    await publish(client, 4)

    await work(consumer, 4)

    assert consumer.member_id == member or consumer.assignment == PLACES


async def test_unknown_members_join_again_and_again_as_long_as_they_are_told_so(
    client: AsyncClient, broker: Faulty, consumer: AsyncConsumer
) -> None:
    broker.fail("heartbeat", *[UnknownMember("billing", "x") for _ in range(3)])
    await eventually(lambda: not broker.faults["heartbeat"])
    await eventually(lambda: consumer.assignment == PLACES)

    assert len((await client.admin.members("billing")).members) == 1


async def test_a_handler_that_fails_on_what_is_no_text_fails_only_its_message(
    client: AsyncClient,
) -> None:
    """An error about a file whose name is not UTF-8 has half a surrogate pair in its text."""
    await publish(client, 1)
    attempts: list[tuple[int, str]] = []
    async with AsyncConsumer(client, "billing", "orders") as consumer:

        def handle(message: Received) -> None:
            attempts.append((message.attempt, message.last_reason))
            if message.attempt == 1:
                raise FileNotFoundError("caf\udce9.txt")
            consumer.stop()

        async with asyncio.timeout(30.0):
            await consumer.run(handle)

    assert attempts[0] == (1, "")
    assert attempts[1][1].startswith("FileNotFoundError: caf\\udce9.txt at test_faults.py:")


async def test_a_reason_that_is_no_text_is_told_escaped(
    client: AsyncClient, consumer: AsyncConsumer
) -> None:
    await publish(client, 1)
    message = await consumer.next(30.0)
    assert message is not None

    async with asyncio.timeout(30.0):
        assert (await message.nack("caf\udce9.txt")).state == "requeued"


async def test_a_consumer_that_closes_as_it_starts_leaves_no_member_behind(
    client: AsyncClient, broker: Faulty
) -> None:
    """A heartbeat that began after it had left was told of no such member, and joined again."""
    await publish(client, 4)
    for _ in range(5):
        consumer = AsyncConsumer(client, "billing", "orders")
        await consumer.start()
        beats = broker.asked["heartbeat"]
        await consumer.close()

        assert broker.asked["heartbeat"] == beats, "nobody is a member any more"
        assert (await client.admin.members("billing")).members == []
