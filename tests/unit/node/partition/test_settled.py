"""What all groups have settled goes when it is asked for, with its space; nothing else does."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator

import pytest

from delivery.entries.ops import Sought, encode_ops
from delivery.group.state import GroupState
from goqueue.wire.batch import Record
from goqueue.wire.errors import Conflict, UnknownTopic
from goqueue.wire.types import Index, Offset
from log.disk.memory import MemoryDisk
from log.entry import EntryKind
from log.levels import NotFinished
from node.api.dead_letters import DeadFilter
from node.api.trims import PartitionTrim
from node.assembly import NodeAssembly
from node.partition import settled
from node.partition.host import PartitionHost
from node.queue.group_admin import group_ref
from tests.one_node import partition_of
from tests.unit.node.queue.test_whole_node import publish, receive, settle
from tests.unit.node.test_node import config, eventually, in_segments, running
from tests.unit.node.three_nodes import three_nodes

FINISHED = {"cluster.autoFinish": True}
"""The first trim finishes level 2, in a cluster of one."""


@pytest.fixture
async def disk() -> MemoryDisk:
    return MemoryDisk()


@pytest.fixture
async def node(disk: MemoryDisk) -> AsyncIterator[NodeAssembly]:
    async with running(disk, config(**FINISHED)) as started:
        await started.broker.topics.create_topic("t", {"partitions": 1, "retention_ms": -1})
        yield started


def led(node: NodeAssembly) -> PartitionHost:
    return partition_of(node.broker, "t", 0)


def group_of(node: NodeAssembly) -> GroupState:
    (group,) = led(node).state.queue.groups.values()
    return group


async def trim(node: NodeAssembly) -> PartitionTrim:
    return (await node.broker.trims.trim_settled("t"))[0]


async def values(node: NodeAssembly, **given: float) -> list[bytes]:
    return [message.value for message in await receive(node, limit=100, **given)]  # type: ignore[arg-type]


async def test_all_that_is_done_goes_with_its_files_and_the_rest_comes_as_before(
    node: NodeAssembly, disk: MemoryDisk
) -> None:
    await receive(node)
    for _ in range(5):
        await publish(node, *["x" * 1000] * 20)
    await settle(node, await receive(node, limit=100))
    await in_segments(node)
    before = led(node).log.size_bytes

    went = await trim(node)

    assert (went.messages, went.earliest, went.kept_for) == (100, 100, "")
    assert went.bytes > 100_000
    assert led(node).log.size_bytes < before - went.bytes + 1000
    assert led(node).log.first_index == led(node).state.log_start_index > 1
    assert await trim(node) == PartitionTrim(0, 0, 100)
    await publish(node, "new")
    assert await values(node) == [b"new"]


async def test_what_is_not_done_holds_its_file_until_it_is(node: NodeAssembly) -> None:
    await receive(node)
    await publish(node, *["done" * 100] * 10, "held", "last")
    await settle(node, await receive(node, limit=10))
    (held,) = await receive(node, limit=1)

    first = await trim(node)
    await in_segments(node)
    segments = len(led(node).log.segments())
    again = await trim(node)

    assert (first.kept_for, again.kept_for) == ("g", "g")
    assert (first.bytes, again) == (0, PartitionTrim(0, 0, first.earliest, "g"))
    assert first.earliest <= 10, "no message of its entry may go"
    assert len(led(node).log.segments()) == segments, "it does not begin one for nothing"
    assert await values(node) == [b"last"]
    await settle(node, [held])
    assert (await trim(node)).kept_for == "g"  # the other one is leased


async def test_dead_letters_delayed_and_redriven_messages_outlive_it(
    node: NodeAssembly, disk: MemoryDisk
) -> None:
    await receive(node)
    later = Record(b"later", deliver_at_ms=700)
    await publish(node, "again", "dead", later, *["done"] * 10)
    again, dead, *done = await receive(node, limit=100)
    await settle(node, [again, dead], "reject", reason="poison")
    await settle(node, done)
    assert (await trim(node)).messages == 13
    redriven = DeadFilter(ids=["t:0:0"])
    await node.broker.redriving.redrive("g", "t", redriven, rate=0, dry_run=False, force=False)
    await eventually(lambda: group_of(node).ready_count())
    await publish(node, "more")

    found: list[bytes] = []
    while len(found) < 3:
        messages = await receive(node, limit=100, wait_s=30)
        found += [message.value for message in messages]
        await settle(node, [message for message in messages if message.value == b"more"])
        await trim(node)

    assert sorted(found) == [b"again", b"later", b"more"]
    assert led(node).state.log_start_offset == 14
    page = await node.broker.letters.dead_letters("g", "t", DeadFilter(), after=None, limit=10)
    assert [letter.message.value for letter in page.messages] == [b"dead"]


async def test_no_group_that_takes_part_misses_anything(node: NodeAssembly) -> None:
    await publish(node, "one", "two")
    assert await trim(node) == PartitionTrim(0, 0, 0), "nobody knows what is needed"

    await settle(node, await receive(node))
    await receive(node, "slow", limit=1)
    assert await trim(node) == PartitionTrim(0, 0, 0, "slow")
    assert led(node).state.log_start_offset == 0


async def test_a_group_that_has_begun_in_another_partition_misses_nothing_in_this_one(
    node: NodeAssembly,
) -> None:
    await node.broker.topics.create_topic("two", {"partitions": 2, "retention_ms": -1})
    await publish(node, "first", topic="two")
    await settle(node, await receive(node, topics=["two"]))
    other = partition_of(node.broker, "two", 1)
    group = node.broker.topics._cluster.state.groups["g"]
    await node.broker.groups.put_group("h", {})
    begun = node.broker.topics._cluster.state.groups["h"]
    await other.queue.opened(group_ref(begun))
    assert set(partition_of(node.broker, "two", 0).state.queue.groups) == {group.id}

    went = await node.broker.trims.trim_settled("two")

    assert went[0] == PartitionTrim(0, 0, 0, "h")


async def test_what_a_group_gets_to_do_meanwhile_stays(
    node: NodeAssembly, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The trim is on its way as the group goes back: no replica obeys it."""
    await receive(node)
    await publish(node, "one", "two")
    await settle(node, await receive(node))
    group = group_of(node).id
    seen = settled.encode_trim
    seeks: list[Index] = []

    def encode_trim(*given: object, **more: object) -> bytes:
        if not seeks:
            body = encode_ops([Sought(group, 1)])
            propose = led(node).raft_group.propose
            seeks.append(propose(EntryKind.QUEUE, body, callback=lambda *_: None))
        return seen(*given, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(settled, "encode_trim", encode_trim)
    went = await trim(node)

    assert (went.earliest, went.kept_for) == (0, "g"), "no entry begins with the second one"
    assert seeks
    assert await values(node) == [b"two"]


async def test_a_crash_right_after_it_loses_nothing(disk: MemoryDisk) -> None:
    async with running(disk, config(**FINISHED)) as node:
        await node.broker.topics.create_topic("t", {"partitions": 1, "retention_ms": -1})
        await receive(node)
        await publish(node, "dead", *["done"] * 10)
        dead, *done = await receive(node, limit=100)
        await settle(node, [dead], "reject", reason="poison")
        await settle(node, done)
        assert (await trim(node)).bytes > 0
        await publish(node, "kept")
        after = disk.crash(random.Random(1), keep=0.0)

    async with running(after, config(**FINISHED)) as node:
        await eventually(lambda: "t" in node.broker.topics.list_topics())
        await node.broker.topics.ensure_topic("t")
        assert await values(node, wait_s=30) == [b"kept"]
        page = await node.broker.letters.dead_letters("g", "t", DeadFilter(), after=None, limit=10)
        assert [letter.message.value for letter in page.messages] == [b"dead"]
        assert led(node).state.log_start_offset == Offset(11)


async def test_it_is_refused_of_topics_that_keep_last_values_and_of_none(
    node: NodeAssembly,
) -> None:
    await node.broker.topics.create_topic("keys", {"partitions": 1, "cleanup": "compact,delete"})

    with pytest.raises(Conflict, match="last value of each key"):
        await node.broker.trims.trim_settled("keys")
    with pytest.raises(UnknownTopic):
        await node.broker.trims.trim_settled("nope")


async def test_what_waits_for_its_archive_stays(node: NodeAssembly) -> None:
    await node.broker.topics.alter_topic("t", {"require_archive": True})
    await receive(node)
    await publish(node, "done")
    await settle(node, await receive(node))

    assert await trim(node) == PartitionTrim(0, 0, 0)
    await node.broker.topics.alter_topic("t", {"require_archive": False})
    await eventually(lambda: not led(node).retention.archiving.is_required)
    assert (await trim(node)).messages == 1


async def test_every_replica_of_a_cluster_gives_back_the_same_once_level_2_is_finished() -> None:
    async with three_nodes() as nodes:
        first = nodes.running["n1"]
        settings = {"partitions": 1, "replication_factor": 3, "retention_ms": -1}
        await first.broker.topics.create_topic("t", settings)
        with pytest.raises(NotFinished):
            await first.broker.trims.trim_settled("t")
        await first.broker.upgrade.finish_level()
        await eventually(lambda: all(one.upgrade.version().level == 2 for one in nodes.brokers))
        await receive(first)
        await publish(first, *["x" * 1000] * 20)
        await settle(first, await receive(first, limit=100, wait_s=10))
        hosts = [partition_of(broker, "t", 0) for broker in nodes.brokers]
        follower = next(n for n in nodes.running.values() if not led(n).is_leader)

        went = await trim(follower)

        assert went.messages == 20
        assert went.bytes > 20_000
        start = max(host.state.log_start_index for host in hosts)
        await eventually(lambda: all(host.state.log_start_index == start for host in hosts))
        for node in nodes.running.values():
            await in_segments(node)
        for host in hosts:
            await eventually(lambda host=host: host.log.segments()[-1].first_index == start)  # type: ignore[misc]
