"""Ready means that requests don't wait for what the disk held: the first is served as later ones.

What is counted is entries that are applied again, not time: the loop applies them in slices, and a
request waits for those of all partitions.
"""

from __future__ import annotations

import pytest

from log.config import StorageConfig
from log.disk.memory import MemoryDisk
from log.entry import Entry
from log.store.directory import Store
from node.assembly import NodeAssembly, assemble
from node.partition.host import PartitionHost
from tests.unit.node.test_node import append, config, eventually, running

ENTRIES = 400
WITHOUT_SNAPSHOTS = {"storage.snapshotInterval": "1h", "defaults.topic.partitions": 3}


async def filled() -> MemoryDisk:
    """The disk of a node that was killed, with a log to apply again."""
    disk = MemoryDisk()
    async with running(disk, config(**WITHOUT_SNAPSHOTS)) as node:
        await node.broker.topics.create_topic("t", {})
        for partition in range(3):
            for _ in range(ENTRIES):
                await append(node, "x", partition=partition)
    return disk


async def test_nothing_of_what_the_disk_held_is_applied_after_a_node_says_that_it_is_ready(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Given a log that takes many turns of the loop; when the node starts; then all of it is
    applied before the first answer that it is ready, and the first look tells the true ends."""
    disk = await filled()
    apply, before, after = PartitionHost.apply, list[Entry](), list[Entry]()
    node: NodeAssembly | None = None

    def counted(host: PartitionHost, entry: Entry) -> object:
        is_found = entry.index <= host._found_index
        is_ready = node is not None and node.broker.node.ready().ready
        if is_found:
            (after if is_ready else before).append(entry)
        return apply(host, entry)

    monkeypatch.setattr(PartitionHost, "apply", counted)
    store = Store.open(disk, "/data", StorageConfig(watermark_percent=0, watermark_bytes=64 << 20))
    node = assemble(config(**WITHOUT_SNAPSHOTS), store, on_failure=lambda _error: None)
    object.__setattr__(node.raft.config, "apply_slice_s", 0.0)  # the loop turns after each entry
    await node.services.start()
    try:
        await eventually(lambda: node.broker.node.ready().ready, 30)
        view = await node.broker.topics.topic("t")
    finally:
        await node.services.stop()

    assert len(before) >= 3 * ENTRIES
    assert not after, f"{len(after)} entries were applied while requests were let in"
    assert len(before) >= 3 * ENTRIES
    assert [(one.next, one.stale) for one in view.partitions] == [(ENTRIES, False)] * 3


async def test_a_node_whose_partitions_nobody_leads_does_not_wait_for_them_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The end of a log that no majority has confirmed can't be applied: others may be away for
    long, and what is here is served."""
    async with running(MemoryDisk(), config()) as node:
        await node.broker.topics.create_topic("t", {"partitions": 1})
        await append(node, "x")
        (host,) = node.broker.topics._replicas.all()
        monkeypatch.setattr(PartitionHost, "is_replaying", True)
        assert node.broker.topics._replicas.not_caught_up

        monkeypatch.setattr("raft.group.RaftGroup.leader", None)
        host._leaderless_s = 0.0
        monkeypatch.setattr("node.partition.host.ELECTION_S", 1e12)
        assert node.broker.topics._replicas.not_caught_up, "an election may be on its way"
        monkeypatch.setattr("node.partition.host.ELECTION_S", 0.0)
        assert node.broker.topics._replicas.not_caught_up is None
        monkeypatch.undo()
