"""Groups, schedules and redrives of a whole node in this process, asked as its front asks."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator

import pytest

from coordinator.cluster.state import ClusterState
from coordinator.errors import BadConfig, UnknownRedrive, UnknownSchedule
from goqueue.wire.batch import Record, RecordBatch, encode_batch
from goqueue.wire.errors import BadName, BadRequest, NotFound, UnknownGroup, UnknownTopic
from goqueue.wire.types import Offset
from log.disk.memory import MemoryDisk
from node.api.claims import Claim
from node.api.dead_letters import DeadFilter
from node.api.queue import SettleRequest
from node.assembly import NodeAssembly
from tests.unit.node.test_node import config, eventually, running

DEFAULTS = {
    "defaults.delivery.visibilityTimeout": "7s",
    "defaults.delivery.maxRetries": 9,
    "defaults.delay.maxDelay": "1h",
    "defaults.priority.lanes": 3,
}


@pytest.fixture
async def node() -> AsyncIterator[NodeAssembly]:
    async with running(MemoryDisk()) as started:
        await started.broker.topics.create_topic("t", {"partitions": 2})
        yield started


async def die(node: NodeAssembly, *values: str, partition: int = 0, group: str = "g") -> None:
    """Messages that are published, received and rejected."""
    batch = encode_batch([Record(value.encode(), value.encode()) for value in values])
    await node.broker.records.append("t", partition, batch, deadline_s=30)
    found = await node.broker.queue.receive(
        group,
        ["t"],
        claim=Claim("m"),
        limit=1000,
        wait_s=5,
        visibility_ms=None,
        partitions=[partition],
    )
    await node.broker.receipts.settle(
        [SettleRequest(m.receipt, "reject", reason="bad") for m in found]
    )


async def values(node: NodeAssembly, partition: int) -> list[bytes]:
    found = await node.broker.records.read(
        "t", partition, Offset(0), max_records=100, max_bytes=1 << 20, wait_s=0
    )
    return [value for stored in found.batches for value in RecordBatch.parse(stored.batch).values()]


def state(node: NodeAssembly) -> ClusterState:
    return node.broker.topics._cluster.state


# groups


async def test_a_group_is_made_changed_listed_and_deleted(node: NodeAssembly) -> None:
    made = await node.broker.groups.put_group("pay", {"max_attempts": 5})
    changed = await node.broker.groups.put_group("pay", {"halt_percent": 50})

    assert (changed.id, changed.settings["max_attempts"]) == (made.id, 5)
    assert [view.name for view in await node.broker.groups.list_groups()] == ["pay"]
    await node.broker.groups.delete_group("pay")
    with pytest.raises(UnknownGroup):
        await node.broker.groups.delete_group("pay")
    assert (await node.broker.groups.put_group("pay", {})).id > made.id


async def test_what_is_wrong_with_a_group_is_told_in_whole(node: NodeAssembly) -> None:
    with pytest.raises(BadConfig) as refused:
        await node.broker.groups.put_group("pay", {"max_attempts": -1, "colour": "red"})
    assert len(refused.value.data["problems"]) == 2  # type: ignore[arg-type]
    with pytest.raises(BadName):
        await node.broker.groups.put_group("a b", {})
    with pytest.raises(BadName):
        await node.broker.queue.receive(
            "a b", ["t"], claim=Claim("m"), limit=1, wait_s=0, visibility_ms=None
        )
    with pytest.raises(UnknownGroup):
        await node.broker.groups.group("nobody")


async def test_the_configuration_says_what_new_groups_and_topics_get() -> None:
    async with running(MemoryDisk(), config(**DEFAULTS)) as node:
        topic = await node.broker.topics.create_topic("t", {})
        group = await node.broker.groups.put_group("pay", {"max_attempts": 5})
        await node.broker.queue.receive(
            "g", ["t"], claim=Claim("m"), limit=1, wait_s=0, visibility_ms=None
        )
        made = await node.broker.groups.group("g")

    assert (topic.config["lanes"], topic.config["delay_ms_max"]) == (3, 3_600_000)
    assert (group.settings["visibility_ms"], group.settings["max_attempts"]) == (7000, 5)
    assert (made.settings["visibility_ms"], made.settings["max_attempts"]) == (7000, 9)


# redrives


async def test_a_redrive_brings_back_what_is_dead_in_all_partitions(node: NodeAssembly) -> None:
    await die(node, "a", "b", partition=0)
    await die(node, "c", partition=1)

    job = await node.broker.redriving.redrive(
        "g", "t", DeadFilter(), rate=0.0, dry_run=False, force=False
    )
    assert (job.matched, job.group, job.topic) == (3, "g", "t")

    found = []
    while len(found) < 3:
        found += await node.broker.queue.receive(
            "g", ["t"], claim=Claim("m"), limit=10, wait_s=5, visibility_ms=None
        )
    assert sorted(m.value for m in found) == [b"a", b"b", b"c"]
    assert {m.redrives for m in found} == {1}
    await eventually(lambda: job_state(node, job.id) == "done")
    (ended,) = await node.broker.redriving.redrives("g")
    assert (ended.moved, ended.refused, ended.error) == (3, 0, "")


def job_state(node: NodeAssembly, job: int) -> str:
    return state(node).redrives[job].state


async def test_a_dry_run_counts_and_keeps_nothing(node: NodeAssembly) -> None:
    await die(node, "a", "b")

    view = await node.broker.redriving.redrive(
        "g", "t", DeadFilter(key=b"a"), rate=0.0, dry_run=True, force=False
    )

    assert (view.id, view.matched) == (0, 1)
    assert await node.broker.redriving.redrives("g") == []
    page = await node.broker.letters.dead_letters("g", "t", DeadFilter(), after=None, limit=10)
    assert page.total == 2


async def test_only_what_the_filter_means_is_redriven(node: NodeAssembly) -> None:
    await die(node, "a", "b")

    job = await node.broker.redriving.redrive(
        "g", "t", DeadFilter(ids=["t:0:1"]), rate=0.0, dry_run=False, force=False
    )
    await eventually(lambda: job_state(node, job.id) == "done")

    page = await node.broker.letters.dead_letters("g", "t", DeadFilter(), after=None, limit=10)
    assert [letter.message.offset for letter in page.messages] == [0]


async def test_a_slow_redrive_is_stopped_and_the_rest_stays_dead(node: NodeAssembly) -> None:
    await die(node, *map(str, range(20)))
    job = await node.broker.redriving.redrive(
        "g", "t", DeadFilter(), rate=0.01, dry_run=False, force=False
    )
    await eventually(lambda: state(node).redrives[job.id].moved == 1)

    stopped = await node.broker.redriving.stop_redrive("g", job.id)

    assert (stopped.state, stopped.moved) == ("stopped", 1)
    page = await node.broker.letters.dead_letters("g", "t", DeadFilter(), after=None, limit=100)
    assert page.total == 19


async def test_a_redrive_that_can_not_be_is_refused(node: NodeAssembly) -> None:
    await node.broker.groups.put_group("g", {})

    async def refused(group: str, topic: str, which: DeadFilter, rate: float = 0.0) -> None:
        await node.broker.redriving.redrive(
            group, topic, which, rate=rate, dry_run=False, force=False
        )

    with pytest.raises(UnknownGroup):
        await refused("nobody", "t", DeadFilter())
    with pytest.raises(UnknownTopic):
        await refused("g", "nowhere", DeadFilter())
    with pytest.raises(NotFound):
        await refused("g", "t", DeadFilter(partition=9))
    with pytest.raises(BadRequest):
        await refused("g", "t", DeadFilter(ids=["nonsense"]))
    with pytest.raises(BadConfig):
        await refused("g", "t", DeadFilter(), rate=-1.0)
    with pytest.raises(UnknownRedrive):
        await node.broker.redriving.stop_redrive("g", 12345)


# schedules

EVERY_SECOND = {"name": "tick", "topic": "t", "every_ms": 1000, "value": b"go"}


async def test_a_schedule_publishes_and_goes_on_after_a_power_cut() -> None:
    disk = MemoryDisk()
    async with running(disk) as node:
        await node.broker.topics.create_topic("t", {"partitions": 1})
        made = await node.broker.scheduling.put_schedule(EVERY_SECOND)
        assert (made.state, made.runs, made.next_ms) == ("active", 0, made.created_ms + 1000)
        await eventually(lambda: state(node).schedules["tick"].runs >= 1)
        after_cut = disk.crash(random.Random(1), keep=0.0)

    async with running(after_cut) as node:
        runs = state(node).schedules["tick"].runs
        await eventually(lambda: state(node).schedules["tick"].runs >= max(2, runs + 1))
        await node.broker.scheduling.pause_schedule("tick", paused=True)
        await eventually(lambda: not state(node).schedules["tick"].begun_ms)
        assert (
            await values(node, 0) == [b"go"] * (await node.broker.scheduling.schedule("tick")).runs
        )


async def test_a_schedule_is_listed_paused_resumed_and_deleted(node: NodeAssembly) -> None:
    cron = {"name": "nightly", "topic": "t", "cron": "0 30 2 * * *", "timezone": "Europe/Berlin"}
    made = await node.broker.scheduling.put_schedule({**cron, "value": b"x", "every_ms": None})
    assert (made.cron, made.every_ms, made.missed, made.lane) == ("0 30 2 * * *", None, "once", 2)

    paused = await node.broker.scheduling.pause_schedule("nightly", paused=True)
    assert (paused.state, paused.next_ms) == ("paused", 0)
    resumed = await node.broker.scheduling.pause_schedule("nightly", paused=False)
    assert (resumed.state, resumed.next_ms) == ("active", made.next_ms)
    assert [view.name for view in await node.broker.scheduling.schedules()] == ["nightly"]

    await node.broker.scheduling.delete_schedule("nightly")
    with pytest.raises(UnknownSchedule):
        await node.broker.scheduling.schedule("nightly")
    with pytest.raises(UnknownSchedule):
        await node.broker.scheduling.delete_schedule("nightly")


async def test_a_schedule_whose_topic_is_gone_says_so(node: NodeAssembly) -> None:
    await node.broker.scheduling.put_schedule(EVERY_SECOND)
    await node.broker.topics.delete_topic("t")

    assert "topic not found" in (await node.broker.scheduling.schedule("tick")).error


async def test_all_that_is_wrong_with_a_schedule_is_told_at_once(node: NodeAssembly) -> None:
    wrong = {**EVERY_SECOND, "every_ms": None, "cron": "61 * * * * *", "timezone": "Mars/Base"}

    with pytest.raises(BadConfig) as refused:
        await node.broker.scheduling.put_schedule({**wrong, "lane": 9, "missed": "never"})

    problems = refused.value.data["problems"]
    assert [text.split(":")[0] for text in problems] == [  # type: ignore[attr-defined]
        "missed",
        "priority",
        "timezone",
        "cron",
    ]
    with pytest.raises(BadConfig, match="colour"):
        await node.broker.scheduling.put_schedule({**EVERY_SECOND, "colour": "red"})
    with pytest.raises(BadConfig, match="never runs"):
        await node.broker.scheduling.put_schedule(
            {**wrong, "cron": "0 0 0 30 2 *", "timezone": None}
        )
    with pytest.raises(UnknownTopic):
        await node.broker.scheduling.put_schedule({**EVERY_SECOND, "topic": "nowhere"})
