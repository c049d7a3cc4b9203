"""The consumer against a real node, in real time: it shares, hands over,
keeps leases up and goes on, whatever its handlers and the servers do."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import suppress

import pytest

from goqueue import (
    AsyncClient,
    AsyncConsumer,
    OutgoingMessage,
    Received,
    Reject,
    Retry,
    RetryPolicy,
)
from goqueue.errors import (
    Closed,
    GroupActive,
    GroupHalted,
    StaleGeneration,
    UnknownMember,
    UnknownTopic,
)
from goqueue.models.groups import TopicPartition
from node.broker.node import NodeBroker
from tests.one_node import one_node
from tests.unit.goqueue.consume.conftest import Ways, fronting

QUICK = RetryPolicy(attempts_max=4, backoff_s=0.001, backoff_max_s=0.005)


@pytest.fixture
async def broker(ways: Ways) -> AsyncIterator[NodeBroker]:
    async with one_node(**{"broker.autoCreateTopics": True}) as node:
        await ways.begin(node.broker)
        yield node.broker


@pytest.fixture
async def url(broker: NodeBroker, ways: Ways) -> AsyncIterator[str]:
    async with fronting(broker, ways) as url:
        yield url


@pytest.fixture
async def client(url: str) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(url, retry=QUICK, attempt_timeout_s=20.0) as client:
        await client.create_topic("orders", partitions=4)
        yield client


async def eventually(condition: Callable[[], bool], deadline_s: float = 30.0) -> None:
    ends_s = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < ends_s, "it never came to hold"
        await asyncio.sleep(0.002)


async def left_over(client: AsyncClient) -> list[Received]:
    """What the group has ready, once its partitions know that their members have left."""
    while True:
        with suppress(StaleGeneration):
            return await client.receive("billing", "orders", limit=100)
        await asyncio.sleep(0.002)


async def publish(client: AsyncClient, count: int, **options: object) -> None:
    messages = [
        OutgoingMessage(str(number), partition=number % 4, **options)  # type: ignore[arg-type]
        for number in range(count)
    ]
    await client.publish_many("orders", messages)


def places(*numbers: int) -> list[TopicPartition]:
    return [TopicPartition("orders", number) for number in numbers]


async def lag(client: AsyncClient, group: str = "billing") -> int:
    return (await client.lag(group)).total_lag


# one consumer


async def test_it_iterates_over_all_that_its_group_has(client: AsyncClient) -> None:
    await publish(client, 50)

    values = set()
    async with AsyncConsumer(client, "billing", "orders", prefetch=10) as consumer:
        async for message in consumer:
            values.add(int(message.text))
            await message.ack()
            if len(values) == 50:
                break

        assert consumer.assignment == places(0, 1, 2, 3)
    assert values == set(range(50))
    assert await lag(client) == 0
    assert (await client.admin.members("billing")).members == []


async def test_it_runs_handlers_at_once_and_acks_what_they_return_from(client: AsyncClient) -> None:
    await publish(client, 40)
    running, most, done = 0, 0, Counter[str]()

    async def handle(message: Received) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01)
        running -= 1
        done[message.text] += 1
        if len(done) == 40:
            consumer.stop()

    async with AsyncConsumer(client, "billing", "orders") as consumer:
        await consumer.run(handle, concurrency=8)

    assert set(done.values()) == {1}
    assert most == 8
    assert await lag(client) == 0


async def test_a_handler_that_raises_gets_its_message_again_with_the_reason(
    client: AsyncClient,
) -> None:
    await publish(client, 1)
    seen: list[tuple[int, str]] = []

    async def handle(message: Received) -> None:
        seen.append((message.attempt, message.last_reason))
        if message.attempt == 1:
            raise ValueError("not today")
        consumer.stop()

    async with AsyncConsumer(client, "billing", "orders") as consumer:
        await consumer.run(handle)

    (first, second) = seen
    assert first == (1, "")
    assert second[1].startswith("ValueError: not today at test_consumer.py:")
    assert second[1].endswith(" handle")
    assert await lag(client) == 0


async def test_retry_and_reject_say_what_becomes_of_a_message(client: AsyncClient) -> None:
    await client.put_group("billing", backoff="1h", max_attempts=9)
    await client.publish("orders", "again", partition=0)
    await client.publish("orders", "never", partition=1)
    await client.publish("orders", "twice", partition=2)
    done: list[tuple[str, int]] = []

    def handle(message: Received) -> None:
        done.append((message.text, message.attempt))
        if message.text == "never":
            raise Reject("no such account")
        if message.attempt == 1 or message.text == "twice":
            raise Retry("the bank is closed", delay="1ms", max_attempts=2)

    async with AsyncConsumer(client, "billing", "orders") as consumer:
        work = asyncio.ensure_future(consumer.run(handle))
        await eventually(lambda: len(done) == 5)
        consumer.stop()
        await work

    assert sorted(done) == [("again", 1), ("again", 2), ("never", 1), ("twice", 1), ("twice", 2)]
    dead = [letter async for letter in client.dead_letters("billing", "orders")]
    assert {(letter.text, letter.reason, letter.attempts) for letter in dead} == {
        ("never", "no such account", 1),
        ("twice", "the bank is closed", 2),
    }
    (retried,) = [event for event in await client.timeline("orders:0:0") if event.type == "NACKED"]
    assert "the bank is closed" in retried.attributes.values()


async def test_a_handler_may_settle_its_message_itself(client: AsyncClient) -> None:
    await publish(client, 1)

    async def handle(message: Received) -> None:
        await message.reject("never")
        consumer.stop()

    async with AsyncConsumer(client, "billing", "orders") as consumer:
        await consumer.run(handle)

    assert [letter.reason async for letter in client.dead_letters("billing", "orders")] == ["never"]


async def test_a_handler_that_takes_longer_than_the_lease_keeps_its_message(
    client: AsyncClient,
) -> None:
    await publish(client, 4)
    attempts = []

    async def handle(message: Received) -> None:
        await asyncio.sleep(2.6)
        attempts.append(message.attempt)
        if len(attempts) == 4:
            consumer.stop()

    async with AsyncConsumer(client, "billing", "orders", visibility=2) as consumer:
        await consumer.run(handle, concurrency=4)

    assert attempts == [1, 1, 1, 1]
    assert await lag(client) == 0


async def test_a_run_that_is_cancelled_gives_back_what_was_handled(client: AsyncClient) -> None:
    await publish(client, 1)
    began = asyncio.Event()

    async def handle(message: Received) -> None:
        began.set()
        await asyncio.sleep(60)

    async with AsyncConsumer(client, "billing", "orders") as consumer:
        running = asyncio.create_task(consumer.run(handle))
        await began.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    (message,) = await left_over(client)
    assert message.attempt == 1


async def test_a_wait_that_ends_or_is_cancelled_loses_nothing(client: AsyncClient) -> None:
    async with AsyncConsumer(client, "billing", "orders") as consumer:
        assert await consumer.next(0.02) is None
        waiting = asyncio.create_task(consumer.next())
        await asyncio.sleep(0)
        waiting.cancel()
        await publish(client, 1)

        message = await consumer.next(30.0)

        assert message is not None
        assert (message.text, message.attempt) == ("0", 1)
        assert (await message.ack()).state == "acked"


async def test_closing_gives_back_what_nobody_began_and_what_nobody_settled(
    client: AsyncClient,
) -> None:
    await publish(client, 20)
    async with AsyncConsumer(client, "billing", "orders") as consumer:
        assert await consumer.next(30.0) is not None

    found = await left_over(client)
    assert len(found) == 20
    assert {message.attempt for message in found} == {1}


async def test_closing_waits_for_handlers_and_may_be_repeated(client: AsyncClient) -> None:
    await publish(client, 1)
    began, ended = asyncio.Event(), []

    async def handle(message: Received) -> None:
        began.set()
        await asyncio.sleep(0.1)
        ended.append(message.text)

    consumer = AsyncConsumer(client, "billing", "orders")
    running = asyncio.create_task(consumer.run(handle))
    await began.wait()
    await asyncio.gather(consumer.close(), consumer.close())
    await running

    assert ended == ["0"]
    assert await lag(client) == 0
    assert await consumer.next() is None
    await consumer.close()


async def test_one_that_never_started_closes_and_then_does_not_start(client: AsyncClient) -> None:
    consumer = AsyncConsumer(client, "billing", "orders")
    await consumer.close()

    with pytest.raises(Closed):
        await consumer.start()


async def test_a_start_that_is_refused_leaves_nothing_open(url: str) -> None:
    consumer = AsyncConsumer(url, "billing", "missing")

    with pytest.raises(UnknownTopic):
        await consumer.start()

    with pytest.raises(Closed):
        await consumer._client.list_topics()


@pytest.mark.parametrize("turns", range(0, 12, 2))
async def test_a_start_that_is_cancelled_or_closed_leaves_no_member(
    client: AsyncClient, turns: int
) -> None:
    for end in ("cancel", "close"):
        consumer = AsyncConsumer(client, "billing", "orders")
        starting = asyncio.create_task(consumer.start())
        for _ in range(turns):
            await asyncio.sleep(0)
        if end == "cancel":
            starting.cancel()
        else:
            await consumer.close()
        await asyncio.gather(starting, return_exceptions=True)
        await consumer.close()

    await client.put_group("billing")
    assert (await client.admin.members("billing")).members == []


async def test_a_part_that_fails_as_it_is_cancelled_keeps_no_consumer_running(
    client: AsyncClient, ways: Ways
) -> None:
    ways.may.add("lost")
    consumer = AsyncConsumer(client, "billing", "orders")

    async def fails() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise Closed("the transport is closed")

    consumer._session.run = fails  # type: ignore[method-assign]
    await consumer.start()
    main = consumer._main
    assert main is not None
    await asyncio.sleep(0)

    main.cancel()
    await asyncio.wait({main})

    assert main.cancelled()
    await consumer.close()


async def test_what_was_iterated_over_is_acked_by_itself_if_wanted(client: AsyncClient) -> None:
    await publish(client, 3)

    async with AsyncConsumer(client, "billing", "orders", auto_ack=True) as consumer:
        for _ in range(3):
            assert await consumer.next(30.0) is not None

    assert await lag(client) == 0


async def test_an_error_gives_the_message_in_work_back_also_with_auto_ack(
    client: AsyncClient,
) -> None:
    await publish(client, 1)

    with pytest.raises(ValueError, match="broken"):
        async with AsyncConsumer(client, "billing", "orders", auto_ack=True) as consumer:
            await consumer.next(30.0)
            raise ValueError("broken")

    assert await lag(client) == 1


async def test_a_paused_partition_is_not_received_from_until_it_is_resumed(
    client: AsyncClient,
) -> None:
    async with AsyncConsumer(client, "billing", "orders") as consumer:
        await eventually(lambda: consumer.assignment == places(0, 1, 2, 3))
        consumer.pause(places(0, 1))
        await publish(client, 8)

        found = [await consumer.next(30.0) for _ in range(4)]
        assert {message.partition for message in found if message is not None} == {2, 3}
        assert await consumer.next(0.1) is None
        assert consumer.paused == places(0, 1)
        consumer.resume()

        found = [await consumer.next(30.0) for _ in range(4)]
        assert {message.partition for message in found if message is not None} == {0, 1}
        assert all(message is not None and message.attempt == 1 for message in found)


async def test_a_full_buffer_never_stands_before_a_higher_lane(client: AsyncClient) -> None:
    await publish(client, 40, priority="background")
    async with AsyncConsumer(client, "billing", "orders", prefetch=8) as consumer:
        first = await consumer.next(30.0)
        assert first is not None
        await client.publish("orders", "now", priority="critical")
        await eventually(lambda: "now" in buffered(consumer))

        second = await consumer.next(30.0)

        assert second is not None
        assert (first.priority, second.text) == ("background", "now")
        assert len(buffered(consumer)) <= 8


def buffered(consumer: AsyncConsumer) -> list[str]:
    return [held.message.text for held in consumer._bench._buffer.all()]


async def test_a_halted_group_ends_it_with_the_reason(
    client: AsyncClient,
) -> None:
    async def fails(message: Received) -> None:
        await message.reject("its messages fail")

    await client.put_group("billing", halt_percent=1, halt_window=1)
    async with AsyncConsumer(client, "billing", "orders") as consumer:
        running = asyncio.create_task(consumer.run(fails))
        await eventually(lambda: len(consumer.assignment) == 4)
        await publish(client, 16)

        with pytest.raises(GroupHalted):
            await running
        with pytest.raises(GroupHalted):
            await consumer.next()


# several


async def test_two_share_the_partitions_and_what_stays_goes_on(client: AsyncClient) -> None:
    lost, revoked, assigned = [], [], []
    async with AsyncConsumer(
        client, "billing", "orders",
        rebalance_on_assign=assigned.append, rebalance_on_revoke=revoked.append,
        rebalance_on_lost=lost.append,
    ) as one:  # fmt: skip
        await eventually(lambda: len(one.assignment) == 4)
        async with AsyncConsumer(client, "billing", "orders") as two:
            await eventually(lambda: len(one.assignment) == len(two.assignment) == 2)

            assert sorted([*one.assignment, *two.assignment]) == places(0, 1, 2, 3)
            assert sum(map(len, revoked)) == 2
        await eventually(lambda: len(one.assignment) == 4)

    assert lost == []
    assert sum(map(len, assigned)) == 6
    (join, leave, *_) = reversed((await client.admin.rebalances("billing")).rebalances[:-1])
    assert (join.cause, join.moved, leave.cause, leave.moved) == ("join", 2, "leave", 2)
    assert not any(move.fenced for move in [*join.moves, *leave.moves])


async def test_a_partition_is_handed_over_when_its_handlers_have_ended_and_others_at_once(
    client: AsyncClient,
) -> None:
    await publish(client, 4)
    going, said = asyncio.Event(), []
    handled: list[TopicPartition] = []

    async def handle(message: Received) -> None:
        handled.append(TopicPartition(message.topic, message.partition))
        await going.wait()
        said.append(("handled", message.partition))

    def on_revoke(revoked: list[TopicPartition]) -> None:
        said.extend(("revoked", place.partition) for place in revoked)

    async with AsyncConsumer(
        client, "billing", "orders", rebalance_on_revoke=on_revoke, prefetch=1
    ) as one:
        running = asyncio.create_task(one.run(handle))
        await eventually(lambda: bool(handled))
        busy = handled[0]
        others = [
            AsyncConsumer(client, "billing", "orders", rebalance_on_assign=None) for _ in range(3)
        ]
        for other in others:
            await other.start()
        await eventually(lambda: len(one.assignment) <= 2)
        going.set()
        await eventually(lambda: len(one.assignment) == 1)
        if ("revoked", busy.partition) in said:
            assert said.index(("handled", busy.partition)) < said.index(("revoked", busy.partition))
        for other in others:
            await other.close()
        one.stop()
        await running

    found = (await client.admin.rebalances("billing")).rebalances
    assert not any(move.fenced for rebalance in found for move in rebalance.moves)


async def test_nothing_comes_of_a_partition_that_stays_after_all_before_its_callback_is_told(
    client: AsyncClient,
) -> None:
    going, said = asyncio.Event(), []

    async def on_revoke(revoked: list[TopicPartition]) -> None:
        said.extend(("revoked", place.partition) for place in revoked)
        await going.wait()
        said.extend(("let go", place.partition) for place in revoked)

    def on_assign(assigned: list[TopicPartition]) -> None:
        said.extend(("assigned", place.partition) for place in assigned)

    def handle(message: Received) -> None:
        said.append(("handled", message.partition))

    one = AsyncConsumer(
        client, "billing", "orders", rebalance_on_assign=on_assign, rebalance_on_revoke=on_revoke
    )
    running = asyncio.create_task(one.run(handle))
    await eventually(lambda: len(said) == 4)
    two = await client.join_group("billing", ["orders"], client_id="two", wait=0.0)
    await eventually(lambda: len(said) == 6)
    asked = {number for _, number in said[4:]}

    await client.leave_group("billing", two.member_id)
    await eventually(lambda: len(one._session._holdings.active) == 4)
    await publish(client, 4)
    await eventually(lambda: sum(word == "handled" for word, _ in said) >= 2)
    await asyncio.sleep(0.02)
    going.set()
    await eventually(lambda: sum(word == "handled" for word, _ in said) == 4)
    one.stop()
    await running
    await one.close()

    for number in asked:
        told = [word for word, about in said if about == number][:5]
        assert told == ["assigned", "revoked", "let go", "assigned", "handled"]


async def test_one_that_closes_while_its_callback_is_told_tells_it_of_nothing_twice(
    client: AsyncClient,
) -> None:
    going, revoked = asyncio.Event(), []

    async def on_revoke(places: list[TopicPartition]) -> None:
        revoked.extend(places)
        await going.wait()

    one = AsyncConsumer(client, "billing", "orders", rebalance_on_revoke=on_revoke)
    await one.start()
    await eventually(lambda: len(one.assignment) == 4)
    await client.join_group("billing", ["orders"], client_id="two", wait=0.0)
    await eventually(lambda: len(revoked) == 2)

    closing = asyncio.create_task(one.close())
    await eventually(lambda: one.assignment == [])
    going.set()
    await closing

    assert sorted(revoked) == places(0, 1, 2, 3)


@pytest.mark.parametrize("instance_id", [None, "a"])
async def test_one_that_closes_while_it_lets_go_says_so_once_and_holds_up_nobody(
    client: AsyncClient, instance_id: str | None
) -> None:
    await publish(client, 4)
    going, revoked = asyncio.Event(), []

    async def handle(message: Received) -> None:
        await going.wait()

    one = AsyncConsumer(
        client, "billing", "orders", instance_id=instance_id, rebalance_on_revoke=revoked.extend
    )
    running = asyncio.create_task(one.run(handle, concurrency=4))
    await eventually(lambda: len(one._bench._in_work) == 4)
    async with AsyncConsumer(client, "billing", "orders") as two:
        await eventually(lambda: len(one._session._holdings.leaving) == 2)
        closing = asyncio.create_task(one.close())
        await asyncio.sleep(0.01)
        going.set()
        await closing
        await running

        await eventually(lambda: len(two.assignment) == (4 if instance_id is None else 2))

    assert sorted(revoked) == places(0, 1, 2, 3)
    assert await lag(client) == 0


async def test_a_message_of_a_moved_partition_comes_to_its_new_owner_with_its_first_attempt(
    client: AsyncClient,
) -> None:
    async with AsyncConsumer(client, "billing", "orders") as one:
        await publish(client, 40)
        await eventually(lambda: len(buffered(one)) > 0)
        seen = Counter[str]()

        async def handle(message: Received) -> None:
            assert message.attempt == 1
            seen[message.text] += 1

        two = AsyncConsumer(client, "billing", "orders")
        running = [asyncio.create_task(consumer.run(handle)) for consumer in (two, one)]
        await eventually(lambda: len(seen) == 40)
        two.stop()
        one.stop()
        await asyncio.gather(*running)
        await two.close()

    assert set(seen.values()) == {1}


async def test_a_static_member_that_is_back_in_time_has_what_it_had(client: AsyncClient) -> None:
    async with AsyncConsumer(client, "billing", "orders") as other:
        async with AsyncConsumer(client, "billing", "orders", instance_id="a") as one:
            await eventually(lambda: len(one.assignment) == len(other.assignment) == 2)
            had, before = one.assignment, (await client.admin.rebalances("billing")).totals.total

        assert len((await client.admin.members("billing")).members) == 2
        async with AsyncConsumer(client, "billing", "orders", instance_id="a") as again:
            await eventually(lambda: again.assignment == had)

        assert (await client.admin.rebalances("billing")).totals.total == before


async def test_one_whose_instance_id_another_took_ends_and_does_not_fight(
    client: AsyncClient, ways: Ways
) -> None:
    ways.may.add("refused")
    lost = []
    one = AsyncConsumer(client, "billing", "orders", instance_id="a", rebalance_on_lost=lost.append)
    async with one:
        await eventually(lambda: len(one.assignment) == 4)
        async with AsyncConsumer(client, "billing", "orders", instance_id="a") as two:
            with pytest.raises(UnknownMember):
                await one.next(30.0)
            await eventually(lambda: len(two.assignment) == 4)

    assert lost == [places(0, 1, 2, 3)]


async def test_one_that_was_given_up_says_so_and_joins_again_by_itself(
    client: AsyncClient, ways: Ways
) -> None:
    ways.may.add("refused")
    lost, assigned = [], []
    async with AsyncConsumer(
        client, "billing", "orders",
        rebalance_on_assign=assigned.append, rebalance_on_lost=lost.append,
    ) as consumer:  # fmt: skip
        await eventually(lambda: len(consumer.assignment) == 4)
        await publish(client, 4)
        await eventually(lambda: len(buffered(consumer)) == 4)
        former = consumer.member_id
        await client.leave_group("billing", former)  # as good as its expiry

        await eventually(lambda: consumer.member_id != former and len(consumer.assignment) == 4)
        found = [await consumer.next(30.0) for _ in range(4)]

        assert all(message is not None and message.attempt == 1 for message in found)
        assert lost == [places(0, 1, 2, 3)]
        assert sorted(place for told in assigned for place in told) == sorted(2 * lost[0])


async def test_any_of_its_servers_may_go_and_come(broker: NodeBroker, ways: Ways) -> None:
    seen = Counter[str]()

    async def handle(message: Received) -> None:
        seen[message.text] += 1

    async with fronting(broker, ways) as last:
        async with fronting(broker, ways) as first:
            async with AsyncClient(last) as client:
                await client.create_topic("orders", partitions=4)
            consumer = AsyncConsumer(
                [first, last], "billing", "orders", session_timeout="3s", visibility="1s"
            )
            running = asyncio.create_task(consumer.run(handle))
            await eventually(lambda: len(consumer.assignment) == 4)
            member = consumer.member_id
        async with AsyncClient(last) as client:
            await publish(client, 40)
            await eventually(lambda: len(seen) == 40)

        assert consumer.member_id == member
        await consumer.close()
        await running


async def test_members_of_a_shared_group_keep_keys_in_order_beyond_partitions(
    client: AsyncClient,
) -> None:
    await client.put_group("billing", mode="shared", ordering="key")
    await client.publish_many(
        "orders", [OutgoingMessage(str(n), key=f"k{n % 10}") for n in range(100)]
    )
    seen: dict[bytes, list[int]] = {}
    busy: set[bytes] = set()
    are_many = asyncio.Event()
    """More keys are worked on at once than there are partitions."""

    async def handle(message: Received) -> None:
        assert message.key is not None
        assert message.key not in busy
        busy.add(message.key)
        if len(busy) > 4:
            are_many.set()
        await are_many.wait()
        await asyncio.sleep(0.001)
        busy.remove(message.key)
        seen.setdefault(message.key, []).append(int(message.text))

    consumers = [AsyncConsumer(client, "billing", "orders", prefetch=2) for _ in range(3)]
    running = [asyncio.create_task(one.run(handle, concurrency=3)) for one in consumers]
    await eventually(lambda: sum(map(len, seen.values())) == 100)
    for consumer in consumers:
        await consumer.close()
    await asyncio.gather(*running)

    assert all(values == sorted(values) for values in seen.values())
    assert are_many.is_set()
    assert await lag(client) == 0


async def test_patterns_bring_topics_that_come_later(client: AsyncClient) -> None:
    async with AsyncConsumer(client, "billing", patterns="log.*") as consumer:
        await client.create_topic("log.one", partitions=1)
        await eventually(lambda: consumer.assignment == [TopicPartition("log.one", 0)])
        await client.publish("log.one", "hello")

        message = await consumer.next(30.0)

        assert message is not None
        assert message.text == "hello"


# around them


async def test_positions_are_seen_and_set_through_the_front(client: AsyncClient) -> None:
    await publish(client, 40)
    async with AsyncConsumer(client, "billing", "orders") as consumer:
        for _ in range(20):
            message = await consumer.next(30.0)
            assert message is not None
            await message.ack()
        (row, *_) = (await client.lag("billing", "orders")).partitions
        assert row.owner == consumer.member_id
        assert row.end_offset == 10
        with pytest.raises(GroupActive):
            await client.admin.reset_offsets("billing", "orders", to="earliest")
        with pytest.raises(GroupActive):
            await client.delete_group("billing")
    committed = await client.offsets("billing")
    assert sum(committed["orders"].values()) == 20

    planned = await client.admin.reset_offsets("billing", "orders", to="earliest", dry_run=True)
    assert sum(reset.replayed for reset in planned) == 20
    assert await client.offsets("billing") == committed
    (reset,) = await client.admin.reset_offsets("billing", "orders", offset=7, partitions=[1])
    assert reset.after == 7
    await client.commit_offsets("billing", {"orders": {0: 10, 2: 10, 3: 10}})
    assert await client.offsets("billing") == {"orders": {0: 10, 1: 7, 2: 10, 3: 10}}
    assert await lag(client) == 3


async def test_members_are_seen_with_what_they_have(client: AsyncClient) -> None:
    async with AsyncConsumer(
        client, "billing", "orders", client_id="worker", instance_id="w1", session_timeout="7s"
    ) as consumer:
        await eventually(lambda: len(consumer.assignment) == 4)
        (member,) = (await client.admin.members("billing")).members
        group = await client.group("billing")
        (listed,) = await client.list_groups()

    assert (member.id, member.client_id, member.instance_id) == (consumer.member_id, "worker", "w1")
    assert (member.assignment, member.revoking) == (places(0, 1, 2, 3), [])
    assert member.session_timeout_ms == 7000
    assert member.joined_at is not None
    assert (group.state, group.mode, group.assignor) == ("stable", "exclusive", "sticky")
    assert (group.topics, group.leader_id) == (["orders"], consumer.member_id)
    assert [one.id for one in group.members] == [consumer.member_id]
    assert (listed.name, listed.member_count, listed.state) == ("billing", 1, "stable")
