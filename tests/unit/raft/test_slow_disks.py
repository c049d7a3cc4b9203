"""Disks that take a second, or never answer: who leads stays, who is elected is elected soon."""

from __future__ import annotations

import logging

import pytest

from tests.unit.raft.cluster import Cluster


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
        assert cluster.group(leader).term <= 5, seed
    assert sorted(took)[len(took) // 2] <= 3 * sync_s + 0.5
    assert max(took) <= 8 * sync_s + 2


@pytest.mark.parametrize("sync_s", [1.0, 3.0])
def test_one_slow_disk_disturbs_no_leader_elsewhere(sync_s: float) -> None:
    cluster = Cluster()
    leader = cluster.elect()
    slow = cluster.followers()[0]
    term = cluster.group(leader).term
    cluster.nodes[slow].sync_s = sync_s

    for number in range(100):
        index = cluster.propose(b"%d" % number, leader)
        cluster.settle(0.2)
        assert cluster.group(leader).commit_index >= index, "two quick disks are a majority"

    assert cluster.leader() == leader
    assert {cluster.group(name).term for name in cluster.nodes} == {term}
    cluster.settle(2 * sync_s + 1)
    assert cluster.bodies(slow) == cluster.bodies(leader)


def test_a_slow_leader_commits_by_the_others_and_hands_over_at_once() -> None:
    cluster = Cluster()
    leader = cluster.elect()
    cluster.nodes[leader].syncing = False
    index = cluster.propose(b"x", leader)
    cluster.settle(0.5)
    assert cluster.group(leader).commit_index >= index

    moved: list[bool] = []
    cluster.group(leader).transfer_leadership(None, moved.append)
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
    group = cluster.group(leader)

    for _ in range(256):
        index = cluster.propose(b"z" * size, leader)
        cluster.settle(0.05)
        assert group.commit_index >= index
    log = cluster.group(stuck)._log
    waiting = log.last_index - log.durable_index
    assert waiting * size <= cluster.config.window_bytes + cluster.config.append_bytes
    assert cluster.leader() == leader

    cluster.nodes[stuck].syncing = True
    cluster.nodes[stuck].flush()
    cluster.settle(5.0)
    assert cluster.group(stuck).applied_index == group.applied_index
