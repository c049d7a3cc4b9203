"""A whole node in this process, on a disk in memory: a cluster of one."""

from __future__ import annotations

import asyncio
import errno
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

import delivery.timeline.frames
from coordinator.commands.codec import Command, DeleteTopic, Result
from goqueue.wire.batch import Record, encode_batch
from goqueue.wire.errors import (
    BadRequest,
    DiskFull,
    GoQueueError,
    NoQuorum,
    NotFound,
    OutcomeUnknown,
    PayloadTooLarge,
    ProducerFenced,
    TopicExists,
    UnknownPartition,
    UnknownTopic,
)
from goqueue.wire.types import Offset
from log.config import StorageConfig
from log.disk.memory import MemoryDisk
from log.errors import WalDamaged
from log.store.directory import Store
from node.assembly import NodeAssembly, assemble
from node.config.file import load_config
from node.config.node import NodeConfig
from node.peers.forwarding import Forwarder

SMALL = {
    "broker.listeners.http": "127.0.0.1:0",
    "defaults.topic.partitions": 2,
    "storage.reservePercent": 0,
    "storage.snapshotInterval": "100ms",
}


FAR_MS = 1 << 50


def config(**more: object) -> NodeConfig:
    return load_config(env={}, overrides={**SMALL, **more})


@asynccontextmanager
async def running(
    disk: MemoryDisk,
    settings: NodeConfig | None = None,
    failures: list[Exception] | None = None,
    *,
    accept: bool = False,
    segment_bytes: int = 64 << 20,
    wait: bool = True,
) -> AsyncIterator[NodeAssembly]:
    """A node over the disk, ready unless that is not waited for; stopped in order at the end."""
    settings = settings or config()
    storage = StorageConfig(
        watermark_percent=0, watermark_bytes=64 << 20, segment_bytes=segment_bytes
    )
    store = Store.open(disk, "/data", storage, accept_damage=accept)
    failed: list[Exception] = [] if failures is None else failures
    node = assemble(settings, store, on_failure=failed.append)
    await node.services.start()
    try:
        await eventually(lambda: node.broker.node.ready().ready or not wait)
        yield node
    finally:
        await node.services.stop()


async def eventually(condition: Callable[[], bool], deadline_s: float = 30.0) -> None:
    async with asyncio.timeout(deadline_s):
        while not condition():  # noqa: ASYNC110 - any condition: there is no event to wait for
            await asyncio.sleep(0.005)


async def in_segments(node: NodeAssembly) -> None:
    """What was stored is there a moment after it was acknowledged."""
    await node.timed.flusher.spilled()


def batch(*values: str, key: bytes | None = None) -> bytes:
    return encode_batch([Record(value.encode(), key) for value in values])


async def append(
    node: NodeAssembly,
    *values: str,
    topic: str = "t",
    partition: int = 0,
    deadline_s: float = 30.0,
) -> Offset:
    done = await node.broker.records.append(topic, partition, batch(*values), deadline_s=deadline_s)
    return done.base_offset


async def read(node: NodeAssembly, offset: int = 0, wait_s: float = 0.0) -> int:
    found = await node.broker.records.read(
        "t", 0, Offset(offset), max_records=1000, max_bytes=1 << 20, wait_s=wait_s
    )
    return found.next_offset


async def test_what_is_published_is_read_back_after_a_power_cut() -> None:
    disk = MemoryDisk()
    async with running(disk) as node:
        view = await node.broker.topics.create_topic("t", {})
        assert len(view.partitions) == 2
        assert await append(node, "a", "b") == 0
        assert await append(node, "c") == 2
        after_cut = disk.crash(random.Random(1), keep=0.0)

    async with running(after_cut) as node:
        await eventually(lambda: node.broker.topics.list_topics() == ["t"])
        await node.broker.topics.ensure_topic("t")
        found = await node.broker.records.read(
            "t", 0, Offset(0), max_records=10, max_bytes=1 << 20, wait_s=5
        )
        assert found.next_offset == 3
        assert await append(node, "d") == 3


