"""The producer: batches, back-pressure, and each message stored once whatever goes wrong."""

from __future__ import annotations

import asyncio
import random
from itertools import chain

import pytest

from goqueue import AsyncClient, Published
from goqueue.errors import (
    BadRequest,
    BatchError,
    Busy,
    Closed,
    GoQueueError,
    NoQuorum,
    OutcomeUnknown,
    PayloadTooLarge,
    UnknownTopic,
)
from goqueue.publish.batches import Budget
from goqueue.wire.batch import RecordBatch, split_batches
from goqueue.wire.partitioner import partition_for
from tests.unit.goqueue.server import FakeCluster, Fault


def batches(body: bytes) -> list[RecordBatch]:
    return [RecordBatch.parse(part) for part in split_batches(body)]


async def test_messages_sent_together_travel_in_one_batch(
    client: AsyncClient, cluster: FakeCluster
) -> None:
    cluster.create("orders", 1)

    async with client.producer(linger_ms=10_000) as producer:
        deliveries = [await producer.send("orders", f"{n}") for n in range(100)]
        await producer.flush()
        results = [await delivery for delivery in deliveries]

    assert results == [Published("orders", 0, n, False) for n in range(100)]
    assert len(cluster.bodies) == 1
    (batch,) = batches(cluster.bodies[0])
    assert batch.count == 100
    assert batch.producer_id >= 1000
    assert (batch.producer_epoch, batch.base_sequence) == (0, 0)


async def test_a_batch_closes_after_its_linger(client: AsyncClient, cluster: FakeCluster) -> None:
    cluster.create("orders", 1)

    async with client.producer(linger_ms=1) as producer:
        delivery = await producer.send("orders", "v")
        assert (await asyncio.wait_for(delivery, 30)).offset == 0


@pytest.mark.parametrize(
    ("options", "sizes"),
    [({"batch_records_max": 3}, [3, 3, 2]), ({"batch_bytes_max": 500}, [4, 4])],
    ids=["records", "bytes"],
)
async def test_a_batch_closes_when_it_is_full(
    client: AsyncClient, cluster: FakeCluster, options: dict[str, int], sizes: list[int]
) -> None:
    cluster.create("orders", 1)

    async with client.producer(linger_ms=10_000, **options) as producer:
        for _ in range(8):
            await producer.send("orders", b"x" * 50, partition=0)

    sent = [batch for body in cluster.bodies for batch in batches(body)]
    assert [batch.count for batch in sent] == sizes
    assert [b.base_sequence for b in sent] == [sum(sizes[:n]) for n in range(len(sizes))]


async def test_keys_keep_their_partition_and_order(
    client: AsyncClient, cluster: FakeCluster
) -> None:
    cluster.create("orders", 4)

    async with client.producer(batch_records_max=7) as producer:
        for number in range(200):
            await producer.send("orders", str(number), key=f"k{number % 10}")

    for number, partition in enumerate(cluster.topics["orders"]):
        stored = [RecordBatch.parse(data) for _, _, data in partition.batches]
        keys = list(chain.from_iterable(batch.keys() for batch in stored))
        assert {partition_for(key or b"", 4) for key in keys} <= {number}
        of_key: dict[bytes | None, list[int]] = {}
        for key, value in zip(keys, partition.values(), strict=True):
            of_key.setdefault(key, []).append(int(value))
        assert all(values == sorted(values) for values in of_key.values())
    assert sum(partition.next for partition in cluster.topics["orders"]) == 200


async def test_messages_without_a_key_fill_one_partition_after_the_other(
    client: AsyncClient, cluster: FakeCluster
) -> None:
    cluster.create("orders", 3)

    async with client.producer(linger_ms=10_000, batch_records_max=10) as producer:
        for _ in range(60):
            await producer.send("orders", "v")

    assert [partition.next for partition in cluster.topics["orders"]] == [20, 20, 20]


async def test_headers_lanes_ids_and_compression_reach_the_log(
    client: AsyncClient, cluster: FakeCluster
) -> None:
    cluster.create("orders", 1)

    async with client.producer(compression="zstd") as producer:
        for n in range(50):
            await producer.send(
                "orders", b"same " * 20, headers={"n": str(n)}, priority="low", message_id=f"m{n}"
            )

    (batch,) = batches(cluster.bodies[0])
    assert batch.codec.name == "ZSTD"
    assert batch.headers()[49] == (("n", b"49"),)
    assert set(batch.lanes()) == {3}
    assert batch.message_ids()[7] == "m7"


# repeats


