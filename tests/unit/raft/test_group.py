"""A group elects a leader, replicates, and answers every proposer."""

from __future__ import annotations

import pytest

from raft.configuration import AddLearner
from raft.errors import NotLeader, Outcome
from tests.unit.raft.cluster import Cluster


def test_three_nodes_elect_one_leader_and_apply_the_same_entries() -> None:
    cluster = Cluster(3)

    leader = cluster.elect()
    for number in range(50):
        cluster.propose(b"%d" % number)
    cluster.settle()

    expected = [b"%d" % number for number in range(50)]
    assert [cluster.bodies(name) for name in cluster.nodes] == [expected] * 3
    assert [outcome for _b, outcome, _r, _i in cluster.answers] == [Outcome.APPLIED] * 50
    assert {cluster.raft_group(name).leader for name in cluster.nodes} == {leader}


def test_proposal_away_from_the_leader_is_refused_and_names_the_leader() -> None:
    cluster = Cluster(3)
    leader = cluster.elect()
    cluster.settle()

    with pytest.raises(NotLeader) as refused:
        cluster.propose(b"x", on=cluster.followers()[0])

    assert refused.value.data["leader"] == leader


def test_single_voter_leads_alone_and_commits_only_what_is_durable() -> None:
    cluster = Cluster(1)
    cluster.elect()
    cluster.nodes["a"].syncing = False

    cluster.propose(b"x")
    cluster.settle()
    assert cluster.answers == []

    cluster.nodes["a"].syncing = True
    cluster.nodes["a"].flush()
    cluster.settle()
    assert cluster.outcomes(b"x") == [Outcome.APPLIED]


def test_restart_of_all_nodes_finds_every_applied_entry() -> None:
    cluster = Cluster(3)
    for number in range(20):
        cluster.propose(b"%d" % number)
    cluster.settle()

    for name in cluster.nodes:
        cluster.kill(name, power=True)
    for name in cluster.nodes:
        cluster.restart(name)
    cluster.elect()
    cluster.settle()

    for name in cluster.nodes:
        assert cluster.bodies(name) == [b"%d" % number for number in range(20)]


def test_learner_receives_entries_but_never_votes_or_counts() -> None:
    cluster = Cluster(3, spares=1)
    leader = cluster.elect()
    cluster.change(AddLearner(cluster.join("d")))
    cluster.propose(b"seen")
    cluster.settle()
    assert cluster.bodies("d") == [b"seen"]

    for name in cluster.followers():
        cluster.kill(name)
    cluster.answers.clear()
    cluster.propose(b"lonely", on=leader)
    cluster.settle(5)

    assert cluster.outcomes(b"lonely") == [Outcome.UNKNOWN]
    assert not cluster.raft_group("d").is_leader
