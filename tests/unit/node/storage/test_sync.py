"""Flushing a topic of relaxed durability: what was acked before is synced on a majority."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from goqueue.wire.errors import NoQuorum, NotLeader, Unavailable
from goqueue.wire.types import NodeId, PartitionId, TopicId
from node.storage import sync
from node.storage.sync import TopicSync

A, B, C = map(NodeId, "abc")
TOPIC = TopicId(1, 1)


class Cluster:
    """Node b is asked. By node: what it knows to be committed, who leads, and who is silent."""

    def __init__(self) -> None:
        self.committed = {A: 7, B: 5, C: 5}
        self.leader = A
        self.silent: set[NodeId] = set()
        self.rounds = 0

    def of(self, node: NodeId) -> TopicSync:
        world = self

        class Service:
            @property
            def replicas(self) -> Service:
                return self

            def find(self, _partition_id: PartitionId) -> Any:
                index = world.committed[node]
                known = SimpleNamespace(commit_index=index)
                return SimpleNamespace(raft_group=known, log=SimpleNamespace(last_index=7))

            async def confirmed(self, partition_id: PartitionId) -> Any:
                if world.leader != node:
                    raise NotLeader(None)
                return self.find(partition_id)

        class Link:
            def handle(self, _method: str, _handler: object) -> None:
                return None

            async def request(
                self, peer: NodeId, _method: str, payload: bytes, _timeout_s: float
            ) -> bytes:
                if peer in world.silent:
                    raise Unavailable
                return await world.of(peer)._serve(node, payload)

        class Flusher:
            async def sync(self) -> None:
                world.rounds += 1

        service: Any = Service()
        link: Any = Link()
        flusher: Any = Flusher()
        return TopicSync(node, service, flusher, link, voters=lambda _partition_id: (A, B, C))

    async def flush(self) -> None:
        config = SimpleNamespace(durability="relaxed")
        topic: Any = SimpleNamespace(id=TOPIC, partitions=[()], config=config)
        await self.of(B).flush(topic)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    monkeypatch.setattr(sync, "PAUSE_S", 0.0)
    return Cluster()


async def test_followers_that_lag_do_not_say_what_is_to_be_synced(cluster: Cluster) -> None:
    """The leader is silent: it may have acked what one of them has, and the other has not yet."""
    cluster.silent = {A}

    with pytest.raises(NoQuorum):
        await cluster.flush()


async def test_a_leader_s_last_acked_entry_is_waited_for(cluster: Cluster) -> None:
    with pytest.raises(NoQuorum):
        await cluster.flush()
    cluster.committed[C] = 7
    await cluster.flush()

    cluster.silent = {A}
    cluster.leader = C
    with pytest.raises(NoQuorum):
        await cluster.flush()
    cluster.committed[B] = 7
    await cluster.flush()
