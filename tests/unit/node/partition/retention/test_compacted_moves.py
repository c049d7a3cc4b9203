"""Compacted partitions of three nodes: one moves to a node which has to copy it whole, as the log
begins later; and one that a voter has not the room for.
"""

from __future__ import annotations

import asyncio

import pytest

from goqueue.wire.batch import Record, RecordBatch
from goqueue.wire.types import NodeId, Offset
from node.partition.host import PartitionHost
from tests.unit.node.placement.test_moves import move, only, settled, small_nodes, topic
from tests.unit.node.queue.test_whole_node import publish
from tests.unit.node.storage.copying.test_transfer_nodes import SMALL_SEGMENTS
from tests.unit.node.test_node import eventually
from tests.unit.node.three_nodes import NAMES

Found = dict[bytes | None, tuple[int, int | None]]


def latest(host: PartitionHost) -> Found:
    """Of each key what a reader from the start is given last: offset, bytes of value."""
    found: Found = {}
    at = Offset(0)
    while at < host.state.next_offset:
        page = host.reader.read(at, max_records=7, max_bytes=1 << 20)
        for stored in page.batches:
            batch = RecordBatch.parse(stored.batch)
            rows = zip(batch.keys(), batch.values_or_nulls(), strict=True)
            for offset, (key, value) in enumerate(rows, stored.base_offset):
                found[key] = offset, None if value is None else len(value)
        at = page.next_offset
    return found


async def test_a_replica_that_is_copied_after_compaction_reads_and_compacts_as_the_one_before() -> (
    None
):
    async with small_nodes() as nodes:
        settings = {"partitions": 1, "replication_factor": 1, "cleanup": "compact"}
        await nodes.broker("n1").topics.create_topic("t", settings)
        (holder,) = topic(nodes).partitions[0].nodes
        running = nodes.running[holder]
        for key in ("a", "b"):
            await publish(running, Record(b"old", key.encode()))
        await publish(running, Record(None, b"a"))
        await publish(running, Record(b"newer", b"b"))
        for number in range(30):
            await publish(running, Record(b"x" * 10_000, b"k%d" % (number % 5)))
        before = only(nodes, holder)
        await eventually(lambda: before.state.queue.compacted_set.runs > 0)
        rows = latest(before)
        assert (rows[b"a"], rows[b"b"]) == ((2, None), (3, 5))
        await eventually(lambda: before.log.first_index > 4)

        (target, *_) = [name for name in NAMES if name != holder]
        await move(nodes, [target])
        await settled(nodes)

        after = only(nodes, target)
        assert nodes.transferred(target) > 0
        assert latest(after) == rows
        runs = after.state.queue.compacted_set.runs
        for number in range(30):
            await publish(nodes.running[target], Record(b"y" * 10_000, b"k%d" % (number % 5)))
        await eventually(lambda: after.state.queue.compacted_set.runs > runs)
        found = latest(after)
        assert (found[b"a"], found[b"b"]) == (rows[b"a"], rows[b"b"])
        assert all(found[b"k%d" % number] > rows[b"k%d" % number] for number in range(5))


async def test_a_leader_compacts_only_once_all_its_voters_have_the_room_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with small_nodes() as nodes:
        settings = {"partitions": 1, "replication_factor": 3, "cleanup": "compact"}
        await nodes.broker("n1").topics.create_topic("t", settings)
        await eventually(
            lambda: any(node.broker.topics._replicas.led() for node in nodes.running.values())
        )
        [leader] = [name for name in NAMES if nodes.broker(name).topics._replicas.led()]
        host = only(nodes, leader)
        follower = next(name for name in NAMES if name != leader)
        disk = nodes.disks[follower]
        free, capacity = disk.space("/data")
        little = SMALL_SEGMENTS.watermark_bytes + 7, capacity
        monkeypatch.setattr(disk, "space", lambda _path: little)
        told = nodes.broker(leader).topics._cluster.hellos
        await eventually(lambda: told[NodeId(follower)].get("room_bytes") == 7)
        for number in range(30):
            await publish(nodes.running[leader], Record(b"x" * 10_000, b"k%d" % (number % 5)))
        outcome = ""
        async with asyncio.timeout(30):
            while not outcome.startswith("it takes"):  # what is sealed is not on all voters yet
                outcome = (await host.compactor.run(force=True)).outcome
                await asyncio.sleep(0.01)

        assert outcome.endswith(f"{follower} has room for 7")
        assert host.state.queue.compacted_set.runs == 0
        assert not host.state.queue.compacted_set.staged, "nothing was appended"
        monkeypatch.setattr(disk, "space", lambda _path: (free, capacity))
        await eventually(lambda: host.state.queue.compacted_set.runs > 0)
