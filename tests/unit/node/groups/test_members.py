"""Members of groups on a whole node in this process, asked as its HTTP front asks."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest

from coordinator.commands.codec import Command
from coordinator.commands.members import LeaveGroup, LetGo
from coordinator.errors import BadConfig
from coordinator.groups.settings import Group
from goqueue.wire.errors import (
    GroupActive,
    StaleGeneration,
    UnknownGroup,
    UnknownMember,
    UnknownTopic,
)
from log.disk.memory import MemoryDisk
from node.api.claims import Claim
from node.api.members import Assignment, JoinRequest, Place
from node.api.queue import QueuedMessage, SettleRequest, SettleView
from node.broker.node import NodeBroker
from node.cluster.host import ClusterHost
from node.groups.members import GroupMembers
from tests.unit.node.test_node import batch, running

ALL = [("t", 0), ("t", 1), ("t", 2), ("t", 3)]


@pytest.fixture
async def broker() -> AsyncIterator[NodeBroker]:
    async with running(MemoryDisk()) as started:
        await started.broker.topics.create_topic("t", {"partitions": 4})
        yield started.broker


async def join(
    broker: NodeBroker,
    client: str = "worker",
    *,
    group: str = "g",
    topics: Sequence[str] = ("t",),
    wait_s: float = 30.0,
    lets_go: bool = True,
    **more: object,
) -> Assignment:
    request = JoinRequest(client, topics, lets_go=lets_go, **more)  # type: ignore[arg-type]
    return await broker.members.join(group, request, wait_s=wait_s)


async def beat(
    broker: NodeBroker,
    told: Assignment,
    *,
    let_go: Sequence[Place] = (),
    wait_s: float = 30.0,
) -> Assignment:
    """Wait for news."""
    return await broker.members.heartbeat(
        told.group, told.member, revision=told.revision, wait_s=wait_s, let_go=let_go
    )


async def consume_assignment(broker: NodeBroker, told: Assignment) -> None:
    """A well-behaved member that has nothing in flight: lets go at once of what it is asked for."""
    while True:
        told = await beat(broker, told, let_go=told.revoking, wait_s=30)


async def publish(broker: NodeBroker, partition: int, *values: str) -> None:
    await broker.records.append("t", partition, batch(*values), deadline_s=30)


async def poll(
    broker: NodeBroker,
    told: Assignment,
    *,
    wait_s: float = 0.0,
    generation: int | None = None,
    limit: int = 100,
) -> list[QueuedMessage]:
    return await broker.polls.poll(
        told.group, told.member, generation=generation, limit=limit, wait_s=wait_s
    )


def values(messages: Sequence[QueuedMessage]) -> list[str]:
    return sorted(message.value.decode() for message in messages)


async def test_the_first_member_has_everything_when_its_join_is_answered(
    broker: NodeBroker,
) -> None:
    told = await join(broker, client="worker 1!")

    assert told.member.startswith("worker-1--")
    assert list(told.assigned) == ALL
    assert (told.state, told.leader, told.members) == ("stable", told.member, [told.member])
    assert (told.revoking, told.deadline_ms, told.mode) == ([], 0, "exclusive")
    assert (told.session_timeout_ms, told.heartbeat_ms) == (30_000, 10_000)


async def test_a_second_member_gets_half_once_the_first_has_let_go(broker: NodeBroker) -> None:
    first = await join(broker)
    joining = asyncio.ensure_future(join(broker))

    asked = await beat(broker, first)
    assert len(asked.assigned) == len(asked.revoking) == 2
    assert not joining.done()
    left = await beat(broker, asked, let_go=asked.revoking)
    second = await joining

    assert {*left.assigned, *second.assigned} == set(ALL)
    assert list(second.assigned) == list(asked.revoking)
    assert second.state == "stable"


async def test_letting_go_of_what_nobody_asked_for_is_no_entry(
    broker: NodeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = await join(broker)
    commands: list[Command] = []
    command = ClusterHost.command

    async def spy(self: ClusterHost, asked: Command, *more: Any, **named: Any) -> Any:
        commands.append(asked)
        return await command(self, asked, *more, **named)

    monkeypatch.setattr(ClusterHost, "command", spy)
    for let_go in (ALL, [("t", 2**31), ("nope", 0)]):
        told = await beat(broker, told, let_go=let_go, wait_s=0)
    assert list(told.assigned) == ALL
    assert not any(isinstance(asked, LetGo) for asked in commands)

    await broker.members.leave("g", told.member)

    assert any(isinstance(asked, LeaveGroup) for asked in commands)


async def test_a_leaver_leaves_its_partitions_to_the_others(broker: NodeBroker) -> None:
    first = await join(broker)
    behaving = asyncio.ensure_future(consume_assignment(broker, first))
    second = await join(broker)
    assert len(second.assigned) == 2

    await broker.members.leave("g", first.member)
    with pytest.raises(UnknownMember):
        await behaving
    told = await beat(broker, second)
    while len(told.assigned) < 4:
        told = await beat(broker, told)

    assert list(told.assigned) == ALL
    assert told.members == [second.member]
    with pytest.raises(UnknownMember):
        await broker.members.leave("g", first.member)


async def test_a_commit_names_the_partitions_that_are_not_the_claimants(
    broker: NodeBroker,
) -> None:
    owner = await join(broker, wait_s=30)

    with pytest.raises(StaleGeneration) as refused:
        await broker.positions.commit("g", "t", {0: 0, 2: 0})
    done = await broker.positions.commit("g", "t", {0: 0}, Claim(owner.member, owner.generation))

    assert refused.value.data["partitions"] == ["t:0", "t:2"]
    assert refused.value.data["generation"] == owner.generation
    assert done == {0: 0}


async def test_a_member_that_is_not_heard_of_is_gone_and_its_attempt_has_failed(
    broker: NodeBroker,
) -> None:
    dying = await join(broker, session_timeout_ms=3000)
    await publish(broker, 0, "a")
    (lost,) = await poll(broker, dying)

    told = await join(broker, wait_s=30)
    assert list(told.assigned) == ALL
    (again,) = await poll(broker, told, wait_s=30)

    assert (again.value, again.attempt, again.reason) == (b"a", 2, "consumer lost")
    (end,) = await broker.receipts.settle([SettleRequest(lost.receipt, "ack")])
    assert isinstance(end, StaleGeneration)
    for asking in (beat(broker, dying), poll(broker, dying)):
        with pytest.raises(UnknownMember):
            await asking
    with pytest.raises(StaleGeneration):
        await broker.queue.receive(
            "g",
            ["t"],
            claim=Claim(dying.member, dying.generation),
            limit=1,
            wait_s=0,
            visibility_ms=None,
        )


async def test_a_member_that_polls_stays_however_long_it_takes(broker: NodeBroker) -> None:
    polling = await join(broker, session_timeout_ms=3000)

    found = await poll(broker, polling, wait_s=4.5)

    assert found == []
    assert list((await beat(broker, polling, wait_s=0)).assigned) == ALL


async def test_a_heartbeat_waits_so_shortly_that_who_stands_still_is_missed(
    broker: NodeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited_s: list[float] = []
    attend = GroupMembers._attend

    async def noted(
        self: GroupMembers, group: Group, member: str, wait_s: float, is_over: Callable[[], bool]
    ) -> None:
        await attend(self, group, member, wait_s, is_over)
        waited_s.append(wait_s)

    monkeypatch.setattr(GroupMembers, "_attend", noted)
    waiting = await join(broker, session_timeout_ms=1500)

    unchanged = await broker.members.heartbeat(
        "g", waiting.member, revision=waiting.revision, wait_s=60.0
    )

    assert unchanged.revision == waiting.revision
    assert waited_s[-1] == 0.5


async def test_nobody_knows_a_group_or_member_that_never_was(broker: NodeBroker) -> None:
    with pytest.raises(UnknownGroup):
        await broker.members.heartbeat("g", "m")
    with pytest.raises(UnknownGroup):
        await broker.members.membership("g")
    with pytest.raises(UnknownTopic):
        await join(broker, topics=["nope"])
    with pytest.raises(UnknownGroup):
        await broker.members.leave("g", "m")

    await join(broker)
    with pytest.raises(UnknownMember):
        await broker.members.heartbeat("g", "m")
    with pytest.raises(UnknownMember):
        await broker.polls.poll("g", "m", generation=None, limit=1, wait_s=0)
    with pytest.raises(UnknownMember):
        await join(broker, member="m")
    with pytest.raises(BadConfig, match="session_timeout_ms"):
        await join(broker, session_timeout_ms=1)


async def test_a_join_that_asks_for_too_much_is_no_entry_and_makes_no_group(
    broker: NodeBroker,
) -> None:
    before = broker.node.cluster_view().version

    for wanted in (
        {"client": "x" * 100_000},
        {"instance_id": "x" * 100_000},
        {"patterns": ["x" * 100_000]},
        {"session_timeout_ms": 1},
    ):
        with pytest.raises(BadConfig):
            await join(broker, **wanted)  # type: ignore[arg-type]

    assert broker.node.cluster_view().version == before
    with pytest.raises(UnknownGroup):
        await broker.members.membership("g")


async def test_a_membership_tells_members_and_what_rebalances_moved(broker: NodeBroker) -> None:
    first = await join(broker, instance_id="i-1", host="10.0.0.1")
    behaving = asyncio.ensure_future(consume_assignment(broker, first))
    second = await join(broker)

    view = await broker.members.membership("g")
    (same,) = await broker.members.memberships()
    behaving.cancel()

    assert view.members[0].id == same.members[0].id == first.member
    assert [(m.id, m.instance_id, m.host) for m in view.members] == [
        (first.member, "i-1", "10.0.0.1"),
        (second.member, "", ""),
    ]
    assert [list(m.assigned) for m in view.members][1] == list(second.assigned)
    assert all(0 <= m.silent_ms < 5000 for m in view.members)
    assert (view.state, view.topics, view.leader) == ("stable", ["t"], first.member)
    assert [(r.cause, r.moved, bool(r.ended_ms)) for r in view.rebalances] == [
        ("join", 4, True),
        ("join", 2, True),
    ]
    assert {(m.former, m.member) for m in view.rebalances[1].moves} == {
        (first.member, second.member)
    }
    assert all(not m.fenced and m.pause_ms < 1000 for m in view.rebalances[1].moves)
    assert (view.totals.moved, view.totals.by_cause) == (6, {"join": 2})


async def test_a_group_with_members_is_deleted_by_force_only(broker: NodeBroker) -> None:
    told = await join(broker)
    with pytest.raises(GroupActive):
        await broker.groups.delete_group("g")

    await broker.groups.delete_group("g", force=True)

    with pytest.raises(UnknownGroup):
        await beat(broker, told)


async def test_a_static_member_that_restarts_has_the_same_partitions_without_a_rebalance(
    broker: NodeBroker,
) -> None:
    first = await join(broker, instance_id="a")
    behaving = asyncio.ensure_future(consume_assignment(broker, first))
    other = await join(broker, instance_id="b")
    behaving.cancel()
    before = await beat(broker, first)

    again = await join(broker, instance_id="a")

    assert again.assigned == before.assigned
    assert list((await beat(broker, other)).assigned) == list(other.assigned)
    assert [r.cause for r in (await broker.members.membership("g")).rebalances] == ["join", "join"]
    with pytest.raises(UnknownMember):
        await beat(broker, first)


async def test_who_was_replaced_while_it_slept_is_told_so_whatever_it_asks(
    broker: NodeBroker,
) -> None:
    older = await join(broker, instance_id="a")
    await join(broker, instance_id="a")

    for asked in (
        broker.members.heartbeat("g", older.member),
        poll(broker, older),
        join(broker, member=older.member, instance_id="a"),
        broker.members.leave("g", older.member),
    ):
        with pytest.raises(UnknownMember) as refused:
            await asked
        assert refused.value.data["replaced"] is True


async def test_a_pattern_brings_topics_that_are_created_later(broker: NodeBroker) -> None:
    told = await join(broker, topics=(), patterns=["t*"])

    await broker.topics.create_topic("tea", {"partitions": 1})
    while ("tea", 0) not in told.assigned:
        told = await beat(broker, told)
    await broker.topics.delete_topic("t")
    while len(told.assigned) > 1:
        told = await beat(broker, told)

    view = await broker.members.membership("g")
    assert (list(told.assigned), view.topics) == ([("tea", 0)], ["tea"])
    assert [r.cause for r in view.rebalances] == ["join", "topic", "topic"]


async def test_a_member_that_joins_again_changes_its_subscription(broker: NodeBroker) -> None:
    await broker.topics.create_topic("u", {"partitions": 1})
    first = await join(broker)

    again = await join(broker, member=first.member, topics=["t", "u"])

    assert again.member == first.member
    assert list(again.assigned) == [*ALL, ("u", 0)]


async def test_a_join_that_nobody_waits_for_leaves_no_member_behind(broker: NodeBroker) -> None:
    first = await join(broker)
    joining = asyncio.ensure_future(join(broker, wait_s=30))
    asked = await beat(broker, first)

    joining.cancel()
    with pytest.raises(asyncio.CancelledError):
        await joining
    told = await beat(broker, asked)

    assert (list(told.assigned), told.revoking, told.members) == (ALL, [], [first.member])


async def test_settings_are_those_of_who_creates_the_group(broker: NodeBroker) -> None:
    await join(broker, settings={"assignor": "range", "session_timeout_ms": 9000})
    second = await join(broker, settings={"assignor": "roundrobin"}, wait_s=0)

    view = await broker.members.membership("g")
    assert (view.assignor, second.session_timeout_ms, second.heartbeat_ms) == ("range", 9000, 3000)


async def test_a_power_cut_of_the_whole_cluster_costs_nobody_a_partition() -> None:
    disk = MemoryDisk()
    async with running(disk) as node:
        await node.broker.topics.create_topic("t", {"partitions": 4})
        told = await join(node.broker)
        await publish(node.broker, 0, "a")
        (leased,) = await poll(node.broker, told)
        after_cut = disk.crash(random.Random(1), keep=0.0)

    async with running(after_cut) as node:
        again = await node.broker.members.heartbeat("g", told.member)
        (end,) = await node.broker.receipts.settle(
            [SettleRequest(leased.receipt, "ack")], "g", Claim(told.member, told.generation)
        )
        await publish(node.broker, 1, "b")

        assert (again.assigned, again.generation) == (told.assigned, told.generation)
        assert isinstance(end, SettleView)
        assert values(await poll(node.broker, told, wait_s=30)) == ["b"]
