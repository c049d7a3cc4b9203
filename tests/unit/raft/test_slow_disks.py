"""Disks that take a second, or never answer: who leads stays, who is elected is elected soon."""

from __future__ import annotations

import logging

import pytest

from goqueue.wire.types import NodeId
from raft import frames
from raft.frames import FrameKind
from raft.group import RaftGroup
from tests.unit.raft.cluster import Cluster, Lone, fails_under
from tests.unit.raft.mutants import RefusalsUntold


@pytest.mark.parametrize("sync_s", [0.3, 1.0, 2.0])
def test_slow_disks_everywhere_elect_a_leader_in_a_few_syncs_and_few_terms(
    sync_s: float, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    took: list[float] = []
    for seed in range(20):
        cluster = Cluster(seed=seed)
        for node in cluster.nodes.values():
            node.sync_s = sync_s
        first = cluster.elect(12 * sync_s + 5)
        cluster.settle(3)
        cluster.kill(first)
        killed = cluster.time.time

        leader = cluster.elect(60)
        took.append(cluster.time.time - killed)
        assert leader != first
        assert cluster.raft_group(leader).term <= 5, seed
    assert sorted(took)[len(took) // 2] <= 3 * sync_s + 0.5
    assert max(took) <= 8 * sync_s + 2


@pytest.mark.parametrize("sync_s", [1.0, 3.0])
def test_one_slow_disk_disturbs_no_leader_elsewhere(sync_s: float) -> None:
    cluster = Cluster()
    leader = cluster.elect()
    slow = cluster.followers()[0]
    term = cluster.raft_group(leader).term
    cluster.nodes[slow].sync_s = sync_s

    for number in range(100):
        index = cluster.propose(b"%d" % number, leader)
        cluster.settle(0.2)
        assert cluster.raft_group(leader).commit_index >= index, "two quick disks are a majority"

    assert cluster.leader() == leader
    assert {cluster.raft_group(name).term for name in cluster.nodes} == {term}
    cluster.settle(2 * sync_s + 1)
    assert cluster.bodies(slow) == cluster.bodies(leader)


def test_a_slow_leader_commits_by_the_others_and_hands_over_at_once() -> None:
    cluster = Cluster()
    leader = cluster.elect()
    cluster.nodes[leader].syncing = False
    index = cluster.propose(b"x", leader)
    cluster.settle(0.5)
    assert cluster.raft_group(leader).commit_index >= index

    moved: list[bool] = []
    cluster.raft_group(leader).transfer.start(None, moved.append)
    assert cluster.time.run(2.0, lambda: cluster.leader() not in (None, leader))

    assert moved == [True]
    cluster.propose(b"y")
    cluster.settle(1.0)
    cluster.nodes[leader].syncing = True
    cluster.nodes[leader].flush()
    cluster.settle(1.0)
    assert cluster.bodies(leader) == [b"x", b"y"]


def test_a_follower_that_can_write_nothing_holds_up_nobody_and_a_bounded_lot() -> None:
    cluster = Cluster()
    leader = cluster.elect()
    stuck = cluster.followers()[0]
    cluster.nodes[stuck].syncing = False
    size = cluster.config.window_bytes // 64
    raft_group = cluster.raft_group(leader)

    for _ in range(256):
        index = cluster.propose(b"z" * size, leader)
        cluster.settle(0.05)
        assert raft_group.commit_index >= index
    log = cluster.raft_group(stuck).state.log
    waiting = log.last_index - log.durable_index
    assert waiting * size <= cluster.config.window_bytes + cluster.config.append_bytes
    assert cluster.leader() == leader

    cluster.nodes[stuck].syncing = True
    cluster.nodes[stuck].flush()
    cluster.settle(5.0)
    assert cluster.raft_group(stuck).applied_index == raft_group.applied_index


@fails_under(RefusalsUntold)
def test_disks_that_stall_once_keep_the_lead_vacant_for_two_more_seconds_at_most(
    raft_group_type: type[RaftGroup],
) -> None:
    """Both survivors campaign while nothing can be stored, so that each votes for itself."""
    split, late = 0, []
    for seed in range(40):
        cluster = Cluster(seed=seed, raft_group_type=raft_group_type)
        cluster.net.delay_s = 0.03
        first = cluster.elect()
        cluster.settle(3)
        stalled_until = cluster.time.time + (5.0 if seed % 2 else 1.0)
        cluster.kill(first)
        left = [name for name in cluster.nodes if name != first]

        while cluster.leader() is None and cluster.time.time < stalled_until + 30:
            for name in left:
                cluster.nodes[name].sync_s = max(stalled_until - cluster.time.time, 0.002)
            cluster.settle(0.01)
        late.append(cluster.time.time - stalled_until)
        split += cluster.raft_group(left[0]).term > 2

    assert split >= 6, "else this shows nothing"
    assert max(late) <= 2.5


def candidate(sync_s: float) -> Lone:
    """One of three that has just asked for votes, having stored its own for as long as this."""
    lone = Lone()
    lone.me.sync_s = sync_s
    lone.time.run(3, lambda: bool(lone.said(FrameKind.VOTE)))
    lone.hear("b", frames.vote_reply(0, 1, frames.PRE | frames.GRANTED), sync_s + 0.01)
    assert [frames.parse_vote(frame)[0] for frame in lone.said(FrameKind.VOTE)[-2:]] == [0, 0]
    lone.net.log.clear()
    return lone


def test_a_slow_candidate_waits_for_votes_only_while_enough_of_them_may_come() -> None:
    lone = candidate(4.0)
    lone.hear("b", frames.vote_reply(1, 1, 0))
    lone.settle(1.9 * 4.0)
    assert not lone.said(FrameKind.VOTE), "c may be storing its vote"

    lone = candidate(4.0)
    lone.hear("b", frames.vote_reply(1, 1, 0))
    lone.hear("c", frames.vote_reply(1, 1, 0))
    lone.settle(lone.config.election_max_s)
    assert frames.parse_vote(lone.said(FrameKind.VOTE)[0])[:2] == (frames.PRE, 2)


def test_a_slow_candidate_waits_for_no_vote_of_who_has_no_link() -> None:
    lone = candidate(4.0)
    assert lone.me.host is not None
    lone.me.host.peer_disconnected(NodeId("c"))
    lone.hear("b", frames.vote_reply(1, 1, 0))
    lone.settle(lone.config.election_max_s)
    assert frames.parse_vote(lone.said(FrameKind.VOTE)[0])[:2] == (frames.PRE, 2)


@fails_under(RefusalsUntold)
def test_who_has_no_vote_left_in_a_term_says_so_once_that_is_stored(
    raft_group_type: type[RaftGroup],
) -> None:
    lone = Lone(raft_group_type=raft_group_type)
    lone.me.sync_s = 0.5
    lone.hear("b", frames.vote(5, 9, 4, 0))
    lone.hear("c", frames.vote(5, 9, 4, 0), 0.4)
    assert not lone.said(FrameKind.VOTE_REPLY)
    lone.settle(0.2)
    assert lone.granted("b", 5)
    assert [frames.parse_vote_reply(one) for one in lone.said(FrameKind.VOTE_REPLY, "c")] == [
        (0, 5, 5)
    ]
