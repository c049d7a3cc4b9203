"""Questions to the leaders of many partitions find those, also where nobody here knows them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest

from goqueue.wire.types import NodeId, PartitionId, TopicId
from node.peers import leaders
from node.peers.leaders import ask_leaders
from tests.unit.node.replicas.test_topology import ME, A, B, C, World
from tests.unit.node.test_node import eventually
from tests.unit.node.three_nodes import NAMES, three_nodes


class Leader:
    """Who leads, asked through the topology of a node that has no replica."""

    def __init__(self, leader: NodeId) -> None:
        self.world = World()
        self.leader = leader
        self.asked: list[NodeId] = []

    async def ask(self, node: NodeId, partition_ids: list[PartitionId]) -> Iterable[PartitionId]:
        self.asked.append(node)
        await asyncio.sleep(0)
        return partition_ids if node == self.leader else []

    async def left(self, rounds: int = 1) -> set[PartitionId]:
        return await ask_leaders(self.world.topology, [self.world.partition_id], self.ask, rounds)


@pytest.mark.parametrize("leader", [A, B, C])
async def test_who_can_only_guess_asks_one_voter_after_the_other_and_remembers(
    leader: NodeId,
) -> None:
    found = Leader(leader)

    assert await found.left() == set()
    assert len(found.asked) == len(set(found.asked)) <= 3
    found.asked.clear()
    assert await found.left() == set()
    assert found.asked == [leader]


async def test_two_that_guess_at_once_find_the_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaders, "PAUSE_S", 0.001)
    found = Leader(C)
    found.world.away.add(A)
    first = found.world.leader()
    found.leader = B if first == C else C

    left = await asyncio.gather(found.left(), found.left())

    assert not any(left)


async def test_where_nobody_leads_each_is_asked_once_a_round(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(leaders, "PAUSE_S", 0.001)
    found = Leader(ME)

    assert await found.left(rounds=2) == {found.world.partition_id}
    assert sorted(found.asked) == [A, A, B, B, C, C]


async def test_a_node_without_replicas_tells_of_partitions_whose_leaders_have_moved() -> None:
    """Nothing was asked through it before that would have told it who leads."""
    async with three_nodes() as nodes:
        some = nodes.broker("n1")
        await some.topics.create_topic("t", {"partitions": 1, "replication_factor": 2})
        (partition,) = (await some.topics.topic("t")).partitions
        first, second = partition.voters
        partition_id = PartitionId(TopicId.parse((await some.topics.topic("t")).id), 0)
        replica = nodes.running[first].raft.raft_group(partition_id)
        await eventually(lambda: replica.is_ready_leader)
        replica.transfer.start(NodeId(second))
        await eventually(
            lambda: nodes.running[second].raft.raft_group(partition_id).is_ready_leader
        )
        (third,) = {*NAMES} - {first, second}
        broker = nodes.broker(third)

        assert await broker.records.end_offsets("t") == {0: (0, 0)}
        assert len(await broker.figures.queue_stats("t")) == 1
