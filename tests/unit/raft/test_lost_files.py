"""A file of a stopped node is deleted: what it had promised is not forgotten in silence."""

from __future__ import annotations

import pytest

from goqueue.wire.types import Term
from log.disk.memory import MemoryDisk
from raft.errors import Outcome
from tests.unit.raft.cluster import GROUP, Cluster


def newest_wal(disk: MemoryDisk) -> str:
    return max(path for path in disk.paths() if path.endswith(".wal"))


@pytest.mark.parametrize("files", [1, 2, 3])
@pytest.mark.parametrize("end", ["killed", "closed"])
def test_a_message_on_two_disks_outlives_a_deleted_file_and_a_kill(files: int, end: str) -> None:
    # given a message that the leader and one follower hold, on synced disks
    cluster = Cluster(3)
    leader = cluster.elect()
    holder, other = cluster.followers()
    cluster.settle(1)
    store = cluster.nodes[holder].store
    cluster.net.cut(other, leader)
    cluster.net.cut(other, holder)
    while store.wal_files < files:
        cluster.propose(b"x" * 9000, leader)
        cluster.settle(0.1)
    cluster.propose(b"precious", leader)
    cluster.settle(0.2)
    assert cluster.outcomes(b"precious") == [Outcome.APPLIED]

    # when that follower starts without its newest write-ahead file, and the leader is killed
    if end == "closed":
        store.close()
    cluster.kill(holder)
    disk = cluster.nodes[holder].disk
    disk.unlink(newest_wal(disk))
    cluster.restart(holder)
    cluster.kill(leader)
    cluster.net.connect(other, holder)
    cluster.settle(10)

    # then nobody leads without the message, and it is there when the leader is back
    assert cluster.leader() is None
    assert cluster.nodes[holder].store.incarnation != store.incarnation
    cluster.restart(leader)
    cluster.elect()
    cluster.settle(1)
    assert all(b"precious" in cluster.bodies(name) for name in (leader, other))


def test_a_vote_that_only_the_deleted_file_knew_is_not_given_again() -> None:
    # given a voter whose vote of this term stands in its newest write-ahead file alone
    cluster = Cluster(3)
    leader = cluster.elect()
    voter, other = cluster.followers()
    while cluster.nodes[voter].store.wal_files < 2:
        cluster.propose(b"x" * 9000, leader)
        cluster.settle(0.1)
    cluster.kill(leader)
    cluster.kill(other)
    cluster.settle(0.1)
    later = Term(cluster.raft_group(voter).term + 5)
    cluster.nodes[voter].store.partition_log(GROUP).save_hard_state(later, leader)
    cluster.settle(0.1)

    # when that file is deleted
    cluster.kill(voter)
    disk = cluster.nodes[voter].disk
    disk.unlink(newest_wal(disk))
    cluster.restart(voter)
    cluster.restart(other)
    cluster.settle(10)

    # then it votes for nobody: it is none of the group's voters any more
    assert cluster.leader() is None
    assert cluster.nodes[voter].store.partition_ids() == [GROUP]
    assert cluster.nodes[voter].store.set_aside.exists
