"""Members of groups on three nodes: asked through any, and while nodes come and go."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from goqueue.wire.errors import Unavailable
from log.disk.memory import MemoryDisk
from node.api.members import Assignment
from node.broker.node import NodeBroker
from tests.unit.node.groups.test_members import (
    beat,
    consume_assignment,
    join,
    poll,
    publish,
    values,
)
from tests.unit.node.test_node import eventually
from tests.unit.node.three_nodes import NAMES, ThreeNodes, three_nodes

SESSION_MS, BEYOND_S = 5000, 7.5
"""Long enough for members that a busy machine keeps waiting, and longer than that."""


@pytest.fixture
async def nodes() -> AsyncIterator[ThreeNodes]:
    async with three_nodes() as started:
        await started.broker("n1").topics.create_topic(
            "t", {"partitions": 6, "replication_factor": 3}
        )
        yield started


def other_than(*names: str | None) -> str:
    return next(name for name in NAMES if name not in names)


async def leader_of(nodes: ThreeNodes) -> str:
    await eventually(lambda: nodes.leader() is not None)
    found = nodes.leader()
    assert found is not None
    return found


async def test_partitions_move_between_members_of_three_nodes_at_once(nodes: ThreeNodes) -> None:
    first = await join(nodes.broker("n1"))
    behaving = asyncio.ensure_future(consume_assignment(nodes.broker("n1"), first))
    for name in NAMES * 2:
        told = await join(nodes.broker(name))
        assert len(told.assigned) == 3
        await nodes.broker(name).members.leave("g", told.member)
    behaving.cancel()

    view = await nodes.broker("n2").members.membership("g")

    pauses = [m.pause_ms for r in view.rebalances for m in r.moves if m.former == first.member]
    assert len(pauses) >= 3


async def test_a_poll_brings_what_is_published_to_partitions_of_any_leader(
    nodes: ThreeNodes,
) -> None:
    told = await join(nodes.broker("n2"))
    for partition in range(6):
        await publish(nodes.broker("n1"), partition, str(partition))

    found: list[str] = []
    async with asyncio.timeout(30):
        while len(found) < 6:
            found += values(await poll(nodes.broker("n3"), told, wait_s=30))

    assert sorted(found) == list("012345")


async def test_a_node_that_lags_tells_a_member_nothing_older_than_others_have_told(
    nodes: ThreeNodes,
) -> None:
    leader = await leader_of(nodes)
    near, lagging = nodes.broker(leader), nodes.broker(other_than(leader))
    first = await join(near)
    second = await join(near, wait_s=0)
    asked = await beat(near, first)
    assert len((await lagging.members.heartbeat("g", first.member)).revoking) == 3

    slow_down(nodes.disks[other_than(leader)], 0.3)
    await near.members.heartbeat("g", first.member, let_go=asked.revoking)
    told = second
    while len(told.assigned) < 3:
        told = await beat(near, told)
    again = await lagging.members.heartbeat("g", second.member)

    assert again.assigned == told.assigned
    assert (await lagging.members.heartbeat("g", first.member)).revoking == []


def slow_down(disk: MemoryDisk, sync_s: float) -> None:
    """Each sync takes so long."""
    sync = disk.fdatasync

    def fdatasync(handle: int) -> None:
        time.sleep(sync_s)
        sync(handle)

    disk.fdatasync = fdatasync  # type: ignore[method-assign]


async def test_nobody_loses_partitions_when_the_leader_of_the_cluster_group_dies(
    nodes: ThreeNodes,
) -> None:
    leader = await leader_of(nodes)
    here = nodes.broker(other_than(leader))
    first = await join(here, session_timeout_ms=SESSION_MS)
    behaving = asyncio.ensure_future(consume_assignment(here, first))
    second = await join(here, session_timeout_ms=SESSION_MS)
    before = await here.members.membership("g")

    await nodes.stop(leader)
    behaving.cancel()
    waited = await asyncio.gather(*(outlast(here, told, BEYOND_S) for told in (first, second)))

    after = await here.members.membership("g")
    assert (after.generation, after.state) == (before.generation, "stable")
    assert [m.assigned for m in after.members] == [m.assigned for m in before.members]
    assert [m.silent_ms < SESSION_MS for m in after.members] == [True, True]
    assert {place for told in waited for place in told.assigned} == {("t", n) for n in range(6)}


async def outlast(broker: NodeBroker, told: Assignment, span_s: float) -> Assignment:
    """Send heartbeats for a while, as a member does that another node serves when one fails."""
    loop = asyncio.get_running_loop()
    end_s = loop.time() + span_s
    while loop.time() < end_s:
        told = await broker.members.heartbeat(
            told.group, told.member, revision=told.revision, wait_s=1.0
        )
    return told


async def test_a_move_goes_on_when_the_leader_of_the_cluster_group_dies_amid_it(
    nodes: ThreeNodes,
) -> None:
    leader = await leader_of(nodes)
    here = nodes.broker(other_than(leader))
    first = await join(here)
    joining = asyncio.ensure_future(join(here, wait_s=30))
    asked = await beat(here, first)
    assert len(asked.revoking) == 3

    await nodes.stop(leader)
    await beat(here, asked, let_go=asked.revoking)
    second = await joining

    assert second.assigned == asked.revoking
    await publish(here, second.assigned[0][1], "a")
    assert values(await poll(here, second, wait_s=30)) == ["a"]


async def test_a_member_goes_on_through_another_node_when_its_own_dies(nodes: ThreeNodes) -> None:
    leader = await leader_of(nodes)
    near, other = other_than(leader), leader
    told = await join(nodes.broker(near), session_timeout_ms=SESSION_MS)
    await nodes.stop(near)

    await publish(nodes.broker(other), 0, "a")
    found = await poll(nodes.broker(other), told, wait_s=30)
    again = await outlast(nodes.broker(other), told, BEYOND_S)

    assert values(found) == ["a"]
    assert again.assigned == told.assigned
    assert (await nodes.broker(other).members.membership("g")).generation == told.generation


async def test_a_partition_reaches_its_new_owner_when_its_leader_dies_while_it_moves(
    nodes: ThreeNodes,
) -> None:
    leader = await leader_of(nodes)
    first = await join(nodes.broker(leader))
    joining = asyncio.ensure_future(join(nodes.broker(leader), wait_s=30))
    asked = await beat(nodes.broker(leader), first)

    letting_go = asyncio.ensure_future(
        beat(nodes.broker(leader), asked, let_go=asked.revoking, wait_s=0)
    )
    await nodes.stop(other_than(leader))
    await letting_go
    second = await joining

    assert second.assigned == asked.revoking


async def test_without_a_majority_heartbeats_are_refused_and_nobody_is_lost_by_it(
    nodes: ThreeNodes,
) -> None:
    told = await join(nodes.broker("n1"), session_timeout_ms=SESSION_MS)
    await nodes.stop("n2")
    await nodes.stop("n3")
    await eventually(lambda: nodes.broker("n1").node.cluster_view().controller is None)

    with pytest.raises(Unavailable):
        await beat(nodes.broker("n1"), told, wait_s=0)
    with pytest.raises(Unavailable):
        await nodes.broker("n1").members.heartbeat("g", "who is that?")

    await nodes.start("n2")
    await eventually(lambda: nodes.broker("n2").node.ready().ready)
    again = await beat(nodes.broker("n2"), told, wait_s=0)
    assert (again.assigned, again.generation) == (told.assigned, told.generation)


async def test_a_wiped_node_that_is_not_let_in_refuses_heartbeats_at_once(
    nodes: ThreeNodes,
) -> None:
    told = await join(nodes.broker("n1"))
    await nodes.stop("n2")
    await nodes.stop("n3")
    nodes.disks["n3"] = MemoryDisk()
    await nodes.start("n3")
    await eventually(lambda: nodes.broker("n3").topics._cluster.wiped)

    async with asyncio.timeout(60):
        with pytest.raises(Unavailable):
            await beat(nodes.broker("n3"), told, wait_s=3600)
