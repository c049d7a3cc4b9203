"""Messages with ids of their own: repeated where the topic knows them again, and only there."""

from __future__ import annotations

import pytest

from goqueue import AsyncClient, OutgoingMessage, PublishFailed
from goqueue.errors import GoQueueError, NoQuorum, OutcomeUnknown
from goqueue.wire.batch import RecordBatch
from goqueue.wire.partitioner import partition_for
from tests.unit.goqueue.server import FakeCluster, Fault


@pytest.mark.parametrize("fault", [Fault.CUT_BEFORE, Fault.CUT_AFTER, NoQuorum()], ids=str)
async def test_a_publish_with_an_id_is_repeated_and_stored_once(
    client: AsyncClient, cluster: FakeCluster, fault: Fault | GoQueueError
) -> None:
    cluster.create("orders", 1)
    cluster.faults.append(fault)

    published = await client.publish("orders", "x", message_id="m")

    assert (published.offset, published.duplicate) == (0, fault is Fault.CUT_AFTER)
    assert cluster.topics["orders"][0].values() == [b"x"]
    assert len(cluster.bodies) == 2


async def test_one_message_without_an_id_keeps_its_batch_from_being_repeated(
    client: AsyncClient, cluster: FakeCluster
) -> None:
    cluster.create("orders", 1)
    cluster.faults.append(Fault.CUT_AFTER)

    with pytest.raises(PublishFailed) as raised:
        await client.publish_many("orders", [OutgoingMessage("a", message_id="a"), "b"])

    assert raised.value.outcome == "unknown"
    assert len(cluster.bodies) == 1


@pytest.mark.parametrize("window_ms", [0, 30_000])
async def test_a_topic_that_forgets_ids_too_soon_gets_no_repeats(
    client: AsyncClient, cluster: FakeCluster, window_ms: int
) -> None:
    cluster.create("orders", 1)
    cluster.dedup_window_ms = window_ms
    cluster.faults.append(Fault.CUT_AFTER)

    with pytest.raises(OutcomeUnknown):
        await client.publish("orders", "x", message_id="m")

    assert len(cluster.bodies) == 1


async def test_an_id_chooses_the_partition_where_there_is_no_key(
    client: AsyncClient, cluster: FakeCluster
) -> None:
    partitions = cluster.create("orders", 6)
    expected = partition_for(b"order-17", 6)

    first = await client.publish("orders", "x", message_id="order-17")
    async with client.producer(linger_ms=1) as producer:
        again = await producer.publish("orders", "x", message_id="order-17")

    assert (first.partition, again.partition, again.duplicate) == (expected, expected, True)
    assert partitions[expected].next == 1


async def test_a_producers_named_messages_travel_without_identity_and_in_order(
    client: AsyncClient, cluster: FakeCluster
) -> None:
    cluster.create("orders", 1)
    cluster.faults.extend([Fault.CUT_AFTER, Fault.CUT_BEFORE, Fault.CUT_AFTER, Fault.CUT_AFTER])

    async with client.producer(linger_ms=1) as producer:
        for n in range(30):
            message_id = f"m{n}" if n % 10 < 5 else None
            await producer.send("orders", str(n), partition=0, message_id=message_id)

    assert cluster.topics["orders"][0].values() == [str(n).encode() for n in range(30)]
    stored = [RecordBatch.parse(data) for _, _, data in cluster.topics["orders"][0].batches]
    for batch in stored:
        named = [message_id is not None for message_id in batch.message_ids()]
        assert all(named) or not any(named)
        assert bool(batch.producer_id) != named[0]


async def test_a_producer_of_named_messages_asks_for_no_identity(
    client: AsyncClient, cluster: FakeCluster
) -> None:
    cluster.create("orders", 1)

    async with client.producer(linger_ms=1) as producer:
        await producer.send("orders", "x", message_id="m")

    assert "/v1/producers/init" not in cluster.paths("POST")


async def test_where_ids_are_not_remembered_a_producers_identity_does_it(
    client: AsyncClient, cluster: FakeCluster
) -> None:
    cluster.create("orders", 1)
    cluster.dedup_window_ms = 0
    cluster.faults.append(Fault.CUT_AFTER)

    async with client.producer(linger_ms=1) as producer:
        await producer.send("orders", "x", message_id="m")

    assert cluster.topics["orders"][0].values() == [b"x"]


async def test_a_named_batch_is_not_repeated_for_longer_than_its_topic_remembers(
    client: AsyncClient, cluster: FakeCluster
) -> None:
    cluster.create("orders", 1)
    cluster.dedup_window_ms = 400
    cluster.faults.extend([Fault.CUT_AFTER] * 1000)

    async with client.producer(linger_ms=1) as producer:
        delivery = await producer.send("orders", "x", message_id="m")
        with pytest.raises(GoQueueError) as raised:
            await delivery
        cluster.faults.clear()
        with pytest.raises(GoQueueError):
            await producer.flush()

    assert raised.value.outcome == "unknown"
