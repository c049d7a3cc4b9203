"""Campaigns without result are repeated at random times, however often."""

from __future__ import annotations

from tests.unit.raft.cluster import Cluster


def test_two_candidates_do_not_stay_in_step() -> None:
    cluster = Cluster(3)
    group = cluster.group(cluster.elect())
    config, now = cluster.config, cluster.time.now()

    waits = set()
    for attempts in (0, 1, 2, 5, 20):
        for _ in range(10):
            group.timer.attempts = attempts
            group.timer.retry_later(now)
            waits.add(group.deadline - now)

    assert len(waits) == 50
    assert min(waits) >= config.retry_min_s
    assert max(waits) <= config.election_max_s
