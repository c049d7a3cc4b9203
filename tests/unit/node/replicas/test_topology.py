"""Whom a node asks for a partition of which it has no replica."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import cast

import pytest

from coordinator.cluster.state import ClusterState
from coordinator.commands.codec import CreateTopic, RegisterBroker
from coordinator.commands.placement import Reassign, ReplicasChanged, Reported, Row
from goqueue.wire.types import CLUSTER_GROUP, Incarnation, Index, NodeId, PartitionId, Voter
from node.partition.host import PartitionHost
from node.replicas.topology import Topology
from raft.configuration import Configuration

ME, A, B, C = map(NodeId, ("me", "a", "b", "c"))


class Group:
    """As much of a replica as is asked about who leads."""

    def __init__(
        self,
        leader: NodeId | None,
        hears_leader: bool,
        is_learner: bool = True,
        configuration: Configuration | None = None,
    ) -> None:
        self.leader = leader
        self.hears_leader = hears_leader
        self.is_learner = is_learner
        self.voting = SimpleNamespace(hears_leader=lambda: self.hears_leader)
        self.membership = SimpleNamespace(configuration=configuration or Configuration())


@dataclass
class Host:
    raft_group: Group = field(default_factory=lambda: Group(B, hears_leader=True))


class World:
    """A topic of one partition, whose three replicas are elsewhere; one is to come here."""

    def __init__(self) -> None:
        self.state = ClusterState(9)
        self.away: set[NodeId] = set()
        self.host: Host | None = None
        for at, node in enumerate((A, B, C, ME), 2):
            self.state.apply(Index(at), 0, RegisterBroker(node, 7, "a:1", "http://a", "", "1", {}))
        config = {"partitions": 1, "replication_factor": 3}
        self.state.apply(Index(9), 0, CreateTopic("t", config, [ME]))
        self.partition_id = PartitionId(self.state.topics["t"].id, 0)
        self.topology = Topology(
            ME,
            state=lambda: self.state,
            cluster_voters=lambda: (),
            cluster_group=lambda: None,
            find=lambda _partition_id: cast("PartitionHost | None", self.host),
            is_present=lambda node: node not in self.away,
        )

    def leader(self) -> NodeId | None:
        return self.topology.leader(self.partition_id)

    def knows_none(self) -> None:
        """Who is asked next does not lead, and does not know who does."""
        asked = self.leader()
        assert asked is not None
        self.topology.learn(self.partition_id, None, asked)

    def moved(self, *nodes: NodeId) -> None:
        """These vote now."""
        index = self.partition_id.topic.index
        self.state.apply(Index(20), 0, Reassign([Row(index, 0, [], list(nodes))]))
        voters = tuple(Voter(node, Incarnation(7)) for node in nodes)
        self.state.apply(Index(21), 0, ReplicasChanged([Reported(index, 0, 12, voters)]))


@pytest.fixture
def world() -> World:
    return World()


def test_a_known_leader_is_asked_while_it_is_there_and_votes(world: World) -> None:
    world.topology.learn(world.partition_id, B, A)
    assert world.leader() == B

    world.away.add(B)
    assert world.leader() in (A, C)
    world.away.clear()
    assert world.leader() == B

    world.moved(A, C, ME)
    assert world.leader() != B


def test_where_who_was_asked_knows_nothing_all_others_are_asked_in_turn(world: World) -> None:
    world.topology.learn(world.partition_id, B, A)
    asked: list[NodeId | None] = []
    for _ in range(3):
        asked.append(world.leader())
        world.knows_none()
    assert set(asked) == {A, B, C}


def test_a_replica_without_a_vote_is_believed_only_while_it_hears_who_it_names(
    world: World,
) -> None:
    """It is not told of another leader before it is one of that leader's replicas."""
    world.host = Host()
    assert world.leader() == B

    world.host.raft_group.hears_leader = False
    world.away.add(B)
    asked: set[NodeId | None] = set()
    for _ in range(3):
        asked.add(world.leader())
        world.knows_none()
    assert asked == {A, C}
    world.topology.learn(world.partition_id, C, A)
    assert world.leader() == C


def test_who_names_one_that_is_not_there_is_not_asked_for_ever(world: World) -> None:
    """As a replica that was removed, or can't campaign, and names a leader of long ago."""
    first = world.leader()
    assert first == A
    world.away.add(B)

    world.topology.learn(world.partition_id, B, A)

    assert world.leader() == C


def test_who_names_one_that_has_no_vote_is_not_asked_for_ever(world: World) -> None:
    world.topology.learn(world.partition_id, ME, A)
    assert world.leader() == B


def test_several_that_asked_at_once_move_on_by_one(world: World) -> None:
    for _ in range(3):
        world.topology.learn(world.partition_id, None, A)
    assert world.leader() == B


def test_a_replica_whose_vote_the_cluster_does_not_know_of_is_believed_only_while_it_hears(
    world: World,
) -> None:
    """It holds a configuration that never committed, and so does not see that it was removed: no
    leader tells it anything, and it names none for good."""
    voters = tuple(Voter(node, Incarnation(7)) for node in (A, B, ME))
    mine = Configuration(voters, index=Index(150))
    world.moved(B, C)
    world.host = Host(Group(None, hears_leader=False, is_learner=False, configuration=mine))

    assert world.leader() == B
    world.topology.learn(world.partition_id, C, B)
    assert world.leader() == C
    assert world.topology.replicas(world.partition_id) == (B, C)

    world.host.raft_group = Group(A, hears_leader=True, is_learner=False, configuration=mine)
    assert world.leader() == A
    assert world.topology.replicas(world.partition_id) == (A, B, ME)


def test_a_voter_that_knows_no_leader_waits_for_one(world: World) -> None:
    world.moved(A, B, ME)
    world.host = Host(Group(None, hears_leader=False, is_learner=False))
    assert world.leader() is None


def test_who_leads_the_cluster_group_is_its_replica_s_to_say(world: World) -> None:
    world.topology.learn(CLUSTER_GROUP, B, ME)
    assert world.topology.leader(CLUSTER_GROUP) is None


def test_only_voters_count_for_what_can_be_reached(world: World) -> None:
    assert world.topology.reachable(world.partition_id) == 3
    world.away |= {A, B}
    assert world.topology.reachable(world.partition_id) == 1
    world.moved(A, C, ME)
    assert sorted(world.topology.replicas(world.partition_id)) == [A, C, ME]