@pytest.mark.parametrize("fault", [Fault.CUT_BEFORE, Fault.CUT_AFTER, NoQuorum(), Busy()], ids=str)
async def test_a_batch_is_repeated_with_the_same_bytes_and_stored_once(
    client: AsyncClient, cluster: FakeCluster, fault: Fault | GoQueueError
) -> None:
    cluster.create("orders", 1)
    cluster.faults.append(fault)

    async with client.producer() as producer:
        first = await producer.send("orders", "1")
        second = await producer.send("orders", "2")

    assert cluster.topics["orders"][0].values() == [b"1", b"2"]
    assert len(cluster.bodies) == 2
    assert cluster.bodies[0] == cluster.bodies[1]
    assert [(await first).offset, (await second).offset] == [0, 1]
    assert (await first).duplicate == (fault is Fault.CUT_AFTER)


async def test_many_batches_survive_any_mix_of_faults_exactly_once_and_in_order(
    client: AsyncClient, cluster: FakeCluster
) -> None:
    cluster.create("orders", 2)
    chance = random.Random(7)
    kinds: list[Fault | GoQueueError] = [
        Fault.CUT_BEFORE,
        Fault.CUT_AFTER,
        NoQuorum(),
        Fault.SECOND_FAILS,
    ]
    cluster.faults.extend(chance.choice(kinds) for _ in range(40))

    async with client.producer(batch_records_max=5, linger_ms=0.5) as producer:
        deliveries = [
            await producer.send("orders", str(number), partition=number % 2)
            for number in range(400)
        ]
        await producer.flush()

    for parity, partition in enumerate(cluster.topics["orders"]):
        assert [int(value) for value in partition.values()] == list(range(parity, 400, 2))
    offsets = [delivery.result().offset for delivery in deliveries]
    assert offsets == [number // 2 for number in range(400)]


async def test_without_identity_a_batch_that_may_be_stored_fails_and_is_not_repeated(
    client: AsyncClient, cluster: FakeCluster
) -> None:
    cluster.create("orders", 1)
    cluster.faults.append(Fault.CUT_AFTER)

    producer = client.producer(idempotent=False)
    delivery = await producer.send("orders", "1")
    with pytest.raises(GoQueueError) as failed:
        await producer.close()

    assert failed.value.outcome == "unknown"
    assert delivery.exception() is failed.value
    assert cluster.topics["orders"][0].values() == [b"1"]
    assert "/v1/producers/init" not in cluster.paths("POST")


async def test_without_identity_a_batch_refused_for_now_is_repeated(
    client: AsyncClient, cluster: FakeCluster
) -> None:
    cluster.create("orders", 1)
    cluster.faults.extend([NoQuorum()] * 6)  # more than one call repeats by itself

    async with client.producer(idempotent=False) as producer:
        await producer.send("orders", "1")

    assert cluster.topics["orders"][0].values() == [b"1"]


async def test_a_batch_fails_after_its_delivery_timeout_and_the_next_has_a_new_identity(
    client: AsyncClient, cluster: FakeCluster
) -> None:
    cluster.create("orders", 1)
    cluster.faults.append(Fault.HANG)

    async with client.producer(linger_ms=0, delivery_timeout_s=0.1) as producer:
        late = await producer.send("orders", "late")
        with pytest.raises(GoQueueError) as failed:
            await producer.flush()
        after = await producer.send("orders", "after")
        await producer.flush()

    assert failed.value.outcome == "unknown"
    assert late.exception() is failed.value
    assert (await after).offset == 0
    first, second = (batches(body)[0] for body in cluster.bodies)
    assert first.producer_id != second.producer_id
    assert second.base_sequence == 0


async def test_batches_behind_one_whose_outcome_is_unknown_are_of_unknown_outcome_too(
    client: AsyncClient, cluster: FakeCluster
) -> None:
    cluster.create("orders", 1)
    cluster.faults.append(Fault.HANG)

    producer = client.producer(batch_records_max=1, delivery_timeout_s=0.1)
    deliveries = [await producer.send("orders", str(number)) for number in range(3)]
    with pytest.raises(GoQueueError):
        await producer.close()

    assert len(cluster.bodies) == 1
    assert len(batches(cluster.bodies[0])) == 3
    errors = [delivery.exception() for delivery in deliveries]
    assert [isinstance(e, GoQueueError) and e.outcome for e in errors] == ["unknown"] * 3


async def test_without_identity_each_request_holds_one_batch(
    client: AsyncClient, cluster: FakeCluster
) -> None:
    cluster.create("orders", 1)

    async with client.producer(batch_records_max=1, idempotent=False) as producer:
        for number in range(3):
            await producer.send("orders", str(number))

    assert [len(batches(body)) for body in cluster.bodies] == [1, 1, 1]
    assert [batches(body)[0].producer_id for body in cluster.bodies] == [0, 0, 0]


@pytest.mark.parametrize(
    "second",
    [{"partition": 0, "offset": 1, "duplicate": False}, OutcomeUnknown().to_body()],
    ids=["stored", "unknown"],
)
async def test_what_may_be_stored_keeps_its_bytes_when_the_batch_before_it_failed(
    client: AsyncClient, cluster: FakeCluster, second: dict[str, object]
) -> None:
    cluster.create("orders", 1)
    cluster.answers.append([BadRequest("no").to_body(), second])
    cluster.answers.append([{"partition": 0, "offset": 1, "duplicate": True}])

    producer = client.producer(batch_records_max=1)
    refused = await producer.send("orders", "1")
    stored = await producer.send("orders", "2")
    with pytest.raises(BadRequest):
        await producer.close()

    first, again = (list(split_batches(body)) for body in cluster.bodies)
    assert again == [first[1]]
    assert isinstance(refused.exception(), BadRequest)
    assert stored.result() == Published("orders", 0, 1, True)


async def test_a_producer_that_the_log_forgot_starts_over(
    client: AsyncClient, cluster: FakeCluster
) -> None:
    cluster.create("orders", 1)

    async with client.producer() as producer:
        await producer.publish("orders", "1")
        cluster.faults.append(Fault.FORGET_PRODUCERS)
        assert (await producer.publish("orders", "2")).offset == 1

    assert cluster.topics["orders"][0].values() == [b"1", b"2"]


async def test_a_message_too_large_for_the_topic_fails_alone(
    client: AsyncClient, cluster: FakeCluster
) -> None:
    cluster.create("orders", 1)
    cluster.value_bytes_max = 10

    producer = client.producer(linger_ms=10_000)
    deliveries = [
        await producer.send("orders", b"x" * (11 if number == 5 else 1)) for number in range(9)
    ]
    with pytest.raises(PayloadTooLarge):
        await producer.close()

    failed = [number for number, delivery in enumerate(deliveries) if delivery.exception()]
    assert failed == [5]
    assert cluster.topics["orders"][0].next == 8
    assert producer.buffered_bytes == 0


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"key": b"x" * 65_536}, PayloadTooLarge),
        ({"headers": {"h": b"x" * 65_536}}, PayloadTooLarge),
        ({"message_id": "x" * 257}, PayloadTooLarge),
        ({"message_id": ""}, BadRequest),
        ({"headers": {"": "x"}}, BatchError),
        ({"priority": "urgent"}, BadRequest),
        ({"priority": 5}, BadRequest),
    ],
    ids=["key", "headers", "id", "empty id", "no header name", "lane", "lane number"],
)
async def test_a_message_that_can_never_be_sent_is_refused_at_once(
    client: AsyncClient, cluster: FakeCluster, options: dict[str, object], error: type[GoQueueError]
) -> None:
    cluster.create("orders", 1)

    async with client.producer() as producer:
        with pytest.raises(error):
            await producer.send("orders", "v", **options)  # type: ignore[arg-type]
        assert producer.buffered_bytes == 0


