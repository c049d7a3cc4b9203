"""What outlives the log before it: delayed messages and dead letters, carried on by the leader."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence

import pytest

from delivery.entries.ops import DropGroup, encode_ops
from delivery.entries.records import encode_trim
from goqueue.wire.batch import Record
from goqueue.wire.types import Index, Offset
from log.disk.memory import MemoryDisk
from log.entry import EntryKind
from log.errors import EntryDamaged
from node.api.dead_letters import DeadFilter
from node.assembly import NodeAssembly
from node.partition.host import PartitionHost
from node.partition.reading.message_entry_index import IndexedEntries
from node.partition.retention import trimming as retention
from tests.unit.node.queue.test_whole_node import publish, receive, settle
from tests.unit.node.test_node import config, eventually, running

KEPT_MS = 300
CHECKS = {"storage.retentionCheck": "50ms"}


@pytest.fixture
async def node() -> AsyncIterator[NodeAssembly]:
    async with running(MemoryDisk(), config(**CHECKS)) as started:
        await started.broker.topics.create_topic("t", {"partitions": 1, "retention_ms": KEPT_MS})
        yield started


def led(node: NodeAssembly) -> PartitionHost:
    (host,) = node.broker.topics._replicas.led()
    return host


async def trimmed(node: NodeAssembly, offset: int) -> None:
    """Until the log begins at the offset."""
    await eventually(lambda: led(node).state.log_start_offset >= offset)


async def test_a_delayed_message_outlives_retention_and_comes_whole_and_in_time(
    node: NodeAssembly,
) -> None:
    await receive(node)
    later = Record(b"later", b"k", (("h", b"x"),), lane=1, message_id="id", deliver_at_ms=1500)
    await publish(node, "gone", later, "gone too")
    await trimmed(node, 3)

    assert await receive(node) == []
    (view,) = (await node.broker.delays.delayed("t", limit=10, skip=0))[0]
    assert (view.offset, view.state, view.key, view.message_id) == (1, "pending", b"k", "id")
    (found,) = await receive(node, wait_s=30)

    assert (found.value, found.key, found.headers, found.lane) == (
        b"later",
        b"k",
        (("h", b"x"),),
        1,
    )
    assert (found.offset, found.message_id, found.attempt) == (1, "id", 1)
    assert found.deliver_at_ms is not None
    assert found.deliver_at_ms - found.time_ms == 1500
    await settle(node, [found])
    trace = await node.broker.traces.message_trace("t", 0, Offset(1))
    assert [event.type for event in trace.events] == [
        "PUBLISHED",
        "DELAYED",
        "REPLICATED",
        "KEPT",
        "DUE",
        "DELIVERED",
        "ACKNOWLEDGED",
    ]


async def test_a_message_that_outlived_the_log_is_not_stored_again_under_its_id(
    node: NodeAssembly,
) -> None:
    later = Record(b"later", message_id="id", deliver_at_ms=60_000)
    await publish(node, "gone", later, "gone too")
    await trimmed(node, 3)

    assert await publish(node, later) == 1
    assert led(node).end_offset == 3


async def test_a_message_that_came_late_and_always_fails_falls_though_nothing_new_is_published(
    node: NodeAssembly,
) -> None:
    await node.broker.groups.put_group("g", {"max_attempts": 0, "backoff_ms": 20})
    await receive(node)
    await publish(node, Record(b"later", deliver_at_ms=2500), "gone")
    await trimmed(node, 2)
    await settle(node, await receive(node, wait_s=30), "nack")

    async def fails_for_ever() -> None:
        while led(node).state.queue.reappended:
            await settle(node, await receive(node, wait_s=0.1), "nack")

    async with asyncio.timeout(30):
        await fails_for_ever()
    assert await receive(node) == []


async def test_dead_letters_outlive_retention_many_times_over_and_a_restart() -> None:
    disk = MemoryDisk()
    async with running(disk, config(**CHECKS)) as node:
        await node.broker.topics.create_topic("t", {"partitions": 1, "retention_ms": KEPT_MS})
        await publish(node, "dead", "done", "dead too")
        first, done, second = await receive(node)
        await settle(node, [first, second], "reject", reason="poison")
        await settle(node, [done])
        for offset in (3, 4, 5):
            await publish(node, "more")
            await trimmed(node, offset)
        after_cut = disk.crash(random.Random(1), keep=0.0)

    async with running(after_cut, config(**CHECKS)) as node:
        await eventually(lambda: "t" in node.broker.topics.list_topics())
        await node.broker.topics.ensure_topic("t")
        page = await node.broker.letters.dead_letters("g", "t", DeadFilter(), after=None, limit=10)
        assert [(d.message.offset, d.message.value) for d in page.messages] == [
            (0, b"dead"),
            (2, b"dead too"),
        ]
        await node.broker.topics.alter_topic("t", {"retention_ms": -1})
        await node.broker.redriving.redrive(
            "g", "t", DeadFilter(), rate=0, dry_run=False, force=False
        )
        found: set[bytes] = set()
        while not {b"dead", b"dead too"} <= found:
            found |= {message.value for message in await receive(node, wait_s=30)}


async def test_what_must_be_carried_is_split_into_entries_of_bounded_size(
    node: NodeAssembly, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "CARRIED_BYTES", 10_000)
    for _ in range(10):
        await publish(node, *[Record(b"x" * 1000, deliver_at_ms=60_000)] * 4)

    await trimmed(node, 40)

    host = led(node)
    entries = host.log.entries(host.state.log_start_index, max_bytes=1 << 24, max_count=1000)
    carriers = [entry for entry in entries if entry.kind == EntryKind.CARRIED]
    assert len(carriers) >= 4
    assert max(len(entry.body) for entry in carriers) < 10_000 + 5_000
    assert sorted(host.state.queue.reappended) == list(range(40))


async def test_nothing_is_trimmed_while_what_must_be_carried_cannot_be_read(
    node: NodeAssembly, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = led(node)
    monkeypatch.setattr(host.retention, "_find", _damaged)
    await publish(node, "gone", Record(b"later", deliver_at_ms=60_000))
    await eventually(lambda: host.log_time_ms() > host.state.time_ms + 2 * KEPT_MS)
    assert host.state.log_start_offset == 0

    monkeypatch.undo()

    await trimmed(node, 2)
    assert sorted(host.state.queue.reappended) == [1]


def _damaged(_offset: Offset) -> None:
    raise ValueError("can't be read")


async def test_leases_of_messages_that_fell_to_retention_are_over(node: NodeAssembly) -> None:
    await publish(node, "falls")
    found = await receive(node, visibility_ms=60_000)
    await trimmed(node, 1)

    (end,) = await settle(node, found)
    (stats,) = await node.broker.figures.queue_stats("t")
    await publish(node, "next")

    assert getattr(end, "code", "") == "not_in_flight"
    assert (stats.groups["g"].fallen, stats.groups["g"].committed_offset) == (1, 1)
    assert [m.value for m in await receive(node, wait_s=30)] == [b"next"]


async def test_damage_that_retention_meets_is_told_and_leaves_other_partitions_trimmed(
    node: NodeAssembly, monkeypatch: pytest.MonkeyPatch
) -> None:
    damaged = led(node)
    monkeypatch.setattr(damaged.retention, "_due", unreadable)
    await publish(node, "kept as long as its log can not be searched")
    await node.broker.topics.create_topic("u", {"partitions": 1, "retention_ms": KEPT_MS})
    await eventually(lambda: len(node.broker.topics._replicas.led()) == 2)
    (other,) = (host for host in node.broker.topics._replicas.led() if host is not damaged)
    await publish(node, "goes", topic="u")

    await eventually(lambda: other.state.log_start_offset == 1)
    assert damaged.state.log_start_offset == 0
    assert not damaged.retention.in_flight


def unreadable(_now_ms: int) -> None:
    raise EntryDamaged("t", 1, 1, "a bit has flipped")


@pytest.fixture
async def untrimmed() -> AsyncIterator[NodeAssembly]:
    """A node whose topic is trimmed by hand."""
    async with running(MemoryDisk()) as started:
        await started.broker.topics.create_topic("t", {"partitions": 1, "retention_ms": -1})
        yield started


async def trim(host: PartitionHost, index: int, offset: int) -> None:
    """As its retention does."""
    found = Index(index), Offset(offset)
    assert await host.retention.carry(*found)
    assert await host.retention.propose(EntryKind.TRIM, encode_trim(*found))
    assert (host.state.log_start_index, host.state.log_start_offset) == found


async def test_what_is_carried_and_needed_no_more_keeps_its_whole_story(
    untrimmed: NodeAssembly, monkeypatch: pytest.MonkeyPatch
) -> None:
    host, node = led(untrimmed), untrimmed
    await receive(node)
    await publish(node, "gone", Record(b"later", deliver_at_ms=2500), "gone too")
    await settle(node, await receive(node))
    stories = host.retention._stories
    assert stories is not None

    async def told_early(offsets: Sequence[Offset]) -> bytes:
        told = await stories(offsets)
        found = await receive(node, wait_s=30)
        await settle(node, found, "nack", delay_ms=0)
        await settle(node, await receive(node, wait_s=30))
        return told

    monkeypatch.setattr(host.retention, "_stories", told_early)
    await trim(host, host.applied_index + 1, 3)
    monkeypatch.undo()
    carrier = host.state.queue.reappended[1]
    assert host.state.queue.needed_below(3) == []

    await trim(host, carrier, 3)

    trace = await node.broker.traces.message_trace("t", 0, Offset(1))
    assert [event.type for event in trace.events] == [
        *("PUBLISHED", "DELAYED", "REPLICATED", "DUE", "DELIVERED", "NACKED"),
        *("DELIVERED", "ACKNOWLEDGED", "KEPT"),
    ]
    assert trace.exact


@pytest.mark.parametrize("has_group", [False, True], ids=["no group", "a group that is dropped"])
async def test_a_delayed_message_takes_its_whole_story_along_again_and_again(
    untrimmed: NodeAssembly, has_group: bool
) -> None:
    host, node = led(untrimmed), untrimmed
    await publish(node, "gone", Record(b"later", deliver_at_ms=60_000), "gone too")
    told = ["PUBLISHED", "DELAYED", "REPLICATED"]
    if has_group:
        await receive(node)
        await node.broker.positions.seek("g", "t", 0, offset=3, time_ms=None)
        (group,) = host.state.queue.groups
        assert await host.retention.propose(EntryKind.QUEUE, encode_ops([DropGroup(group)]))
        told.append("SKIPPED")
    told.append("KEPT")

    found = []
    for offset in (3, 4, 5):
        await trim(host, host.applied_index + 1, offset)
        found.append(await node.broker.traces.message_trace("t", 0, Offset(1)))
        await publish(node, "more")

    assert [[event.type for event in trace.events] for trace in found] == [told] * 3
    assert found[0].events == found[1].events == found[2].events


async def test_a_look_up_that_a_trim_overtakes_is_of_what_is_carried(
    untrimmed: NodeAssembly, monkeypatch: pytest.MonkeyPatch
) -> None:
    host, node = led(untrimmed), untrimmed
    await publish(node, "gone", Record(b"later", deliver_at_ms=60_000), "gone too")
    await publish(node, "gone too")
    find = host.message_entries.find

    async def overtaken(offset: Offset, since: Index, deadline_s: float) -> IndexedEntries:
        found = await find(offset, since, deadline_s)
        monkeypatch.undo()
        await trim(host, host.applied_index + 1, 4)
        return found

    monkeypatch.setattr(host.message_entries, "find", overtaken)
    trace = await node.broker.traces.message_trace("t", 0, Offset(1))

    assert [event.type for event in trace.events][-1] == "KEPT"
    assert trace.exact
