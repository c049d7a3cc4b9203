"""Three whole nodes: one that was away for too long copies its replica, and goes on from there."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from goqueue.wire.types import PartitionId
from log.config import StorageConfig
from log.store.directory import Store
from node.assembly import assemble
from node.partition.host import PartitionHost
from node.partition.retention import trimming as retention
from tests.unit.node.test_node import append, config, eventually
from tests.unit.node.three_nodes import NAMES, ThreeNodes

SMALL_SEGMENTS = StorageConfig(
    segment_bytes=64 << 10,
    checkpoint_bytes=64 << 10,
    watermark_percent=0,
    watermark_bytes=64 << 20,
)
TRIMS = {
    "storage.retentionCheck": "50ms",
    "storage.snapshotInterval": "100ms",
    "storage.snapshotEntries": "20",
    "storage.checkpointInterval": "50ms",
}


class SmallNodes(ThreeNodes):
    """Segments are small, and trimmed soon."""

    def __init__(self) -> None:
        super().__init__()
        self.stores: dict[str, Store] = {}

    async def start(
        self,
        name: str,
        seeds: Sequence[str] = NAMES,
        *,
        accept_damage: bool = False,
        set_aside: bool = False,
    ) -> None:
        ports = self.ports
        others = {n: f"127.0.0.1:{port}" for n, port in ports.items() if n in seeds and n != name}
        settings = config(
            **{
                "broker.nodeId": name,
                "broker.listeners.internal": f"127.0.0.1:{ports[name]}",
                "cluster.peers": ",".join(f"{n}={address}" for n, address in others.items()),
                "cluster.secret": "the secret of three nodes in one process",
                **TRIMS,
            }
        )
        store = self.stores[name] = Store.open(
            self.disks[name],
            "/data",
            SMALL_SEGMENTS,
            accept_damage=accept_damage,
            set_aside=set_aside,
        )
        failed: list[Exception] = []
        node = assemble(settings, store, on_failure=failed.append)
        await node.services.start()
        self.running[name] = node

    def transferred(self, name: str) -> int:
        """Bytes of replicas that this node has copied."""
        metrics = self.running[name].metrics
        return int(metrics.storage.transferred_bytes.labels("received").value)

    def host(self, name: str, partition_id: PartitionId) -> PartitionHost | None:
        return self.broker(name).topics._replicas.find(partition_id)


async def test_a_replica_that_was_away_while_all_it_needs_was_trimmed_comes_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(retention, "WAITED_FOR_BYTES", 0)
    nodes = SmallNodes()
    try:
        for name in NAMES:
            await nodes.start(name)
        await eventually(lambda: all(broker.node.ready().ready for broker in nodes.brokers), 30)
        settings = {"partitions": 1, "retention_bytes": 200_000, "replication_factor": 3}
        await nodes.broker("n1").topics.create_topic("t", settings)
        await append(nodes.running["n1"], "first")
        partition_id = next(g for g in nodes.stores["n1"].partition_ids() if g.topic.index)
        away = nodes.stores["n3"].partition_log(partition_id)
        await eventually(lambda: away.last_index > 2)
        last = away.last_index
        await nodes.stop("n3")

        def trimmed() -> bool:
            return all(
                nodes.stores[n].partition_log(partition_id).first_index > last + 1
                for n in ("n1", "n2")
            )

        for number in range(200):
            await append(nodes.running["n1"], f"{number}" * 10_000)
            if trimmed():
                break
        await eventually(trimmed)

        await nodes.start("n3")

        def caught_up() -> bool:
            host, leader = nodes.host("n3", partition_id), nodes.host("n1", partition_id)
            if host is None or leader is None:
                return False
            return host.applied_index == leader.applied_index

        await eventually(caught_up, 30)
        await append(nodes.running["n1"], "last")
        await eventually(caught_up, 30)
        mine, theirs = (
            nodes.stores["n3"].partition_log(partition_id),
            nodes.stores["n1"].partition_log(partition_id),
        )
        assert mine.first_index > last
        sealed = {s.first_index for s in theirs.segments() if s.sealed}
        shared = sealed & {s.first_index for s in mine.segments() if s.sealed}
        assert shared
        for first in shared:
            assert mine.disk_segments.hash(first) == theirs.disk_segments.hash(first)
    finally:
        for name in list(nodes.running):
            await nodes.stop(name)