async def test_a_missing_topic_is_refused_or_created_as_told(
    client: AsyncClient, cluster: FakeCluster
) -> None:
    async with client.producer() as producer:
        with pytest.raises(UnknownTopic):
            await producer.send("orders", "v")
    async with client.producer(create_topics=True) as producer:
        await producer.send("orders", "v")

    assert len(cluster.topics["orders"]) == 6


async def test_an_identity_that_can_not_be_had_fails_the_batch_with_outcome_none(
    cluster: FakeCluster,
) -> None:
    cluster.create("orders", 1)
    async with cluster.serve() as url:
        client = AsyncClient(url)
        await client.known_topics.get("orders")
    producer = client.producer(delivery_timeout_s=0.05)

    delivery = await producer.send("orders", "v")
    with pytest.raises(GoQueueError):
        await producer.close()
    await client.close()

    error = delivery.exception()
    assert isinstance(error, GoQueueError)
    assert error.outcome == "none"


async def test_a_producer_that_gets_no_identity_tells_why(
    client: AsyncClient, cluster: FakeCluster
) -> None:
    cluster.create("orders", 3)
    await client.known_topics.get("orders")
    cluster.refusing_producers = NoQuorum(outcome="unknown")
    producer = client.producer(linger_ms=0, delivery_timeout_s=0.3)

    with pytest.raises(NoQuorum) as refused:
        await producer.identify()
    assert refused.value.outcome == "none"
    deliveries = [await producer.send("orders", "v", partition=n) for n in range(3)]
    with pytest.raises(NoQuorum):
        await producer.close()

    errors = [delivery.exception() for delivery in deliveries]
    assert [type(error) for error in errors] == [NoQuorum] * 3
    assert len(set(map(id, errors))) == 3


