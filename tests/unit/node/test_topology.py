"""Whom a node asks for a partition of which it has no replica."""

from __future__ import annotations

import pytest

from coordinator.commands import CreateTopic, RegisterBroker
from coordinator.placement_commands import Reassign, ReplicasChanged, Reported, Row
from coordinator.state import ClusterState
from goqueue.wire.types import GroupId, Incarnation, Index, NodeId, Voter
from node.topology import Topology

ME, A, B, C = map(NodeId, ("me", "a", "b", "c"))


class World:
    """A topic of one partition, whose three replicas are elsewhere."""

    def __init__(self) -> None:
        self.state = ClusterState(9)
        self.away: set[NodeId] = set()
        for at, node in enumerate((A, B, C, ME), 2):
            self.state.apply(Index(at), 0, RegisterBroker(node, 7, "a:1", "http://a", "", "1", {}))
        config = {"partitions": 1, "replication_factor": 3}
        self.state.apply(Index(9), 0, CreateTopic("t", config, [ME]))
        self.group = GroupId(self.state.topics["t"].id, 0)
        self.topology = Topology(
            ME,
            state=lambda: self.state,
            cluster_voters=lambda: (),
            cluster_group=lambda: None,
            find=lambda _group: None,
            is_present=lambda node: node not in self.away,
        )

    def leader(self) -> NodeId | None:
        return self.topology.leader(self.group)

    def moved(self, *nodes: NodeId) -> None:
        """These vote now."""
        index = self.group.topic.index
        self.state.apply(Index(20), 0, Reassign([Row(index, 0, [], list(nodes))]))
        voters = tuple(Voter(node, Incarnation(7)) for node in nodes)
        self.state.apply(Index(21), 0, ReplicasChanged([Reported(index, 0, 12, voters)]))


@pytest.fixture
def world() -> World:
    return World()


def test_a_known_leader_is_asked_while_it_is_there_and_votes(world: World) -> None:
    world.topology.learn(world.group, B)
    assert world.leader() == B

    world.away.add(B)
    assert world.leader() in (A, C)
    world.away.clear()
    assert world.leader() == B

    world.moved(A, C, ME)
    assert world.leader() != B


def test_where_who_was_asked_knows_nothing_all_others_are_asked_in_turn(world: World) -> None:
    world.topology.learn(world.group, B)
    asked: list[NodeId | None] = []
    for _ in range(3):
        world.topology.learn(world.group, None)
        asked.append(world.leader())
    assert set(asked) == {A, B, C}


def test_only_voters_count_for_what_can_be_reached(world: World) -> None:
    assert world.topology.reachable(world.group) == 3
    world.away |= {A, B}
    assert world.topology.reachable(world.group) == 1
    world.moved(A, C, ME)
    assert sorted(world.topology.replicas(world.group)) == [A, C, ME]
