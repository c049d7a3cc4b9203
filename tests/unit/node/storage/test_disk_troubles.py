"""Disks that are full, nearly full or slow: who leads then, what is answered, what comes back."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Awaitable, Callable

import pytest

from goqueue.wire.errors import DiskFull, GoQueueError
from goqueue.wire.types import Index, Offset
from log.disk.memory import MemoryDisk
from log.errors import EntryDamaged
from log.segments.segment import SEGMENT_SUFFIX
from node.storage.disk_pace import FORGOTTEN_AFTER_S, QUICK_FOR_S, SLOW_FOR_S, SLOW_S, DiskPace
from tests.unit.node.storage.repair.test_healer import Node
from tests.unit.node.storage.repair.test_healer import nodes as healing
from tests.unit.node.test_node import append, eventually, running
from tests.unit.node.test_node import read as read_end
from tests.unit.node.three_nodes import NAMES, ThreeNodes, three_nodes

SLOW_SYNC_S = 0.7
ATTEMPT_S = 2.0
"""One that came before the disk was found to be full waits for room: another one is made then."""
HANGS_S = 4 * ATTEMPT_S
"""One that is there when the node stops; it is answered only at its deadline."""


def no_room(disk: MemoryDisk, part: str = "/wal/") -> None:
    """Writes to paths that hold `part` meet a full disk, preallocated or not."""
    disk.fault = lambda operation, path: (
        OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        if operation in ("pwritev", "truncate", "open") and part in path
        else None
    )


async def refused(attempt: Callable[[], Awaitable[object]]) -> None:
    """Waits until this is answered with `disk_full`, and definitely has not happened."""
    async with asyncio.timeout(30):
        while True:
            try:
                await attempt()
            except DiskFull as error:
                assert error.outcome == "none"
                return
            except GoQueueError:
                continue
            await asyncio.sleep(0.02)


async def accepted(attempt: Callable[[], Awaitable[object]], deadline_s: float = 30.0) -> None:
    async with asyncio.timeout(deadline_s):
        while True:
            try:
                await attempt()
                return
            except GoQueueError:
                await asyncio.sleep(0.02)


async def values(nodes: ThreeNodes, name: str) -> int:
    found = await nodes.broker(name).records.read(
        "t", 0, Offset(0), max_records=10_000, max_bytes=1 << 20, wait_s=0.0
    )
    return found.next_offset


def leader_of(nodes: ThreeNodes) -> str | None:
    leaders = {
        host.raft_group.leader
        for broker in nodes.brokers
        for host in broker.topics._replicas.all()
        if host.id.partition == 0
    }
    leader = leaders.pop() if len(leaders) == 1 else None
    return None if leader is None else str(leader)


async def test_a_node_that_can_write_nothing_says_so_serves_reads_and_goes_on_by_itself() -> None:
    disk, failures = MemoryDisk(), list[Exception]()
    async with running(disk, failures=failures) as node:
        await node.broker.topics.create_topic("t", {"partitions": 1})
        await append(node, "before")

        no_room(disk)
        hanging = asyncio.ensure_future(append(node, "waits"))
        await eventually(lambda: bool(node.broker.node.cluster_view().problems))
        await refused(lambda: append(node, "refused", deadline_s=ATTEMPT_S))
        await refused(lambda: node.broker.topics.create_topic("other", {}))

        assert await read_end(node) == 1
        assert "nothing is confirmed" in node.broker.node.cluster_view().problems[-1]
        assert not failures
        disk.fault = None
        await hanging  # nothing was lost: it is written as soon as there is room
        await accepted(lambda: append(node, "after"))
        await eventually(lambda: not node.broker.node.cluster_view().problems)
        assert not failures

    after = MemoryDisk.replay(disk.trace)
    async with running(after) as node:
        await eventually(lambda: node.broker.topics.list_topics() == ["t"])
        await accepted(lambda: append(node, "last"))
        assert await read_end(node) == 4


async def test_a_node_that_is_stopped_while_its_disk_is_full_stops_in_order() -> None:
    disk, failures = MemoryDisk(), list[Exception]()
    async with running(disk, failures=failures) as node:
        await node.broker.topics.create_topic("t", {"partitions": 1})
        await append(node, "kept")
        no_room(disk)
        hanging = asyncio.ensure_future(append(node, "never acked", deadline_s=HANGS_S))
        await refused(lambda: append(node, "refused", deadline_s=ATTEMPT_S))
    assert isinstance((await asyncio.wait([hanging]))[0].pop().exception(), GoQueueError)
    assert not failures

    disk.process_died()
    async with running(disk) as node:
        await eventually(lambda: node.broker.topics.list_topics() == ["t"])
        assert await read_end(node) == 1


@pytest.mark.parametrize("trouble", ["stuck", "low", "slow"])
async def test_a_leader_with_a_bad_disk_lets_another_lead_and_publishes_go_on(
    trouble: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("node.storage.disk_pace.SLOW_FOR_S", 0.5)
    async with three_nodes() as nodes:
        await nodes.broker("n1").topics.create_topic(
            "t", {"partitions": 1, "replication_factor": 3}
        )
        await append(nodes.running["n1"], "before")
        await eventually(lambda: leader_of(nodes) is not None)
        bad = leader_of(nodes)
        assert bad is not None
        good = next(name for name in NAMES if name != bad)
        disk = nodes.disks[bad]

        if trouble == "stuck":
            no_room(disk)
        elif trouble == "low":
            disk.capacity = 0
        else:
            slow_down(disk, monkeypatch)
        stop = asyncio.Event()
        acked = asyncio.ensure_future(publish_until(nodes, good, stop))
        await eventually(lambda: leader_of(nodes) not in (bad, None), 30)
        count = await values(nodes, good)
        before = len(published)
        await eventually(lambda: len(published) > before + 20)
        stop.set()
        await acked

        assert await values(nodes, good) > count
        assert not refusals, "a disk in trouble elsewhere is no concern of publishers"
        disk.fault, disk.capacity = None, 1 << 40
        monkeypatch.undo()
        end = await values(nodes, good)

        async with asyncio.timeout(30):
            while await values(nodes, bad) < end:  # noqa: ASYNC110 - nothing tells of it
                await asyncio.sleep(0.02)


published: list[int] = []
refusals: list[str] = []


async def publish_until(nodes: ThreeNodes, name: str, stop: asyncio.Event) -> None:
    published.clear()
    refusals.clear()
    while not stop.is_set():
        try:
            published.append(await append(nodes.running[name], "x"))
        except GoQueueError as error:
            refusals.append(str(error))
        await asyncio.sleep(0.01)


def slow_down(disk: MemoryDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    sync = disk.fdatasync

    def slow(handle: int) -> None:
        time.sleep(SLOW_SYNC_S)
        sync(handle)

    monkeypatch.setattr(disk, "fdatasync", slow)


async def test_publishes_are_refused_where_only_a_minority_has_room_and_settles_are_not() -> None:
    async with three_nodes() as nodes:
        await nodes.broker("n1").topics.create_topic(
            "t", {"partitions": 1, "replication_factor": 3}
        )
        await append(nodes.running["n1"], "before")
        for name in ("n1", "n2"):
            nodes.disks[name].capacity = 0

        await refused(lambda: append(nodes.running["n3"], "refused", deadline_s=ATTEMPT_S))
        await nodes.broker("n3").topics.create_topic("reserved", {})

        nodes.disks["n1"].capacity = 1 << 40
        await accepted(lambda: append(nodes.running["n3"], "after"))


def test_one_slow_sync_is_no_slow_disk_and_five_seconds_of_them_are() -> None:
    now = [100.0]
    pace = DiskPace(lambda: now[0])

    def sync(took_s: float) -> bool:
        pace.begun()
        now[0] += took_s
        pace.ended()
        return pace.is_slow

    assert not sync(SLOW_FOR_S - 0.1)
    assert not sync(0.001)
    while not sync(SLOW_S):
        assert now[0] < 120
    assert sync(0.001), "it stays slow until it was quick for a while"
    now[0] += QUICK_FOR_S
    assert not sync(0.001)


def test_a_sync_that_never_ends_is_a_slow_disk_and_an_idle_one_is_forgotten() -> None:
    now = [100.0]
    pace = DiskPace(lambda: now[0])
    pace.begun()
    now[0] += SLOW_FOR_S
    assert pace.is_slow
    assert pace.waiting_s == SLOW_FOR_S
    pace.ended()
    assert pace.is_slow
    now[0] += FORGOTTEN_AFTER_S
    assert not pace.is_slow


async def test_what_can_not_be_read_costs_a_replica_its_vote_until_it_can_be_read_again() -> None:
    node = Node()
    whole = node.everything()
    node.disk.fault = unreadable
    with pytest.raises(EntryDamaged):
        node.log.entry(Index(5))
    assert node.log.quarantined

    await node.healer.heal()
    assert node.log.quarantined, "still unreadable, and there is nobody to ask"
    node.disk.fault = None
    await node.healer.heal()

    assert not node.log.quarantined
    assert node.everything() == whole
    assert not node.hopeless


async def test_a_sector_that_stays_unreadable_is_written_anew_with_what_a_peer_has() -> None:
    bad, other = healing(2)
    whole = other.everything()
    written: list[str] = []

    def fault(operation: str, path: str) -> OSError | None:
        if operation == "pwritev" and path.endswith(SEGMENT_SUFFIX):
            written.append(path)  # a disk puts another sector in its place
        return unreadable(operation, path) if not written else None

    bad.disk.fault = fault
    with pytest.raises(EntryDamaged):
        bad.log.entry(Index(7))
    await bad.healer.heal()

    assert written
    assert not bad.log.quarantined
    assert bad.everything() == whole


def unreadable(operation: str, path: str) -> OSError | None:
    if operation != "pread" or not path.endswith(SEGMENT_SUFFIX):
        return None
    return OSError(errno.EIO, os.strerror(errno.EIO), path)


def test_a_node_that_stood_still_takes_nothing_of_that_for_a_slow_disk() -> None:
    now = [0.0]
    pace = DiskPace(lambda: now[0])

    def run(seconds: float) -> None:
        for _ in range(round(seconds * 10)):
            now[0] += 0.1
            pace.ticked()

    run(1)
    for wakes_first in (True, False):
        pace.begun()
        now[0] += 3 * SLOW_FOR_S
        assert pace.waiting_s == 0.0
        assert not pace.is_slow
        if wakes_first:
            pace.ticked()
        pace.ended()
        pace.ticked()
        assert not pace.is_slow

    pace.begun()
    now[0] += 3 * SLOW_FOR_S
    run(SLOW_FOR_S - 1)
    assert not pace.is_slow
    run(2)
    assert pace.is_slow
