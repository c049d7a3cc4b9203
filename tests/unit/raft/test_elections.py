"""Who may lead, who is believed, and how long it takes."""

from __future__ import annotations

import pytest

from raft import frames
from raft.frames import FrameKind
from raft.group import RaftGroup
from tests.unit.raft.cluster import GROUP, Cluster, Lone, append_frame, command, fails_under
from tests.unit.raft.mutants import (
    EasilyDeposed,
    LinksAreNoEvidence,
    NoCheckQuorum,
    NoPrevote,
    NoRegrant,
    ProposesDuringTransfer,
    QuarantinedVote,
    TransferToAnyone,
    VotesCountedTwice,
    WipedDiskVotes,
)


@fails_under(NoPrevote)
def test_node_that_was_cut_off_comes_back_without_a_new_term(
    raft_group_type: type[RaftGroup],
) -> None:
    cluster = Cluster(3, raft_group_type=raft_group_type)
    leader = cluster.elect()
    cluster.settle()
    term = cluster.raft_group(leader).term
    lonely = cluster.followers()[0]

    cluster.mute(lonely)
    cluster.settle(10)
    cluster.unmute()
    cluster.settle(5)

    assert cluster.leader() == leader
    assert cluster.raft_group(leader).term == term == cluster.raft_group(lonely).term


@fails_under(NoCheckQuorum)
def test_leader_without_a_majority_steps_down_within_seconds(
    raft_group_type: type[RaftGroup],
) -> None:
    cluster = Cluster(3, raft_group_type=raft_group_type)
    leader = cluster.elect()
    cluster.settle()

    cluster.mute(leader)
    cluster.settle(2)

    assert not cluster.raft_group(leader).is_leader
    assert (
        not cluster.raft_group(leader).election.has_quorum
        or cluster.raft_group(leader).leader is None
    )


def test_lone_survivor_of_three_knows_that_it_has_no_quorum() -> None:
    cluster = Cluster(3)
    leader = cluster.elect()
    cluster.settle()
    assert cluster.raft_group(leader).election.has_quorum

    for name in cluster.followers():
        cluster.kill(name)

    assert not cluster.raft_group(leader).election.has_quorum
    cluster.settle(3)
    assert not cluster.raft_group(leader).election.has_quorum
    assert not cluster.raft_group(leader).is_leader


@fails_under(VotesCountedTwice)
def test_one_voters_answers_count_once(raft_group_type: type[RaftGroup]) -> None:
    lone = Lone(5, raft_group_type=raft_group_type)
    lone.time.run(3, lambda: bool(lone.said(FrameKind.VOTE)))
    for voter in "bc":
        lone.hear(voter, frames.vote_reply(0, 1, frames.PRE | frames.GRANTED), 0.0)
    lone.settle(0.02)

    for _ in range(3):
        lone.hear("b", frames.vote_reply(1, 1, frames.GRANTED))
    assert not lone.replica.is_leader

    lone.hear("c", frames.vote_reply(1, 1, frames.GRANTED))
    assert lone.replica.is_leader


@fails_under(NoRegrant)
def test_vote_is_granted_again_to_the_same_candidate_only(raft_group_type: type[RaftGroup]) -> None:
    lone = Lone(raft_group_type=raft_group_type)
    for candidate in "bcb":
        lone.hear(candidate, frames.vote(5, 9, 4, 0), 0.05)

    assert len(lone.said(FrameKind.VOTE_REPLY, "b")) == 2
    assert not lone.granted("c", 5)


def test_vote_is_refused_to_a_candidate_with_an_older_log() -> None:
    lone = Lone()
    lone.hear("b", append_frame(3, 1, 0, 1, [command(2, 3, b"x"), command(3, 3, b"y")]), 0.05)
    lone.settle(3)

    lone.hear("c", frames.vote(9, 2, 3, 0), 0.05)
    lone.hear("c", frames.vote(10, 9, 2, 0), 0.05)
    assert not lone.granted("c", 9)
    assert not lone.granted("c", 10)

    lone.hear("c", frames.vote(11, 3, 3, 0), 0.05)
    assert lone.granted("c", 11)


