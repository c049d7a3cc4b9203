"""Campaigns without result are repeated at random times, however often."""

from __future__ import annotations

from tests.unit.raft.cluster import Cluster


def test_two_candidates_do_not_stay_in_step() -> None:
    cluster = Cluster(3)
    raft_group = cluster.raft_group(cluster.elect())
    config, now = cluster.config, cluster.time.now()

    waits = set()
    for attempts in (0, 1, 2, 5, 20):
        for _ in range(10):
            raft_group.timer.attempts = attempts
            raft_group.timer.retry_later(now)
            waits.add(raft_group.deadline - now)

    assert len(waits) == 50
    assert min(waits) >= config.retry_min_s
    assert max(waits) <= config.election_max_s
