"""Coordinating groups where the cluster group is led: on a clock that only the test moves."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable

import pytest

from coordinator.cluster.state import ClusterState
from coordinator.commands.codec import Command, CreateTopic, Result
from coordinator.commands.members import JoinGroup, LeaveGroup, LetGo
from coordinator.commands.queue import PutGroup
from coordinator.groups.coordinator import Drain, Naming
from coordinator.groups.membership import GroupMembership
from goqueue.wire.errors import DiskFull, GoQueueError, NotLeader, OutcomeUnknown, Unavailable
from goqueue.wire.types import Index, PartitionId
from node.cluster.changes import Changes
from node.groups import sessions as group_sessions
from node.groups.sessions import GroupSessions
from node.metrics import Metrics
from node.peers.link import NoPeers
from tests.unit.coordinator.cluster_group import Cluster
from tests.unit.node.test_node import eventually

SESSION_MS = 10_000


class World:
    """A cluster group that commits at once, and partitions that obey owner entries.

    `lose` says of each command whether its leader dies: before it is taken, or after; or can't
    write it. Partitions in
    `silent` do not answer, those in `broken` refuse.
    """

    def __init__(self) -> None:
        self.cluster = Cluster()
        self.changes = Changes()
        self.metrics = Metrics()
        self.leaderships = 1
        self.leads = True
        self.lose: Callable[[Command], str] = lambda _command: ""
        self.proposed: list[Command] = []
        self.owners: dict[PartitionId, tuple[str, int]] = {}
        self.in_flight_of: dict[tuple[PartitionId, str], int] = {}
        self.silent: set[PartitionId] = set()
        self.broken: set[PartitionId] = set()
        self.asked: list[Drain] = []
        self.do(CreateTopic("t", {"partitions": 4}))
        self.do(PutGroup("g"))

    def do(self, command: Command) -> object:
        result = self.cluster.do(command)
        self.changes.applied(command)
        return result

    # the cluster group, as the sessions see it

    @property
    def state(self) -> ClusterState:
        return self.cluster.state

    @property
    def applied(self) -> Index:
        return self.state.applied_index

    def led_time_ms(self) -> int | None:
        return self.cluster.now_ms if self.leads else None

    async def command_here(self, command: Command, deadline_s: float) -> Result:
        lost = self.lose(command)
        if not self.leads or lost == "before":
            raise NotLeader()
        if lost == "disk full":
            raise DiskFull()
        self.proposed.append(command)
        result = self.do(command)
        if lost == "after":
            raise OutcomeUnknown()
        if isinstance(result, GoQueueError):
            raise result
        return result  # type: ignore[return-value]

    # the partitions

    async def name_owner(self, naming: Naming) -> tuple[str, int, int]:
        await eventually(lambda: naming.partition not in self.silent)
        if naming.partition in self.broken:
            raise Unavailable
        member, generation = self.owners.get(naming.partition, ("", 0))
        if naming.generation > generation:
            self.owners[naming.partition] = member, generation = naming.member, naming.generation
        return member, generation, 0

    async def in_flight(self, drain: Drain) -> int:
        self.asked.append(drain)
        if drain.partition in self.broken:
            raise Unavailable
        return self.in_flight_of.get((drain.partition, drain.member), 0)

    # what the test sees and does

    @property
    def group(self) -> int:
        return self.state.groups["g"].id

    @property
    def membership(self) -> GroupMembership:
        return self.state.members.by_group[self.group]

    def join(self, member: str, *, lets_go: bool = True) -> None:
        command = JoinGroup(
            "g",
            self.group,
            member,
            topics=["t"],
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=SESSION_MS,
            lets_go=lets_go,
        )
        self.do(command)

    def partition(self, number: int) -> PartitionId:
        return PartitionId(self.cluster.topic("t").id, number)

    def owned(self) -> dict[str, list[int]]:
        """What each member has, in the cluster's state and in the partitions' own logs alike."""
        found: dict[str, list[int]] = {}
        for partition, held in sorted(self.membership.holdings.items()):
            if held.state == "owned":
                assert self.owners[partition] == (held.member, held.generation)
                found.setdefault(held.member, []).append(partition.partition)
        return found

    def lead_anew(self) -> None:
        self.leads, self.leaderships = True, self.leaderships + 1

    async def settle(self, sessions: GroupSessions) -> None:
        """Look until nothing more comes of it."""
        for _ in range(10):
            sessions.look()
            await sessions.settled()

    async def pass_s(self, sessions: GroupSessions, seconds: int, *heard: str) -> None:
        """Time goes by, in which these members are heard of."""
        for _ in range(2 * seconds):
            self.cluster.pass_ms(500)
            for member in heard:
                sessions.heard(self.group, member)
            sessions.look()
            await sessions.settled()


@pytest.fixture
def world() -> World:
    return World()


def sessions_of(world: World) -> GroupSessions:
    return GroupSessions(world, world, NoPeers(), world.metrics)


async def test_a_partition_is_given_once_its_owner_has_let_go(world: World) -> None:
    sessions = sessions_of(world)
    world.join("a")
    await world.settle(sessions)
    world.join("b")
    await world.settle(sessions)
    assert world.owned() == {"a": [0, 1]}

    for number in (2, 3):
        asked = (world.partition(number).topic.index, number)
        world.do(LetGo(world.group, "a", [asked]))
    await world.settle(sessions)

    assert world.owned() == {"a": [0, 1], "b": [2, 3]}
    assert world.membership.state == "stable"


async def test_members_that_are_not_heard_of_expire_and_others_get_what_they_had(
    world: World,
) -> None:
    sessions = sessions_of(world)
    world.join("a")
    world.join("b")
    await world.settle(sessions)

    await world.pass_s(sessions, 9, "b")
    assert "a" in world.membership.members
    assert sessions.silent_ms([world.group, 99])[world.group]["a"] >= 9000
    await world.pass_s(sessions, 2, "b")
    await world.settle(sessions)

    assert world.owned() == {"b": [0, 1, 2, 3]}
    assert sessions.heard(world.group, "a") is False
    assert sessions.heard(99, "b") is False


async def test_a_new_leader_grants_every_session_its_full_time(world: World) -> None:
    sessions = sessions_of(world)
    world.join("a")
    await world.settle(sessions)
    await world.pass_s(sessions, 9)

    world.lead_anew()
    await world.pass_s(sessions, 9)
    assert "a" in world.membership.members

    await world.pass_s(sessions, 2)
    assert "a" not in world.membership.members


async def test_who_leads_no_longer_proposes_nothing_and_hears_nobody(world: World) -> None:
    sessions = sessions_of(world)
    world.join("a")
    world.leads = False

    await world.settle(sessions)

    assert (world.proposed, world.owners) == ([], {})
    with pytest.raises(NotLeader):
        sessions.heard(world.group, "a")
    with pytest.raises(NotLeader):
        sessions.silent_ms([world.group])


async def test_nobody_expires_because_this_node_stood_still_or_its_clock_was_set(
    world: World,
) -> None:
    sessions = sessions_of(world)
    world.join("a")
    await world.settle(sessions)
    await world.pass_s(sessions, 6)

    world.cluster.pass_ms(3_600_000)
    await world.settle(sessions)
    await world.pass_s(sessions, 3)
    assert "a" in world.membership.members

    await world.pass_s(sessions, 2)
    assert "a" not in world.membership.members


@pytest.mark.parametrize("lost", ["before", "after"])
async def test_a_command_whose_leader_dies_is_made_again_by_the_next_one(
    world: World, lost: str
) -> None:
    sessions = sessions_of(world)
    world.join("a")
    world.lose = lambda _command: lost
    await world.settle(sessions)

    world.lose = lambda _command: ""
    world.lead_anew()
    await world.settle(sessions)

    assert world.owned() == {"a": [0, 1, 2, 3]}
    assert world.membership.state == "stable"


@pytest.mark.parametrize("how", ["before", "disk full"])
async def test_an_expiry_that_is_not_known_to_have_happened_is_tried_again(
    world: World, how: str
) -> None:
    sessions = sessions_of(world)
    world.join("a")
    await world.settle(sessions)
    tried: list[int] = []

    def lose(command: Command) -> str:
        tried.append(world.cluster.now_ms)
        return how

    world.lose = lose
    await world.pass_s(sessions, 11)
    await world.settle(sessions)
    assert "a" in world.membership.members
    assert len(set(tried)) == len(tried) > 1, "it rests between two attempts"
    assert 'session_timeouts_total{consumer_group="g"} 0.0' in shown(world)

    world.lose = lambda _command: ""
    await world.pass_s(sessions, 1)

    assert "a" not in world.membership.members


async def test_each_step_follows_the_one_before_without_waiting_for_a_timer(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_sessions, "LOOK_S", 3600.0)
    sessions = sessions_of(world)
    await sessions.start()
    try:
        world.join("a")
        await eventually(lambda: world.owned() == {"a": [0, 1, 2, 3]})
    finally:
        await sessions.stop()


async def test_a_partition_that_refuses_or_is_silent_holds_up_no_other_one(world: World) -> None:
    sessions = sessions_of(world)
    world.silent.add(world.partition(0))
    world.broken.add(world.partition(1))
    await sessions.start()
    try:
        world.join("a")
        await eventually(lambda: world.owned().get("a") == [2, 3])

        world.silent.clear()
        world.broken.clear()
        world.cluster.pass_ms(200)
        await eventually(lambda: world.owned().get("a") == [0, 1, 2, 3])
    finally:
        await sessions.stop()


async def test_what_hung_when_leadership_was_lost_is_done_by_the_next_one(world: World) -> None:
    sessions = sessions_of(world)
    world.silent.add(world.partition(0))
    await sessions.start()
    try:
        world.join("a")
        await eventually(lambda: world.owned().get("a") == [1, 2, 3])
        world.leads = False
        world.changes.everything()
        async with asyncio.timeout(30):
            await sessions.settled()

        world.silent.clear()
        world.lead_anew()
        world.changes.everything()
        await eventually(lambda: world.owned().get("a") == [0, 1, 2, 3])
    finally:
        await sessions.stop()


async def test_a_member_that_confirms_nothing_keeps_a_partition_while_it_works_on_it(
    world: World,
) -> None:
    sessions = sessions_of(world)
    world.join("a", lets_go=False)
    await world.settle(sessions)
    working = (world.partition(3), "a")
    world.in_flight_of[working] = 1
    world.join("b")
    await world.settle(sessions)
    assert world.owned() == {"a": [0, 1], "b": [2]}

    world.in_flight_of[working] = 0
    await world.pass_s(sessions, 1, "a", "b")
    await world.settle(sessions)

    assert world.owned() == {"a": [0, 1], "b": [2, 3]}
    assert {drain.member for drain in world.asked} == {"a"}


async def test_a_member_that_leaves_amid_everything_stops_nothing(world: World) -> None:
    sessions = sessions_of(world)
    world.join("a")
    world.join("b")
    sessions.look()
    world.do(LeaveGroup(world.group, "a"))
    await sessions.settled()
    world.cluster.pass_ms(200)

    await world.settle(sessions)

    assert world.owned() == {"b": [0, 1, 2, 3]}


def shown(world: World) -> list[str]:
    """What is told of groups, but for what each alone has and histograms' buckets."""
    found = world.metrics.render()[0].decode().splitlines()
    names = re.compile(r"goqueue_consumer_\w+_(members|partitions|total|count)\b")
    return [
        line.removeprefix("goqueue_consumer_")
        for line in found
        if names.match(line) and "_created" not in line
    ]


