"""Retention and compaction wait for the archive: what is not archived stays, whatever is due."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator

import pytest

from delivery.entries.ops import Archived, RequireArchive, encode_ops
from goqueue.wire.batch import Record
from goqueue.wire.errors import OffsetOutOfRange, OtherArchive, UnknownTopic
from goqueue.wire.types import Offset
from log.disk.memory import MemoryDisk
from log.entry import EntryKind
from node.api.archive import PartitionArchive
from node.assembly import NodeAssembly
from node.partition.host import PartitionHost
from tests.unit.node.partition.compaction_scene import Scene
from tests.unit.node.queue.test_whole_node import publish
from tests.unit.node.storage.test_disk_troubles import leader_of, refused
from tests.unit.node.test_node import append, config, eventually, read, running
from tests.unit.node.three_nodes import three_nodes

HERE = "s3://bucket/archive"
CHECKS = {"storage.retentionCheck": "50ms"}
BRIEF = {"partitions": 1, "retention_ms": 50, "require_archive": True}


@pytest.fixture
async def node() -> AsyncIterator[NodeAssembly]:
    """A topic whose messages are all too old soon, and wait for their archive."""
    async with running(MemoryDisk(), config(**CHECKS)) as started:
        await started.broker.topics.create_topic("t", BRIEF)
        yield started


def led(node: NodeAssembly) -> PartitionHost:
    (host,) = node.broker.topics._replicas.led()
    return host


async def report(
    node: NodeAssembly, position: int, location: str = HERE, *, anew: bool = False
) -> PartitionArchive:
    positions = {0: Offset(position)}
    found = await node.broker.archives.archived("t", location, positions, topic_id=None, anew=anew)
    return found[0]


async def begins_at(node: NodeAssembly, offset: int) -> None:
    await eventually(lambda: led(node).state.log_start_offset >= offset)


async def stays(node: NodeAssembly, offset: int) -> None:
    """Retention has looked at what is long due, and the log begins there yet."""
    host = led(node)
    await eventually(lambda: host.log_time_ms() > host.state.time_ms + 200)
    await eventually(lambda: not host.retention.in_flight)
    await host.retention.run()
    assert host.state.log_start_offset == offset


async def test_messages_stay_until_they_are_archived_and_go_then(node: NodeAssembly) -> None:
    for value in ("a", "b", "c"):
        await append(node, value)
    await stays(node, 0)

    found = await report(node, 2)
    assert (found.location, found.position, found.required, found.lag) == (HERE, 2, True, 1)
    assert found.lag_ms >= 200
    await begins_at(node, 2)
    await stays(node, 2)
    await report(node, 3)
    await begins_at(node, 3)


async def test_a_batch_that_is_archived_in_part_stays_whole(node: NodeAssembly) -> None:
    await append(node, "a", "b", "c")
    await report(node, 2)

    await stays(node, 0)
    assert await read(node) == 3


async def test_a_topic_may_go_on_without_its_archive_by_its_setting(node: NodeAssembly) -> None:
    await append(node, "a")
    await stays(node, 0)

    await node.broker.topics.alter_topic("t", {"require_archive": False})
    await begins_at(node, 1)


async def test_the_setting_holds_from_when_the_partition_has_noted_it() -> None:
    async with running(MemoryDisk(), config(**CHECKS)) as node:
        await node.broker.topics.create_topic("t", {"partitions": 1, "retention_ms": -1})
        await append(node, "a")
        await node.broker.topics.alter_topic("t", {"require_archive": True})
        await eventually(lambda: led(node).state.queue.archive.required)

        await node.broker.topics.alter_topic("t", {"retention_ms": 1})
        await stays(node, 0)


async def test_the_size_of_a_partition_waits_too() -> None:
    async with running(MemoryDisk(), config(**CHECKS), segment_bytes=10_000) as node:
        settings = {"partitions": 1, "retention_bytes": 20_000, "require_archive": True}
        await node.broker.topics.create_topic("t", settings)
        for _ in range(10):
            await publish(node, Record(b"x" * 8000))
        await stays(node, 0)

        await report(node, 4)
        await begins_at(node, 1)
        assert led(node).state.log_start_offset <= 4


async def test_what_was_reported_survives_a_power_cut() -> None:
    disk = MemoryDisk()
    async with running(disk, config(**CHECKS)) as node:
        await node.broker.topics.create_topic("t", {**BRIEF, "retention_ms": -1})
        for value in ("a", "b", "c"):
            await append(node, value)
        await report(node, 2)
        after_cut = disk.crash(random.Random(1), keep=0.0)

    async with running(after_cut, config(**CHECKS)) as node:
        await eventually(lambda: bool(node.broker.topics._replicas.led()))
        await eventually(lambda: led(node).state.queue.archive.position == 2)
        await node.broker.topics.alter_topic("t", {"retention_ms": 1})
        await begins_at(node, 2)
        await stays(node, 2)


async def test_the_next_leader_knows_what_was_reported_to_the_former_one() -> None:
    async with three_nodes(**CHECKS) as nodes:
        settings = {"partitions": 1, "replication_factor": 3, "require_archive": True}
        await nodes.broker("n1").topics.create_topic("t", settings)
        await append(nodes.running["n1"], "a")
        await append(nodes.running["n1"], "b")
        follower = next(name for name in nodes.running if name != leader_of(nodes))
        await report(nodes.running[follower], 1)
        former = leader_of(nodes)
        assert former is not None

        await nodes.stop(former)
        await eventually(lambda: leader_of(nodes) in nodes.running)
        name = next(iter(nodes.running))

        async with asyncio.timeout(30):
            while True:  # until the next leader has applied what the former one did
                archive = (await nodes.broker(name).topics.topic("t")).partitions[0].archive
                assert archive is not None
                if archive.position:
                    break
        assert (archive.location, archive.position, archive.required) == (HERE, 1, True)
        assert (await report(nodes.running[name], 1)).position == 1


async def test_at_a_full_disk_publishes_are_refused_and_nothing_that_is_not_archived_goes() -> None:
    disk = MemoryDisk()
    async with running(disk, config(**CHECKS)) as node:
        await node.broker.topics.create_topic("t", {**BRIEF, "retention_bytes": 1})
        await append(node, "a")
        await append(node, "b")
        capacity, disk.capacity = disk.capacity, 0

        await refused(lambda: append(node, "refused"))
        await stays(node, 0)
        assert (await report(node, 2)).position == 2
        await begins_at(node, 2)
        disk.capacity = capacity


async def test_what_no_report_may_say_is_refused(node: NodeAssembly) -> None:
    await append(node, "a")
    await report(node, 1)

    with pytest.raises(OffsetOutOfRange):
        await report(node, 2)
    with pytest.raises(OtherArchive):
        await report(node, 1, "/elsewhere")
    with pytest.raises(UnknownTopic):
        await node.broker.archives.archived("t", HERE, {0: Offset(1)}, topic_id="1-9", anew=False)
    assert (await report(node, 0, "/elsewhere", anew=True)).position == 0


def offsets(scene: Scene) -> list[int]:
    """What a reader of the whole stream finds."""
    return [seen.offset for seen in scene.seen()]


async def test_compaction_leaves_alone_what_is_not_archived() -> None:
    scene = Scene(require_archive=True)
    for at in range(20):
        scene.publish(Record(b"%d" % at, b"k"))
    assert (await scene.compact()).outcome == "nothing"

    scene.apply(EntryKind.QUEUE, encode_ops([Archived(HERE, 12)]))
    assert (await scene.compact()).outcome == "done"
    assert offsets(scene) == [9, *range(10, 20)]
    assert (await scene.compact()).outcome == "nothing"

    scene.apply(EntryKind.QUEUE, encode_ops([Archived(HERE, 20)]))
    await scene.compact()
    assert offsets(scene) == [19]


async def test_null_values_that_are_not_archived_outlive_their_time() -> None:
    scene = Scene(delete_retention_ms=10)
    scene.publish(Record(b"v", b"k"))
    scene.publish(Record(None, b"k"))
    for _ in range(10):
        scene.publish(Record(b"v", b"other"))
    await scene.compact()
    assert offsets(scene)[0] == 1

    scene.apply(EntryKind.QUEUE, encode_ops([RequireArchive(True), Archived(HERE, 1)]))
    scene.now_ms += 1000
    await scene.compactor.run()
    assert offsets(scene)[0] == 1
    scene.apply(EntryKind.QUEUE, encode_ops([Archived(HERE, 2)]))
    await scene.compactor.run()
    assert offsets(scene)[0] > 1


async def test_metrics_tell_how_far_the_archive_is_of_topics_that_have_to_do_with_one() -> None:
    async with running(MemoryDisk(), config(**CHECKS)) as node:
        await node.broker.topics.create_topic("t", {"partitions": 1, "require_archive": True})
        await node.broker.topics.create_topic("none", {"partitions": 1})
        for value in ("a", "b", "c"):
            await append(node, value)
        await report(node, 1)
        found = await shown(node)

        place = '{partition="0",topic="t"}'
        assert f"goqueue_archive_position{place} 1.0" in found
        assert f"goqueue_archive_lag_messages{place} 2.0" in found
        assert f"goqueue_archive_required{place} 1.0" in found
        assert not [line for line in found if "archive" in line and 'topic="none"' in line]


async def shown(node: NodeAssembly) -> list[str]:
    """Lines of /metrics."""
    body, _type = await node.metrics.look()
    return body.decode().splitlines()
