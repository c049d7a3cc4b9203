"""Local snapshots that a disk has refused are taken again, though nothing has changed since."""

from __future__ import annotations

import errno
import os

import pytest

from goqueue.wire.types import PartitionId
from log.disk.memory import MemoryDisk
from log.snapshots.file import SUFFIX, snapshot_name
from node.assembly import NodeAssembly
from tests.unit.node.test_node import append, config, eventually, running


def newest(node: NodeAssembly, partition_id: PartitionId) -> int:
    """The last entry of which the newest stored snapshot tells."""
    log = node.broker.scrubs._scrub._store.partition_log(partition_id)
    return max(log.snapshots.indexes, default=0)


def snapshots_refused(disk: MemoryDisk) -> list[str]:
    """From now on nothing is written to snapshots; the files that it was tried with, each time."""
    tried: list[str] = []

    def fault(operation: str, path: str) -> OSError | None:
        if operation != "pwritev" or SUFFIX not in path:
            return None
        tried.append(path)
        return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    disk.fault = fault
    return tried


@pytest.mark.parametrize("kind", ["partition", "cluster"])
async def test_a_snapshot_that_a_full_disk_refused_is_taken_again_once_there_is_room(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("node.placement.maintenance.CLUSTER_SNAPSHOT_S", 0.05)
    disk = MemoryDisk()
    settings = config(**{"storage.snapshotInterval": "100ms", "defaults.topic.partitions": 1})
    async with running(disk, settings) as node:
        await node.broker.topics.create_topic("t", {})
        await append(node, "something")
        [host] = node.broker.topics._replicas.all()
        cluster = node.broker.topics._cluster.raft_group
        assert cluster is not None
        raft_group = cluster if kind == "cluster" else host.raft_group
        await eventually(lambda: newest(node, raft_group.id) == raft_group.applied_index)
        tried = snapshots_refused(disk)
        if kind == "cluster":
            await node.broker.topics.create_topic("other", {})
        else:
            await append(node, "the last that happens here")

        def tried_again() -> bool:
            return (
                sum(
                    f"/{raft_group.id}/{snapshot_name(raft_group.applied_index)}" in p
                    for p in tried
                )
                > 1
            )

        await eventually(tried_again)  # of the same state, while there is no room
        assert newest(node, raft_group.id) < raft_group.applied_index

        disk.fault = None

        await eventually(lambda: newest(node, raft_group.id) == raft_group.applied_index)
        await eventually(lambda: not node.maintenance._unstored)  # and then no more