@fails_under(EasilyDeposed)
def test_follower_that_hears_its_leader_votes_for_nobody_else(
    raft_group_type: type[RaftGroup],
) -> None:
    lone = Lone(raft_group_type=raft_group_type)
    lone.hear("b", append_frame(3, 1, 0, 1), 0.05)

    lone.hear("c", frames.vote(9, 99, 9, 0), 0.05)
    lone.hear("c", frames.vote(9, 99, 9, frames.PRE), 0.05)

    assert lone.replica.term == 3
    assert lone.replica.leader == "b"
    replies = [frames.parse_vote_reply(frame)[0] for frame in lone.said(FrameKind.VOTE_REPLY)]
    assert not any(flags & frames.GRANTED for flags in replies)


@fails_under(LinksAreNoEvidence)
def test_closed_link_brings_a_new_leader_in_a_fraction_of_a_second(
    raft_group_type: type[RaftGroup],
) -> None:
    for seed in range(8):
        cluster = Cluster(3, seed=seed, raft_group_type=raft_group_type)
        leader = cluster.elect()
        cluster.settle()

        cluster.kill(leader)
        before = cluster.time.now()
        cluster.elect()

        assert cluster.time.now() - before < 0.6


def test_silence_is_believed_after_one_second_and_not_before() -> None:
    cluster = Cluster(3)
    leader = cluster.elect()
    cluster.settle()

    cluster.mute(leader)
    before = cluster.time.now()
    cluster.settle(0.75)
    others = cluster.followers()
    assert all(cluster.raft_group(name).leader == leader for name in others)

    assert cluster.time.run(3, lambda: any(cluster.raft_group(name).is_leader for name in others))
    assert 0.8 <= cluster.time.now() - before <= 2.2


def test_one_follower_without_a_link_to_the_leader_deposes_nobody() -> None:
    cluster = Cluster(3)
    leader = cluster.elect()
    cluster.settle()
    term = cluster.raft_group(leader).term

    cluster.net.cut(leader, cluster.followers()[0])
    cluster.settle(10)

    assert cluster.leader() == leader
    assert cluster.raft_group(leader).term == term


@fails_under(TransferToAnyone)
def test_leadership_goes_only_to_a_voter_that_holds_the_whole_log(
    raft_group_type: type[RaftGroup],
) -> None:
    lone = Lone(raft_group_type=raft_group_type)
    lone.lead()
    lone.ack_all("b")
    lone.propose(b"x", on="a")
    moved: list[bool] = []

    lone.replica.transfer.start(None, moved.append)
    lone.settle(0.05)
    assert lone.said(FrameKind.TIMEOUT_NOW) == []

    lone.ack_all("b")
    assert len(lone.said(FrameKind.TIMEOUT_NOW, "b")) == 1
    assert moved == []


@fails_under(ProposesDuringTransfer)
def test_transfer_moves_leadership_in_milliseconds_and_refuses_meanwhile(
    raft_group_type: type[RaftGroup],
) -> None:
    cluster = Cluster(3, raft_group_type=raft_group_type)
    leader = cluster.elect()
    target = cluster.followers()[1]
    cluster.propose(b"x")
    moved: list[bool] = []

    before = cluster.time.now()
    cluster.raft_group(leader).transfer.start(cluster.nodes[target].raft_group.node, moved.append)
    assert not cluster.raft_group(leader).is_ready_leader
    assert cluster.time.run(1, lambda: cluster.leader() == target)

    assert cluster.time.now() - before < 0.2
    assert moved == [True]
    cluster.settle()
    assert len(cluster.outcomes(b"x")) == 1
    assert cluster.bodies(target) == [b"x"]


