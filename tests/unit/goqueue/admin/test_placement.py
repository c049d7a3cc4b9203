"""Brokers and moves through the client, against a node that was told of two more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from coordinator.errors import BrokerGone
from goqueue import AsyncClient, Client, PartitionMove
from goqueue.errors import BadRequest, Conflict, NotFound
from node.assembly import NodeAssembly
from tests.one_node import one_node
from tests.three_brokers import ThreeBrokers, three_brokers


@pytest.fixture
async def node() -> AsyncIterator[NodeAssembly]:
    async with one_node() as node:
        yield node


@pytest.fixture
async def brokers(node: NodeAssembly) -> ThreeBrokers:
    """Three brokers, of which the first has the three partitions of `orders`."""
    await node.broker.topics.create_topic("orders", {"partitions": 3})
    return await three_brokers(node)


@pytest.fixture
async def url(node: NodeAssembly, brokers: ThreeBrokers) -> str:
    return f"http://127.0.0.1:{node.front.port}"


@pytest.fixture
async def client(url: str) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(url) as client:
        yield client


async def test_partitions_are_added_and_published_to_at_once(client: AsyncClient) -> None:
    await client.publish("orders", "first")

    added = await client.admin.add_partitions("orders", 5, [["node-1"], ["node-1"]])

    assert (added.old_partition_count, added.partitions_added) == (3, [3, 4])
    assert {(await client.publish("orders", "v")).partition for _ in range(5)} == set(range(5))
    await client.admin.add_partitions("orders", 7, [["node-2"], ["node-3"]])
    assert [one.voters for one in await client.partitions("orders")][5:] == [["node-2"], ["node-3"]]
    with pytest.raises(BadRequest) as refused:
        await client.admin.add_partitions("orders", 2)
    assert refused.value.code == "invalid_config"


async def test_a_broker_is_drained_and_removed(client: AsyncClient, brokers: ThreeBrokers) -> None:
    plan = await client.admin.plan_drain("node-1")
    assert [move.before for move in plan.moves] == [["node-1"]] * 3

    draining = await client.admin.drain_broker("node-1", throttle_bytes_s=1000)

    assert draining.state == "draining"
    assert draining.drain is not None
    assert (draining.drain.replicas_left, draining.drain.throttle_bytes_per_sec) == (3, 1000)
    with pytest.raises(Conflict) as refused:
        await client.admin.remove_broker("node-1")
    assert refused.value.code == "broker_not_empty"
    await brokers.move(3)
    assert (await client.admin.broker("node-1")).state == "drained"
    await client.admin.remove_broker("node-1")
    assert [one.id for one in await client.admin.brokers()] == ["node-2", "node-3"]
    # 404, or 409 once this node, which is the removed one, has looked at what became of it
    with pytest.raises((NotFound, BrokerGone)):
        await client.admin.undrain_broker("node-1")


async def test_a_rebalance_is_planned_begun_and_cancelled(
    client: AsyncClient, brokers: ThreeBrokers
) -> None:
    plan = await client.admin.plan_rebalance()
    assert (len(plan.moves), plan.replicas_moved, plan.complete) == (2, 2, True)

    begun = await client.admin.rebalance(throttle_bytes_s=7)

    assert begun is not None
    assert (begun.cause, begun.throttle_bytes_per_sec, begun.is_over) == ("rebalance", 7, False)
    await brokers.move(1)
    assert (await client.admin.reassignment(begun.id)).progress == 0.5
    cancelled = await client.admin.cancel_reassignment(begun.id)
    assert [one.state for one in cancelled.partitions] == ["arrived", "returned"]
    assert await client.admin.reassignments(running=True) == []
    assert [one.id for one in await client.admin.reassignments()] == [begun.id]


async def test_where_shares_are_equal_nothing_is_begun(client: AsyncClient) -> None:
    await client.delete_topic("orders")

    assert await client.admin.rebalance() is None


async def test_a_plan_of_ones_own_is_carried_out_as_it_was_seen(
    client: AsyncClient, brokers: ThreeBrokers
) -> None:
    move = PartitionMove("orders", 0, ["node-1"], ["node-2"])
    assert (await client.admin.plan_moves([move])).moves[0].after == ["node-2"]

    begun = await client.admin.reassign([move])
    await brokers.move(1)

    assert (await client.admin.reassignment(begun.id)).is_over
    with pytest.raises(Conflict) as refused:
        await client.admin.reassign([move])
    assert refused.value.code == "overtaken"


async def test_the_blocking_client_has_the_same(url: str) -> None:
    def work() -> list[str]:
        with Client(url) as client:
            client.admin.add_partitions("orders", 4)
            return [broker.id for broker in client.admin.brokers()]

    assert await asyncio.to_thread(work) == ["node-1", "node-2", "node-3"]


async def test_level_is_asked_for_and_finished(client: AsyncClient, brokers: ThreeBrokers) -> None:
    assert await client.admin.level() == 1
    await brokers.add("node-2", level=2)

    ahead = await client.admin.plan_upgrade()
    assert (ahead.finished_level, ahead.next_level, len(ahead.waiting)) == (1, 2, 1)
    with pytest.raises(Conflict) as refused:
        await client.admin.finish_upgrade()
    assert refused.value.code == "upgrade_waits"
    await brokers.add("node-3", level=2)
    finished = await client.admin.finish_upgrade()

    assert (finished.finished_level, finished.waiting) == (2, [])
    assert await client.admin.level() == 2
    assert {one.highest_level for one in (await client.admin.cluster_version()).brokers} == {2}