async def test_partitions_share_an_identity_that_is_asked_for_once(
    client: AsyncClient, cluster: FakeCluster
) -> None:
    cluster.create("orders", 3)

    async with client.producer(linger_ms=0) as producer:
        for number in range(3):
            await producer.send("orders", "v", partition=number)

    assert cluster.paths("POST").count("/v1/producers/init") == 1


async def test_a_batch_refused_until_its_time_is_up_fails_with_the_refusal(
    client: AsyncClient, cluster: FakeCluster
) -> None:
    cluster.create("orders", 1)
    cluster.faults.extend([NoQuorum(), Fault.HANG])

    producer = client.producer(linger_ms=0, delivery_timeout_s=0.2)
    delivery = await producer.send("orders", "v")
    with pytest.raises(NoQuorum) as failed:
        await producer.close()

    assert failed.value.outcome == "unknown"
    assert delivery.exception() is failed.value


# bounds and ends


async def test_send_waits_while_the_buffer_is_full(
    client: AsyncClient, cluster: FakeCluster
) -> None:
    cluster.create("orders", 1)
    cluster.holding.clear()
    producer = client.producer(linger_ms=0, buffer_bytes_max=10_000)

    async def fill() -> int:
        for number in range(100):
            await producer.send("orders", b"x" * 936)
            sent.append(number)
        return len(sent)

    sent: list[int] = []
    filling = asyncio.create_task(fill())
    await asyncio.wait_for(cluster.asked.wait(), 30)
    for _ in range(200):
        await asyncio.sleep(0)
    assert len(sent) == 10
    assert producer.buffered_bytes == 10_000

    cluster.holding.set()
    assert await asyncio.wait_for(filling, 30) == 100
    await producer.close()
    assert producer.buffered_bytes == 0
    assert cluster.topics["orders"][0].next == 100


async def test_room_goes_to_those_who_wait_in_their_order() -> None:
    budget = Budget(10)
    order: list[str] = []

    async def take(name: str, size: int) -> None:
        await budget.take(size)
        order.append(name)

    await budget.take(10)
    large = asyncio.create_task(take("large", 8))
    small = asyncio.create_task(take("small", 1))
    given_up = asyncio.create_task(take("given up", 1))
    await asyncio.sleep(0)
    given_up.cancel()
    await asyncio.gather(given_up, return_exceptions=True)
    budget.give(5)
    late = asyncio.create_task(take("late", 1))
    await asyncio.sleep(0)
    assert order == []  # nobody overtakes
    budget.give(5)
    await asyncio.gather(large, small, late)

    assert order == ["large", "small", "late"]
    assert budget.used_bytes == 10


async def test_room_is_returned_when_its_taker_is_cancelled_on_its_turn() -> None:
    budget = Budget(10)
    await budget.take(10)
    waiting = asyncio.create_task(budget.take(10))
    await asyncio.sleep(0)

    budget.give(10)  # its turn comes
    waiting.cancel()  # before it runs
    await asyncio.gather(waiting, return_exceptions=True)

    assert budget.used_bytes == 0


async def test_something_larger_than_the_whole_buffer_passes_alone(
    client: AsyncClient, cluster: FakeCluster
) -> None:
    cluster.create("orders", 1)

    async with client.producer(buffer_bytes_max=100) as producer:
        for _ in range(3):
            await producer.send("orders", b"x" * 1000)

    assert cluster.topics["orders"][0].next == 3


async def test_a_closed_producer_refuses_and_has_flushed(
    client: AsyncClient, cluster: FakeCluster
) -> None:
    cluster.create("orders", 1)
    producer = client.producer(linger_ms=10_000)
    delivery = await producer.send("orders", "v")

    await producer.close()
    await producer.close()

    assert (await delivery).offset == 0
    with pytest.raises(Closed):
        await producer.send("orders", "v")


async def test_an_error_on_its_way_is_not_hidden_by_a_failed_flush(
    client: AsyncClient, cluster: FakeCluster
) -> None:
    cluster.create("orders", 1)
    cluster.faults.append(BadRequest("no"))

    with pytest.raises(KeyError):
        async with client.producer() as producer:
            await producer.send("orders", "v")
            raise KeyError