def test_transfer_that_fails_is_given_up_and_the_leader_goes_on() -> None:
    cluster = Cluster(3)
    leader = cluster.elect()
    target = cluster.followers()[0]
    moved: list[bool] = []

    cluster.mute(target)
    cluster.raft_group(leader).transfer.start(cluster.nodes[target].raft_group.node, moved.append)
    cluster.settle(2)

    assert moved == [False]
    assert cluster.leader() == leader
    cluster.propose(b"on")
    cluster.settle()
    assert len(cluster.outcomes(b"on")) == 1


def test_order_to_take_over_is_obeyed_only_from_the_leader_of_the_term() -> None:
    lone = Lone()
    lone.hear("b", append_frame(3, 1, 0, 1), 0.05)

    lone.hear("c", frames.timeout_now(3), 0.05)
    lone.hear("b", frames.timeout_now(2), 0.05)
    assert lone.replica.term == 3

    lone.hear("b", frames.timeout_now(3), 0.05)
    assert lone.replica.term == 4
    flags = [frames.parse_vote(frame)[0] for frame in lone.said(FrameKind.VOTE)]
    assert flags == [frames.TRANSFER, frames.TRANSFER]


@fails_under(WipedDiskVotes)
def test_wiped_disk_is_no_voter(raft_group_type: type[RaftGroup]) -> None:
    cluster = Cluster(3, raft_group_type=raft_group_type)
    cluster.propose(b"x")
    cluster.settle()
    wiped = cluster.followers()[0]

    cluster.kill(wiped)
    cluster.nodes[wiped].disk = type(cluster.nodes[wiped].disk)()
    cluster.restart(wiped)
    cluster.settle(3)

    survivor, other = (name for name in cluster.nodes if name != wiped)
    cluster.kill(survivor)
    cluster.kill(other)
    cluster.restart(survivor)
    cluster.settle(5)

    assert cluster.leader() is None
    assert cluster.raft_group(wiped).membership.is_refused


def test_replica_without_the_creating_entry_neither_votes_nor_campaigns() -> None:
    cluster = Cluster(3, start=False)
    for node in cluster.nodes.values():
        node.open()
    names = list(cluster.nodes)
    cluster.name_voters()
    for name in names:
        cluster.start_raft_group(name, bootstrap=name == "a")
    cluster.connect_all()

    cluster.settle(6)

    assert cluster.leader() is None
    assert {cluster.raft_group(name).term for name in "bc"} == {0}


def test_nobody_elects_twice_in_a_term_over_many_seeds() -> None:
    for seed in range(30):
        cluster = Cluster(5, seed=seed)
        leader = cluster.elect()
        cluster.settle()
        leads = [name for name in cluster.nodes if cluster.raft_group(name).is_leader]
        assert leads == [leader]


@pytest.mark.parametrize("seed", range(8))
def test_who_has_much_to_apply_lets_others_lead(seed: int) -> None:
    cluster = Cluster(seed=seed)
    leader = cluster.elect()
    replaying, other = cluster.followers()
    for number in range(cluster.config.apply_entries + 50):
        cluster.propose(b"%d" % number, leader)
    cluster.raft_group(replaying).apply.apply_committed = lambda: False  # type: ignore[method-assign]
    cluster.settle(1)
    assert (
        cluster.raft_group(replaying).commit_index
        > cluster.raft_group(replaying).applied_index + 256
    )

    cluster.kill(leader)

    assert cluster.elect(2) == other


@fails_under(QuarantinedVote)
def test_replica_with_damage_neither_votes_nor_campaigns(raft_group_type: type[RaftGroup]) -> None:
    lone = Lone(raft_group_type=raft_group_type)
    lone.hear("b", append_frame(1, 1, 0, 1, [command(2, 1, b"x")]), 0.2)
    lone.me.store.partition_log(GROUP).quarantine(2, 2, "a test")

    lone.settle(5.0)
    lone.hear("c", frames.vote(7, 9, 6, frames.PRE), 0.1)
    lone.hear("c", frames.vote(7, 9, 6, 0), 0.1)

    assert not lone.said(FrameKind.VOTE)
    assert not lone.granted("c", 7)
    assert not lone.said(FrameKind.VOTE_REPLY, "c")
