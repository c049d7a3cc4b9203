"""The cluster group's log is bounded: old commands go behind its snapshots, and nobody needs them
again, whoever was away, comes anew or has lost a file."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator

import pytest

from coordinator.commands.codec import AllocateProducer
from goqueue.wire.types import CLUSTER_GROUP, NodeId
from log.disk.memory import MemoryDisk
from log.partition.log import PartitionLog
from node.cluster import host as cluster_module
from node.cluster.host import ClusterHost
from tests.ports import free_ports
from tests.unit.node.storage.repair.test_damaged_files import (
    CLUSTER,
    NAMES,
    VICTIM,
    SmallNodes,
    flip,
    small_nodes,
    whole_again,
)
from tests.unit.node.test_node import eventually

KEPT = 30


@pytest.fixture
async def nodes(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SmallNodes]:
    """Three nodes that keep few commands."""
    monkeypatch.setattr(cluster_module, "KEPT_ENTRIES", KEPT)
    async with small_nodes() as found:
        yield found


def cluster(nodes: SmallNodes, name: str) -> ClusterHost:
    return nodes.broker(name).topics._cluster


def log_of(nodes: SmallNodes, name: str) -> PartitionLog:
    return nodes.stores[name].partition_log(CLUSTER_GROUP)


async def fill(nodes: SmallNodes, name: str = "n1") -> None:
    """More commands than are kept, until whoever runs has dropped all that were there before."""
    began = cluster(nodes, name).applied
    async with asyncio.timeout(30):
        while any(log_of(nodes, running).first_index <= began for running in nodes.running):
            for _ in range(KEPT):
                await cluster(nodes, name).command(AllocateProducer(), 10)
            await asyncio.sleep(0.3)  # snapshots take turns by time


async def test_old_commands_go_behind_the_snapshots_and_a_restart_needs_none_of_them(
    nodes: SmallNodes,
) -> None:
    id = cluster(nodes, "n3").state.cluster_id
    await fill(nodes)

    await nodes.stop("n3")
    await nodes.begin("n3")
    await whole_again(nodes, "a restart")

    state = cluster(nodes, "n1").state
    assert state.cluster_id == id
    await eventually(lambda: cluster(nodes, "n3").state.snapshot() == state.snapshot())
    for _ in range(3):
        await fill(nodes)
    for name in NAMES:
        log = log_of(nodes, name)
        assert log.first_index > 1 + log.last_index // 2, "it grows with all that ever was"
        assert log.last_index - log.first_index >= KEPT - 1


async def test_a_node_that_was_away_for_longer_than_is_kept_gets_a_copy(nodes: SmallNodes) -> None:
    await nodes.stop(VICTIM)
    last = log_of(nodes, VICTIM).last_index
    await nodes.broker("n1").topics.create_topic("u", {})
    await fill(nodes)
    assert log_of(nodes, "n1").first_index > last + 1

    await nodes.begin(VICTIM)

    await whole_again(nodes, "a long absence")
    assert sorted(nodes.broker(VICTIM).topics.list_topics()) == ["t", "u"]
    await nodes.stop("n1" if nodes.leader() == "n1" else "n3")
    await nodes.broker(VICTIM).topics.create_topic("v", {"replication_factor": 2})


async def test_new_and_emptied_nodes_are_let_in(nodes: SmallNodes) -> None:
    await fill(nodes)
    nodes.disks["n4"], nodes.ports["n4"] = MemoryDisk(), free_ports(1)[0]
    await nodes.begin("n4")
    await eventually(lambda: nodes.broker("n4").node.ready().ready, 30)
    assert nodes.broker("n4").topics.list_topics() == ["t"]

    await nodes.stop(VICTIM)
    nodes.disks[VICTIM] = MemoryDisk()
    await nodes.begin(VICTIM)

    await eventually(lambda: nodes.broker(VICTIM).node.ready().ready, 30)
    me = cluster(nodes, VICTIM)._me
    await eventually(lambda: cluster(nodes, "n1").voters.get(NodeId(VICTIM)) == me.incarnation, 30)
    await nodes.broker(VICTIM).topics.create_topic("u", {"replication_factor": 3})


@pytest.mark.parametrize("which", ["newest", "all"])
async def test_a_node_starts_though_its_snapshots_are_damaged(
    nodes: SmallNodes, which: str
) -> None:
    await fill(nodes)
    await nodes.stop(VICTIM)
    disk = nodes.disks[VICTIM]
    snapshots = [path for path in disk.paths() if CLUSTER in path and path.endswith(".snapshot")]
    assert len(snapshots) == 2
    for path in snapshots[-1:] if which == "newest" else snapshots:
        flip(disk, path, random.Random(1))

    await nodes.begin(VICTIM)

    await whole_again(nodes, f"damage to {which}")
    assert nodes.broker(VICTIM).topics.list_topics() == ["t"]
