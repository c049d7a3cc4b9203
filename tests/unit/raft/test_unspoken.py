"""An entry that a later version wrote ends the applying, not the replica."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from log.entry import Entry
from log.levels import Unspoken
from raft.errors import NotLeader, Outcome
from raft.frames import FrameKind
from tests.unit.raft.cluster import Cluster, Machine

UNKNOWN = b"of a later version"


@dataclass
class OlderMachine(Machine):
    """The state machine of a version that does not know such an entry."""

    def apply(self, entry: Entry) -> object:
        if bytes(entry.body) == UNKNOWN:
            raise Unspoken("an unknown operation")
        return super().apply(entry)


def older(cluster: Cluster, name: str) -> None:
    machine = OlderMachine()
    machine.__dict__ = cluster.nodes[name].machine.__dict__
    cluster.nodes[name].machine = machine
    cluster.raft_group(name).state.machine = machine


def test_follower_stores_and_acknowledges_what_it_can_not_read() -> None:
    """Given a follower of an older version; when an entry comes that it does not know, then it
    applies no more, and still stores, acknowledges and votes: the group has its majority."""
    cluster = Cluster(3)
    leader = cluster.elect()
    old, third = cluster.followers()
    older(cluster, old)
    cluster.propose(b"before", on=leader)
    cluster.settle()

    cluster.propose(UNKNOWN, on=leader)
    cluster.settle()
    cluster.kill(third)
    cluster.propose(b"after", on=leader)
    cluster.settle(2)

    assert "was written by a version that speaks a higher feature level" in (
        cluster.raft_group(old).unspoken
    )
    assert cluster.raft_group(old).failed is None
    assert cluster.nodes[old].failures == []
    assert cluster.bodies(old) == [b"before"]
    assert cluster.bodies(leader) == [b"before", UNKNOWN, b"after"]
    assert (
        cluster.raft_group(old).state.log.last_index
        == cluster.raft_group(leader).state.log.last_index
    )


def test_leader_that_can_not_read_its_own_log_gives_way_to_one_that_can() -> None:
    cluster = Cluster(3)
    leader = cluster.elect()
    older(cluster, leader)

    cluster.propose(UNKNOWN, on=leader)
    cluster.settle(3)

    assert cluster.outcomes(UNKNOWN) == [Outcome.UNKNOWN]
    assert cluster.raft_group(leader).failed is None
    with pytest.raises(NotLeader):
        cluster.propose(b"more", on=leader)
    other = cluster.elect()
    assert other != leader
    assert cluster.bodies(other) == [UNKNOWN]


def test_replica_that_can_not_read_on_never_campaigns() -> None:
    cluster = Cluster(3)
    leader = cluster.elect()
    old, third = cluster.followers()
    older(cluster, old)
    cluster.propose(UNKNOWN, on=leader)
    cluster.settle()
    cluster.mute(third)
    cluster.net.log.clear()

    cluster.kill(leader)
    cluster.settle(10)

    asked = [sent for sent in cluster.net.log if sent.source == old]
    assert not any(sent.kind == FrameKind.VOTE for sent in asked)
    cluster.unmute()
    cluster.settle(10)
    assert cluster.leader() == third


def test_candidate_that_can_not_read_on_gives_up_and_another_one_leads() -> None:
    """A candidate applies meanwhile what was committed: elected, it could neither serve nor see
    that it had to give way."""
    cluster = Cluster(3)
    leader = cluster.elect()
    old, third = cluster.followers()
    cluster.kill(leader)

    cluster.raft_group(old).voting._campaign()
    cluster.raft_group(old).apply._cannot_read(9, Unspoken("an unknown operation"))
    cluster.settle(3)

    assert not cluster.raft_group(old).is_leader
    assert cluster.elect() == third
