"""Three real nodes: what the library publishes and settles goes to leaders that were named."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from goqueue import AsyncClient, Received
from goqueue.transport.http import Answer
from goqueue.wire.types import NodeId, PartitionId, TopicId
from node.assembly import NodeAssembly
from tests.unit.node.test_node import eventually
from tests.unit.node.three_nodes import NAMES, ThreeNodes, three_nodes

PARTITIONS = 6
METHODS = ("append", "queue_ops")


@dataclass(slots=True)
class Attempts:
    """Of a client: the server of each, in order."""

    servers: list[str] = field(default_factory=list[str])

    def of(self, client: AsyncClient) -> AsyncClient:
        ask = client.transport._ask

        async def counted(at: int, method: str, path: str, *rest: Any) -> Answer:
            if path != "/version":
                self.servers.append(client.transport.servers[at])
            return await ask(at, method, path, *rest)

        client.transport._ask = counted  # type: ignore[method-assign, assignment]
        return client


def url(node: NodeAssembly) -> str:
    return f"http://127.0.0.1:{node.front.port}"


def urls(nodes: ThreeNodes, names: Sequence[str] = NAMES) -> list[str]:
    return [url(nodes.running[name]) for name in names]


def forwarded(nodes: ThreeNodes) -> int:
    """Requests that nodes have sent on to leaders of partitions."""
    children = [node.metrics.http.forwarded._children for node in nodes.running.values()]
    return sum(
        round(child.value)
        for found in children
        for labels, child in found.items()
        if labels[0] in METHODS
    )


def answered(node: NodeAssembly) -> int:
    """Requests that a node's front has answered."""
    requests = node.metrics.http.requests._children.values()
    return sum(round(child.value) for child in requests)


@asynccontextmanager
async def serving() -> AsyncIterator[ThreeNodes]:
    """A topic of six partitions, led by all three nodes."""
    async with three_nodes() as nodes:
        broker = nodes.broker("n1")
        await broker.topics.create_topic(
            "t", {"partitions": PARTITIONS, "replication_factor": len(NAMES)}
        )
        topic = TopicId.parse((await broker.topics.topic("t")).id)
        for partition in range(PARTITIONS):
            await lead(nodes, PartitionId(topic, partition), NAMES[partition % len(NAMES)])
        yield nodes


async def lead(nodes: ThreeNodes, partition_id: PartitionId, name: str) -> None:
    """Hand a partition's leadership over, until all nodes know."""
    groups = {node: found.raft.raft_group(partition_id) for node, found in nodes.running.items()}
    await eventually(lambda: any(group.is_ready_leader for group in groups.values()))
    if not groups[name].is_ready_leader:
        (leader,) = [group for group in groups.values() if group.is_ready_leader]
        leader.transfer.start(NodeId(name))
    await eventually(
        lambda: (
            groups[name].is_ready_leader and all(group.leader == name for group in groups.values())
        )
    )


async def publish_everywhere(client: AsyncClient) -> None:
    for partition in range(PARTITIONS):
        published = await client.publish("t", "x", partition=partition)
        assert published.partition == partition


async def until_known(client: AsyncClient) -> None:
    """Every server has said who it is, and every partition's leader was told."""
    leaders = client.transport._leaders
    for _ in range(2):
        await publish_everywhere(client)
        await leaders._tasks.settled()
    await publish_everywhere(client)


async def test_publishes_go_to_leaders_and_nothing_is_sent_on() -> None:
    async with serving() as nodes, AsyncClient(urls(nodes)) as client:
        await publish_everywhere(client)
        at_first = forwarded(nodes)
        await until_known(client)
        before = forwarded(nodes)

        for number in range(30):
            await client.publish("t", "x", key=f"key {number}")
        await asyncio.gather(*(client.publish("t", "x") for _ in range(30)))
        async with client.producer(linger_ms=0) as producer:
            for number in range(30):
                await producer.publish("t", "x", key=f"key {number}")

        assert at_first >= PARTITIONS // 2
        assert forwarded(nodes) == before


async def test_a_server_that_was_not_named_is_asked_nothing() -> None:
    """A key goes to the servers that were named: what the third node leads is sent on to it."""
    async with serving() as nodes, AsyncClient(urls(nodes, NAMES[:2])) as client:
        before = answered(nodes.running["n3"])
        await until_known(client)
        sent_on = forwarded(nodes)

        await publish_everywhere(client)

        assert forwarded(nodes) == sent_on + PARTITIONS // 3
        assert answered(nodes.running["n3"]) == before


async def test_a_leader_that_cant_be_reached_costs_one_retry_and_is_asked_through_others() -> None:
    attempts = Attempts()
    async with serving() as nodes, attempts.of(AsyncClient(urls(nodes))) as client:
        await until_known(client)
        lost = url(nodes.running["n2"])
        await nodes.running["n2"].front.stop()
        attempts.servers.clear()

        await publish_everywhere(client)
        await publish_everywhere(client)

        assert len(attempts.servers) == 2 * PARTITIONS + 1
        assert attempts.servers.count(lost) == 1


async def test_a_leader_that_dies_costs_one_retry() -> None:
    attempts = Attempts()
    async with serving() as nodes, attempts.of(AsyncClient(urls(nodes))) as client:
        await until_known(client)
        lost = url(nodes.running["n2"])
        await nodes.stop("n2")
        attempts.servers.clear()

        await publish_everywhere(client)
        await publish_everywhere(client)

        assert attempts.servers.count(lost) <= 1
        assert len(attempts.servers) <= 2 * PARTITIONS + 1


async def test_a_leader_that_has_changed_is_known_after_one_request() -> None:
    async with serving() as nodes, AsyncClient(urls(nodes)) as client:
        await until_known(client)
        topic = TopicId.parse((await nodes.broker("n1").topics.topic("t")).id)
        await lead(nodes, PartitionId(topic, 0), "n3")
        before = forwarded(nodes)

        for _ in range(5):
            await client.publish("t", "x", partition=0)

        assert forwarded(nodes) == before + 1


async def test_settles_go_to_leaders_too() -> None:
    async with serving() as nodes, AsyncClient(urls(nodes)) as client:
        await until_known(client)
        received: list[Received] = []
        while len(received) < 3 * PARTITIONS:
            received += await client.receive("g", "t", limit=100, wait=1)
        before = forwarded(nodes)

        for message in received[:PARTITIONS]:
            await message.ack()
        await asyncio.gather(*(message.ack() for message in received[PARTITIONS:]))

        assert forwarded(nodes) == before


async def test_a_client_that_only_consumes_learns_leaders_from_its_settles() -> None:
    async with serving() as nodes, AsyncClient(urls(nodes)) as client:
        for partition in range(PARTITIONS):
            await client.publish_many("t", ["x"] * 10)
            await client.publish("t", "x", partition=partition)
        async with AsyncClient(urls(nodes)) as reader:
            leaders = reader.transport._leaders
            known: list[Received] = []
            while len({message.partition for message in known}) < PARTITIONS:
                known += await reader.receive("g", "t", limit=1, wait=1)
            for _ in range(2):
                for message in known:
                    await message.extend(30)
                await leaders._tasks.settled()
            before = forwarded(nodes)

            for message in known:
                await message.ack()

            assert forwarded(nodes) == before
