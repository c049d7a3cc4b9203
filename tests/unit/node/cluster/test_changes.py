"""Who waits for a change of the cluster's state is told of those that may concern it."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from coordinator.cluster.state import ClusterState
from coordinator.commands.codec import (
    AllocateProducer,
    AlterTopic,
    Command,
    CreateTopic,
    DeleteTopic,
    encode_command,
)
from coordinator.commands.keys import RevokeKey
from coordinator.commands.members import ExpireMembers, HandOver, JoinGroup, LeaveGroup, LetGo
from coordinator.commands.placement import DrainBroker, SetReplicationFactor, UndrainBroker
from coordinator.commands.queue import DeleteGroup, PauseSchedule, PutGroup, StartRedrive
from goqueue.wire.errors import OutcomeUnknown
from goqueue.wire.types import CLUSTER_GROUP, Incarnation, NodeId, PartitionId, Term, Voter
from log.entry import EntryKind, make_entry
from node.cluster.changes import Changes
from node.cluster.host import ClusterHost
from node.peers.forwarding import Forwarder
from node.peers.link import NoPeers

OURS, OTHERS = 7, 8


@pytest.mark.parametrize(
    "command",
    [
        JoinGroup("g", OURS, "m"),
        LeaveGroup(OURS, "m"),
        ExpireMembers(OURS, []),
        LetGo(OURS, "m", []),
        HandOver(OURS, []),
        CreateTopic("t", {}),
        DeleteGroup("g"),
    ],
)
def test_a_watcher_is_told_of_what_may_concern_its_group(command: Command) -> None:
    changes = Changes()
    all_of_them = asyncio.Event()
    changes.wakes(all_of_them)
    with changes.watch(OURS) as ours:
        changes.applied(command)
        assert ours.is_set()
        assert all_of_them.is_set()

    all_of_them.clear()
    changes.wakes_no_more(all_of_them)
    changes.applied(command)
    assert not all_of_them.is_set()


def test_a_watcher_is_not_told_of_other_groups_nor_of_what_concerns_none() -> None:
    changes = Changes()
    with changes.watch(OURS) as ours, changes.watch(OTHERS) as others:
        changes.applied(LeaveGroup(OTHERS, "m"))
        changes.applied(AllocateProducer(None))
        changes.applied(PauseSchedule("s", 1))
        assert (ours.is_set(), others.is_set()) == (False, True)


def test_who_watches_a_group_after_others_have_left_is_told_still() -> None:
    changes = Changes()
    with changes.watch(OURS) as first:
        with changes.watch(OURS):
            pass
        changes.applied(LeaveGroup(OURS, "m"))
        assert first.is_set()
    with changes.watch(OURS) as later:
        changes.everything()
        assert later.is_set()


class Told:
    """Remembers which leaders were made known."""

    def __init__(self) -> None:
        self.leaders: list[tuple[PartitionId, NodeId]] = []

    def leader_changed(self, partition_id: PartitionId, leader: NodeId) -> None:
        self.leaders.append((partition_id, leader))


def test_what_waits_for_a_silent_leader_of_the_cluster_group_is_asked_of_the_new_one() -> None:
    told = Told()
    cluster = ClusterHost(Voter(NodeId("n1"), Incarnation(1)), on_change=lambda: None)
    cluster.use(cast(Forwarder, told), NoPeers())

    cluster.on_follower(None)
    cluster.on_follower(NodeId("n2"))
    cluster.on_leader(Term(3))

    assert told.leaders == [(CLUSTER_GROUP, "n2"), (CLUSTER_GROUP, "n1")]
    assert cluster.leaderships == 1


def test_members_come_and_go_without_a_look_at_what_runs_here() -> None:
    looks: list[int] = []
    cluster = ClusterHost(
        Voter(NodeId("n1"), Incarnation(1)), on_change=lambda: looks.append(cluster.applied)
    )
    with cluster.changes.watch(OURS) as ours:
        for index, command in enumerate([LeaveGroup(OURS, "m"), DeleteGroup("g")], start=1):
            body = encode_command(command)
            entry = make_entry(index=index, term=1, time_ms=1, kind=EntryKind.COMMAND, body=body)
            cluster.apply(entry)
        assert ours.is_set()
        ours.clear()
        cluster.restore(cluster.state.applied_index, ClusterState().snapshot())
        assert ours.is_set()

    assert looks == [2, 0]


class Lost:
    """A leader whose answer is lost; who asks says whether it may be asked again."""

    def __init__(self) -> None:
        self.may_repeat: list[bool] = []

    async def call(self, *_: Any, has_identity: bool, **__: Any) -> object:
        self.may_repeat.append(has_identity)
        raise OutcomeUnknown


@pytest.mark.parametrize(
    ("command", "may_repeat"),
    [
        (AlterTopic("t", {"retention_ms": 1}), False),
        (SetReplicationFactor("t", "", 3), False),
        (PutGroup("g", {"max_attempts": 1}), False),
        (PutGroup("g", ensure=True), True),
        (PauseSchedule("s", 1), False),
        (DrainBroker("n1"), False),
        (UndrainBroker("n1"), False),
        (CreateTopic("t"), True),
        (RevokeKey("k"), True),
        (StartRedrive("g", 1, "t", request=5), True),
        (StartRedrive("g", 1, "t"), False),
        (DeleteTopic("t", "1-2"), True),
    ],
    ids=repr,
)
async def test_a_command_that_overwrites_is_not_sent_again_where_its_outcome_was_lost(
    command: Command, may_repeat: bool
) -> None:
    """It would take back what another client has written in between."""
    lost = Lost()
    cluster = ClusterHost(Voter(NodeId("n1"), Incarnation(1)), on_change=lambda: None)
    cluster.use(cast(Forwarder, lost), NoPeers())

    with pytest.raises(OutcomeUnknown):
        await cluster.command(command, 1)

    assert lost.may_repeat == [may_repeat]