async def test_a_restart_from_snapshots_remembers_producers() -> None:
    disk = MemoryDisk()
    async with running(disk) as node:
        await node.broker.topics.create_topic("t", {})
        producer, epoch = await node.broker.records.init_producer(None)
        stamped = encode_batch(
            [Record(b"x", None)], producer_id=producer, producer_epoch=epoch, base_sequence=0
        )
        await node.broker.records.append("t", 0, stamped, deadline_s=30)
        await eventually(lambda: any(path.endswith(".snapshot") for path in disk.paths()))

    async with running(disk) as node:
        await eventually(lambda: node.broker.topics.list_topics() == ["t"])
        again = await node.broker.records.append("t", 0, stamped, deadline_s=30)
        assert (again.duplicate, again.base_offset) == (True, 0)
        assert await node.broker.records.init_producer(None) == (producer + 1, 0)


async def test_damage_stops_a_lone_node_until_it_is_told_to_accept_the_loss() -> None:
    disk = MemoryDisk()
    async with running(disk, config(**{"storage.checkpointInterval": "50ms"})) as node:
        await node.broker.topics.create_topic("t", {})
        await append(node, "a", "b")
        await asyncio.sleep(0.5)  # segments are synced and a checkpoint says so
    for path in disk.paths():
        if path.startswith("/data/wal/") and len(content := disk.content(path)) > 4096:
            end = len(bytes(content).rstrip(b"\0"))
            content[end // 2] ^= 1

    with pytest.raises(WalDamaged):
        Store.open(disk, "/data", StorageConfig())
    async with running(disk, config(**{"storage.acceptLoss": True}), accept=True) as node:
        await eventually(lambda: node.broker.topics.list_topics() == ["t"])
        assert await read(node) == 2
        assert await append(node, "c") == 2
    async with running(disk) as node:
        await eventually(lambda: node.broker.topics.list_topics() == ["t"])
        assert await append(node, "d") == 3


async def test_topics_are_created_altered_and_deleted() -> None:
    async with running(MemoryDisk()) as node:
        broker = node.broker
        created = await broker.topics.create_topic("t", {"retention_ms": 5000, "partitions": 3})
        assert (created.config["retention_ms"], len(created.partitions)) == (5000, 3)
        assert created.config["replication_factor"] == 1
        with pytest.raises(TopicExists):
            await broker.topics.create_topic("t", {})
        altered = await broker.topics.alter_topic("t", {"retention_ms": 6000})
        assert altered.config["retention_ms"] == 6000
        with pytest.raises(BadRequest):
            await broker.topics.alter_topic("t", {"partitions": 9})
        with pytest.raises(BadRequest):
            await broker.topics.create_topic("../../evil", {})
        with pytest.raises(BadRequest):
            await broker.topics.create_topic("u", {"durability": "maybe"})
        await broker.topics.delete_topic("t")
        with pytest.raises(UnknownTopic):
            await broker.topics.topic("t")
        with pytest.raises(UnknownTopic):
            await broker.topics.delete_topic("t")


async def test_two_calls_that_create_the_same_topic_on_publish_agree() -> None:
    settings = config(**{"broker.autoCreateTopics": True})
    async with running(MemoryDisk(), settings) as node:
        await asyncio.gather(*(node.broker.topics.ensure_topic("t") for _ in range(5)))

        assert node.broker.topics.list_topics() == ["t"]


async def test_a_topic_that_is_deleted_as_it_is_created_is_not_called_unknown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was created: 404 would say that nothing has happened."""
    async with running(MemoryDisk()) as node:
        cluster = node.broker.topics._cluster
        command = cluster.command

        async def and_deleted(asked: Command, deadline_s: float) -> Result:
            result = await command(asked, deadline_s)
            await command(DeleteTopic("t", ""), deadline_s)
            return result

        monkeypatch.setattr(cluster, "command", and_deleted)
        monkeypatch.setattr("node.broker.topics.LED_DEADLINE_S", 0.1)

        with pytest.raises(OutcomeUnknown) as caught:
            await node.broker.topics.create_topic("t", {})

        assert caught.value.outcome == "unknown"


async def test_a_deleted_topics_files_go_and_its_successor_starts_empty() -> None:
    disk = MemoryDisk()
    async with running(disk) as node:
        first = await node.broker.topics.create_topic("t", {})
        await append(node, "old")
        await node.broker.topics.delete_topic("t")
        second = await node.broker.topics.create_topic("t", {})

        assert second.id != first.id
        assert await append(node, "new") == 0
        await eventually(lambda: not any(f"/{first.id}-" in path for path in disk.paths()))


async def test_a_long_poll_is_woken_by_an_append() -> None:
    async with running(MemoryDisk()) as node:
        await node.broker.topics.create_topic("t", {})
        waiting = asyncio.create_task(read(node, 0, wait_s=10))
        await asyncio.sleep(0.02)

        await append(node, "news")

        assert await asyncio.wait_for(waiting, 30) == 1
        assert await read(node, 1, wait_s=0.05) == 1


async def test_a_poll_that_ends_in_the_past_does_not_wait() -> None:
    async with running(MemoryDisk()) as node:
        await node.broker.topics.create_topic("t", {})
        async with asyncio.timeout(30):
            found = await node.broker.records.read(
                "t", 0, Offset(0), max_records=1, max_bytes=1, wait_s=60, to_time_ms=1000
            )
        assert found.batches == []


async def test_bad_requests_are_refused_by_name() -> None:
    async with running(MemoryDisk()) as node:
        broker = node.broker
        await broker.topics.create_topic("t", {"max_message_bytes": 100})
        refusals: list[tuple[type[GoQueueError], bytes, str, int]] = [
            (UnknownTopic, batch("x"), "none", 0),
            (UnknownPartition, batch("x"), "t", 7),
            (PayloadTooLarge, batch("x" * 200), "t", 0),
            (BadRequest, b"junk", "t", 0),
        ]
        for error, body, topic, partition in refusals:
            with pytest.raises(error) as caught:
                await broker.records.append(topic, partition, body, deadline_s=2)
            assert caught.value.outcome == "none"
        with pytest.raises(NotFound):
            await broker.traces.message_trace("t", 0, Offset(0))
        with pytest.raises(NotFound):
            await broker.records.check_producer(99, 0)


async def test_a_fenced_producer_is_told_so() -> None:
    async with running(MemoryDisk()) as node:
        broker = node.broker
        producer, first = await broker.records.init_producer("billing")
        again, second = await broker.records.init_producer("billing")

        assert (again, second) == (producer, first + 1)
        await broker.records.check_producer(producer, second)
        with pytest.raises(ProducerFenced):
            await broker.records.check_producer(producer, first)


async def test_a_read_tells_which_topic_of_the_name_it_is_of() -> None:
    async with running(MemoryDisk()) as node:
        broker = node.broker
        ids = []
        for _ in range(2):
            ids.append((await broker.topics.create_topic("orders", {})).id)
            found = await broker.records.read(
                "orders", 0, Offset(0), max_records=1, max_bytes=1, wait_s=0
            )
            assert str(found.topic_id) == ids[-1]
            await broker.topics.delete_topic("orders")

    assert ids[0] != ids[1]


async def test_a_full_disk_refuses_publishes_and_serves_reads() -> None:
    disk = MemoryDisk()
    async with running(disk) as node:
        await node.broker.topics.create_topic("t", {})
        await append(node, "before")
        disk.capacity = 0

        async def refused() -> bool:
            try:
                await append(node, "x")
            except DiskFull:
                return True
            return False

        async with asyncio.timeout(30):
            while not await refused():  # noqa: ASYNC110 - the watch looks once a second
                await asyncio.sleep(0.05)
        assert await read(node) >= 1
        assert any("disk space" in problem for problem in node.broker.node.cluster_view().problems)


async def test_the_first_failed_sync_fails_the_node() -> None:
    disk, failures = MemoryDisk(), list[Exception]()
    async with running(disk, failures=failures) as node:
        await node.broker.topics.create_topic("t", {})
        disk.fault = lambda operation, _path: (
            OSError(errno.EIO, "no") if operation == "fdatasync" else None
        )

        with pytest.raises(GoQueueError):
            await node.broker.records.append("t", 0, batch("lost"), deadline_s=0.5)

        assert len(failures) == 1
        assert "storage failed" in (node.broker.node.alive() or "")
        assert not node.broker.node.ready().ready


async def test_a_restart_is_not_taken_for_the_time_of_replication(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(delivery.timeline.frames, "NOTABLE_MS", 0)
    disk = MemoryDisk()
    async with running(disk) as only:
        await only.broker.topics.create_topic("t", {})
        await append(only, "a")
        first = (await only.broker.traces.message_trace("t", 0, Offset(0))).events[1]

    async with running(disk) as only:
        await eventually(lambda: only.broker.topics.list_topics() == ["t"])
        await append(only, "b")
        later = (await only.broker.traces.message_trace("t", 0, Offset(0))).events[1]

    assert first.attributes["time"] == "not_recorded"
    assert later.attributes["time"] == "at_latest"


async def test_the_next_entry_says_how_long_the_one_before_took_to_be_committed() -> None:
    async with running(MemoryDisk()) as only:
        await only.broker.topics.create_topic("t", {"partitions": 1})
        for value in "ab":
            await append(only, value)
        (host,) = only.broker.topics._replicas.led()
        first, second = map(host.reader.entry_at, map(Offset, (0, 1)))

    assert first is not None and second is not None
    assert second.index == first.index + 1
    assert second.lag_ms is not None
    assert second.lag_ms < 60_000


async def test_without_a_leader_nothing_is_told_of_what_is_not_here_yet(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It may be stored all the same: a replica that was just added holds nothing."""

    async def nobody(*_args: object, **_named: object) -> None:
        raise NoQuorum

    async with running(MemoryDisk()) as node:
        broker = node.broker
        await broker.topics.create_topic("t", {"partitions": 1})
        await append(node, "a")
        assert not (await broker.traces.message_trace("t", 0, Offset(0))).stale
        monkeypatch.setattr(Forwarder, "call", nobody)

        trace = await broker.traces.message_trace("t", 0, Offset(0))
        assert trace.events
        assert trace.stale
        with pytest.raises(NoQuorum):
            await broker.traces.message_trace("t", 0, Offset(1))
        with pytest.raises(NoQuorum):
            await broker.records.offset_at("t", 0, FAR_MS)


async def test_views_tell_what_there_is() -> None:
    async with running(MemoryDisk()) as node:
        await node.broker.topics.create_topic("t", {})
        await append(node, "a", "b")
        view = node.broker.node.cluster_view()

        assert (view.controller, view.has_quorum, view.problems) == ("node-1", True, ())
        assert [(n.node, n.status, n.leaders, n.replicas) for n in view.nodes] == [
            ("node-1", "alive", 2, 2)
        ]
        assert node.broker.node.stats().topics["t"].messages == 2
        assert await node.broker.records.end_offsets("t") == {0: (0, 2), 1: (0, 0)}
        trace = await node.broker.traces.message_trace("t", 0, Offset(1))
        assert [event.type for event in trace.events] == ["PUBLISHED", "REPLICATED", "RETAINED"]
        assert trace.events[1].attributes["nodes"] == ["node-1"]
        assert "expires_ms" in trace.events[2].attributes


async def test_age_takes_nothing_of_a_topic_that_is_compacted_only() -> None:
    async with running(MemoryDisk()) as node:
        for cleanup in ("compact", "compact,delete"):
            topic = cleanup.replace(",", "-")
            await node.broker.topics.create_topic(topic, {"partitions": 1, "cleanup": cleanup})
            keyed = encode_batch([Record(b"v", key=b"k")])
            await node.broker.records.append(topic, 0, keyed, deadline_s=30)

        kept = (await node.broker.traces.message_trace("compact", 0, Offset(0))).events[-1]
        both = (await node.broker.traces.message_trace("compact-delete", 0, Offset(0))).events[-1]

        assert kept.attributes == {"expires": "when_superseded"}
        assert "expires_ms" in both.attributes