async def test_metrics_tell_members_and_moves_while_this_node_leads(world: World) -> None:
    sessions = sessions_of(world)
    world.join("a")
    await world.settle(sessions)
    world.lead_anew()
    await world.settle(sessions)
    assert 'group_members{consumer_group="g"} 1.0' in shown(world)

    world.join("b")
    await world.settle(sessions)
    assert 'moving_partitions{consumer_group="g"} 2.0' in shown(world)
    world.do(LetGo(world.group, "a", [(world.partition(2).topic.index, 2)]))
    await world.settle(sessions)
    await world.pass_s(sessions, 11, "a", "b")
    await world.settle(sessions)

    assert shown(world) == [
        'group_members{consumer_group="g"} 2.0',
        'assigned_partitions{consumer_group="g"} 4.0',
        'moving_partitions{consumer_group="g"} 0.0',
        'group_leaves_total{consumer_group="g",reason="session_timeout"} 0.0',
        'session_timeouts_total{consumer_group="g"} 0.0',
        'rebalances_total{consumer_group="g",trigger="join"} 1.0',
        'rebalance_latency_seconds_count{consumer_group="g",rebalance_type="cooperative"} 1.0',
        'partitions_assigned_total{consumer_group="g"} 2.0',
        'partitions_revoked_total{consumer_group="g"} 2.0',
        'partitions_fenced_total{consumer_group="g"} 1.0',
        "partition_pause_seconds_count 2.0",
    ]

    world.leads = False
    assert not any("members" in line for line in shown(world))
