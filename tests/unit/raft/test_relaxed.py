"""Relaxed durability: what a power cut took from a replica must not cost what others still hold."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from goqueue.wire.types import Incarnation, NodeId, Voter
from log.entry import Entry, EntryKind, make_entry
from raft import frames
from raft.configuration import AddLearner, Configuration, Promote, Remove, encode_configuration
from raft.errors import Outcome
from raft.frames import FrameKind
from raft.group import RaftGroup
from tests.unit.raft.cluster import (
    EPOCH_MS,
    GROUP,
    Cluster,
    ClusterNode,
    Lone,
    append_frame,
    command,
    fails_under,
)
from tests.unit.raft.mutants import AnyAppendIsEnough, SuspectsSuffice, SuspectsTrusted


def relaxed_cluster(size: int = 3, raft_group_type: type[RaftGroup] = RaftGroup) -> Cluster:
    """A group of a relaxed topic with a leader, and everything so far synced."""
    cluster = Cluster(size, relaxed=True, raft_group_type=raft_group_type)
    cluster.elect()
    cluster.settle(1.0)
    return cluster


def acked_by_two(cluster: Cluster) -> tuple[str, str, str]:
    """Acknowledges `precious` by leader and one follower, unsynced; (leader, holder, other)."""
    leader = cluster.elect()
    holder, other = cluster.followers()
    cluster.isolate(other)
    cluster.propose(b"precious", leader)
    cluster.time.run(0.02, lambda: bool(cluster.outcomes(b"precious")))
    if cluster.outcomes(b"precious") != [Outcome.APPLIED]:
        raise RuntimeError("not acknowledged")
    return leader, holder, other


def is_suspect(cluster: Cluster, name: str) -> bool:
    return cluster.nodes[name].store.partition_log(GROUP).suspect


@fails_under(SuspectsTrusted, SuspectsSuffice)
def test_acked_entry_survives_one_power_loss_and_one_kill(raft_group_type: type[RaftGroup]) -> None:
    cluster = relaxed_cluster(raft_group_type=raft_group_type)
    leader, holder, _other = acked_by_two(cluster)

    cluster.kill(holder, power=True)
    cluster.kill(leader)
    cluster.restart(holder)
    cluster.settle(10.0)
    assert cluster.leader() is None, "elected without the entry"
    cluster.restart(leader)
    cluster.elect()
    cluster.settle(1.0)

    assert all(b"precious" in cluster.bodies(name) for name in cluster.nodes)
    assert not any(is_suspect(cluster, name) for name in cluster.nodes)


def test_replica_that_caught_up_after_its_power_loss_elects_again() -> None:
    cluster = relaxed_cluster()
    leader, holder, other = acked_by_two(cluster)
    cluster.kill(holder, power=True)

    cluster.restart(holder)
    cluster.settle(1.0)
    assert not is_suspect(cluster, holder)
    cluster.net.connect(holder, other)
    cluster.kill(leader)

    assert cluster.elect() == holder
    assert b"precious" in cluster.bodies(holder)


def test_replica_stays_suspect_through_another_crash() -> None:
    cluster = relaxed_cluster()
    leader, holder, _other = acked_by_two(cluster)
    cluster.kill(leader)

    for power in (True, False, True, False):
        cluster.kill(holder, power=power)
        cluster.restart(holder)
        cluster.settle(2.0)
        assert is_suspect(cluster, holder)

    assert cluster.leader() is None


def test_replica_that_begins_anew_beside_an_idle_leader_is_trusted_again() -> None:
    """As after its log was replaced by a copy: no link breaks, and nothing is appended."""
    cluster = Cluster(3)
    cluster.elect()
    cluster.propose(b"x")
    cluster.settle(1.0)
    name = cluster.followers()[0]
    node = cluster.nodes[name]
    assert node.host is not None
    node.host.stop_raft_group(GROUP)
    node.store.partition_log(GROUP).mark_suspect()

    cluster.start_raft_group(name)
    cluster.settle(1.0)

    assert not is_suspect(cluster, name)


def test_killed_process_is_not_suspect() -> None:
    cluster = relaxed_cluster()
    _leader, holder, _other = acked_by_two(cluster)

    cluster.kill(holder)
    cluster.restart(holder)

    assert not is_suspect(cluster, holder)


def test_replica_of_a_group_that_is_not_relaxed_is_never_suspect() -> None:
    cluster = Cluster(3)
    leader = cluster.elect()

    cluster.kill(leader, power=True)
    cluster.restart(leader)

    assert not is_suspect(cluster, leader)


def test_after_a_power_cut_of_all_the_newest_log_that_is_left_wins() -> None:
    for size in (1, 2, 3, 5):
        cluster = relaxed_cluster(size)
        leader = cluster.elect()
        for name in cluster.followers()[: (size - 1) // 2]:
            cluster.isolate(name)
        cluster.propose(b"synced", leader)
        cluster.settle(0.3)
        assert cluster.outcomes(b"synced") == [Outcome.APPLIED]

        for name in cluster.nodes:
            cluster.kill(name, power=True)
        for name in cluster.nodes:
            cluster.restart(name)
        assert all(is_suspect(cluster, name) for name in cluster.nodes)

        cluster.elect(20.0)
        cluster.propose(b"after")
        cluster.settle(2.0)
        assert all(cluster.bodies(name) == [b"synced", b"after"] for name in cluster.nodes)
        assert not any(is_suspect(cluster, name) for name in cluster.nodes)


def test_suspect_majority_elects_nobody_while_a_voter_is_missing() -> None:
    cluster = relaxed_cluster()
    for name in cluster.nodes:
        cluster.kill(name, power=True)

    cluster.restart("a")
    cluster.restart("b")
    cluster.settle(20.0)
    assert cluster.leader() is None

    cluster.restart("c")
    cluster.elect()


def test_replica_that_a_majority_can_do_without_is_not_waited_for() -> None:
    cluster = relaxed_cluster(5)
    leader = cluster.elect()
    lost, gone = cluster.followers()[:2]

    cluster.kill(lost, power=True)
    cluster.kill(gone)
    cluster.kill(leader)
    cluster.restart(lost)
    cluster.restart(leader)

    assert cluster.elect() not in (lost, gone)
    cluster.settle(1.0)
    assert not is_suspect(cluster, lost)


def suspect_replica(raft_group_type: type[RaftGroup] = RaftGroup) -> Lone:
    """`a` after a power cut that took its entry 3 of term 1; it knows term 1."""
    lone = Lone(raft_group_type=raft_group_type, relaxed=True)
    lone.hear("b", append_frame(1, 1, 0, 1, [command(2, 1, b"kept")]), 0.2)
    lone.hear("b", append_frame(1, 2, 1, 2, [command(3, 1, b"lost")]), 0.01)
    assert lone.acked("b")[-1] == 3
    lone.kill("a", power=True)
    lone.me.open()
    lone.start_raft_group("a")
    lone.link_up()
    assert lone.log.last_index == 2
    return lone


@fails_under(AnyAppendIsEnough)
def test_suspect_replica_votes_once_it_holds_what_the_leader_held(
    raft_group_type: type[RaftGroup],
) -> None:
    lone = suspect_replica(raft_group_type)

    lone.hear("b", append_frame(1, 2, 1, 2), 0.02)
    assert lone.log.suspect
    (asked,) = lone.said(FrameKind.ASK_END)
    _term, nonce, _zero = frames.parse_end(asked)
    lone.hear("b", frames.end(1, nonce, 3), 0.02)
    assert lone.log.suspect
    lone.hear("b", frames.end(1, nonce + 1, 2), 0.02)
    assert lone.log.suspect
    lone.hear("b", append_frame(1, 2, 1, 2, [command(3, 1, b"lost")]), 0.02)
    assert not lone.log.suspect

    lone.settle(3.0)
    lone.hear("c", frames.vote(5, 3, 1, 0), 0.1)
    assert lone.granted("c", 5)


def test_suspect_replica_votes_only_together_with_everyone() -> None:
    lone = suspect_replica()
    lone.settle(3.0)

    lone.hear("c", frames.vote(5, 9, 1, 0), 0.1)
    lone.hear("c", frames.vote(5, 9, 1, frames.TRANSFER), 0.1)
    assert not lone.granted("c", 5)
    lone.hear("c", frames.vote(6, 9, 1, frames.PRE), 0.1)
    flags = frames.parse_vote_reply(lone.said(FrameKind.VOTE_REPLY, "c")[-1])[0]
    assert flags == frames.PRE | frames.GRANTED | frames.SUSPECT
    lone.hear("c", frames.vote(6, 1, 1, frames.EVERYONE), 0.1)
    assert not lone.granted("c", 6), "its own log is newer"
    lone.hear("c", frames.vote(7, 9, 1, frames.EVERYONE), 0.1)
    assert lone.granted("c", 7)


def test_candidate_that_needs_everyone_leads_with_the_last_vote_only() -> None:
    lone = suspect_replica()
    while not [f for f in lone.said(FrameKind.VOTE) if not frames.parse_vote(f)[0] & frames.PRE]:
        lone.settle(0.05)
        asked = lone.replica.term + 1
        for voter in ("b", "c"):
            lone.hear(voter, frames.vote_reply(0, asked, frames.PRE | frames.GRANTED))
    lone.settle(0.02)
    term = lone.replica.term
    asked_flags = frames.parse_vote(lone.said(FrameKind.VOTE, "b")[-1])[0]
    assert asked_flags == frames.EVERYONE

    for _ in range(2):
        lone.hear("b", frames.vote_reply(term, term, frames.GRANTED))
        assert not lone.replica.is_leader
    lone.hear("c", frames.vote_reply(term, term, frames.GRANTED))
    assert lone.replica.is_leader
    assert not lone.log.suspect


def test_suspect_replica_does_not_take_over_when_asked() -> None:
    lone = suspect_replica()
    lone.hear("b", append_frame(1, 2, 1, 2), 0.02)

    lone.hear("b", frames.timeout_now(1), 0.1)

    assert lone.replica.term == 1


def test_leader_says_where_its_log_ends() -> None:
    lone = Lone()
    term = lone.lead()

    lone.hear("b", frames.ask_end(term, 77), 0.01)

    (told,) = lone.said(FrameKind.END, "b")
    assert frames.parse_end(told) == (term, 77, lone.log.last_index)


def test_snapshot_of_entries_that_the_power_cut_took_is_not_begun_from() -> None:
    cluster = relaxed_cluster(1)
    node = cluster.nodes["a"]
    cluster.propose(b"lost")
    cluster.settle(0.01)
    assert cluster.outcomes(b"lost") == [Outcome.APPLIED]
    work = node.raft_group.apply.take_snapshot()
    assert work is not None
    work.run()

    cluster.kill("a", power=True)
    cluster.restart("a")
    cluster.elect()
    for _ in range(5):
        cluster.propose(b"other")
    cluster.settle(1.0)
    cluster.kill("a")
    cluster.restart("a")
    cluster.elect()

    assert cluster.nodes["a"].store.partition_log(GROUP).latest_snapshot() is None
    assert cluster.bodies("a") == [b"other"] * 5


# -- changes of voters


def voters_entry(index: int, term: int, voters: Sequence[Voter]) -> Entry:
    body = encode_configuration(Configuration(tuple(voters)))
    return make_entry(index=index, term=term, time_ms=EPOCH_MS, kind=EntryKind.VOTERS, body=body)


def test_change_of_voters_is_acknowledged_after_its_sync_with_all_before_it() -> None:
    lone = Lone(relaxed=True)
    fourth = Voter(NodeId("d"), Incarnation(9))
    lone.hear("b", append_frame(1, 1, 0, 1, [command(2, 1, b"before")]), 0.003)
    assert lone.acked("b")[-1] == 2

    lone.hear("b", append_frame(1, 2, 1, 1, [voters_entry(3, 1, [*lone.voters, fourth])]))
    lone.time.run(0.02, lambda: lone.acked("b")[-1] == 3)
    assert lone.acked("b")[-1] == 3
    lone.kill("a", power=True)
    lone.restart("a")

    assert lone.log.last_index == 3
    assert lone.replica.membership.voters[-1] == fourth


@pytest.mark.parametrize("seed", range(1, 6))
@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("is_cut_off", [True, False])
def test_power_loss_of_the_leader_that_promoted_a_voter_costs_nothing(
    size: int, is_cut_off: bool, seed: int
) -> None:
    cluster = Cluster(size, spares=1, relaxed=True, seed=seed)
    (new,) = set(cluster.nodes) - set(cluster.voter_names)
    cluster.elect()
    cluster.change(AddLearner(cluster.join(new)))
    cluster.settle(2.0)
    leader, others = cluster.elect(), cluster.followers()
    for other in others:
        cluster.isolate(other)
    cluster.change(Promote(NodeId(new)), leader)
    cluster.time.run(0.04, lambda: cluster.raft_group(leader).membership.is_committed)
    cluster.propose(b"precious", leader)
    cluster.time.run(0.02, lambda: bool(cluster.outcomes(b"precious")))
    assert cluster.outcomes(b"precious") == [Outcome.APPLIED]

    cluster.kill(leader, power=True)
    cluster.restart(leader)
    if is_cut_off:
        cluster.isolate(new)
    for other in others:
        cluster.net.connect(other, leader)
    cluster.settle(15.0)
    cluster.connect_all()
    cluster.elect(20.0)
    cluster.settle(2.0)

    assert not any(node.failures for node in cluster.nodes.values())
    assert all(b"precious" in cluster.bodies(name) for name in cluster.nodes)


@pytest.mark.parametrize("relaxed", [True, False])
def test_relaxed_leader_counts_by_new_voters_once_its_own_disk_knows_them(relaxed: bool) -> None:
    """Else a power cut of it alone takes what it acknowledged, and that somebody else has it."""
    lone = Lone(2, relaxed=relaxed)
    lone.nodes["c"] = ClusterNode(lone, "c")
    lone.lead()
    lone.ack_all()
    lone.change(AddLearner(Voter(NodeId("c"), Incarnation(7))), "a")
    lone.settle(0.01)
    lone.ack_all()
    lone.link_up()
    lone.ack_all("c")
    index = lone.propose(b"precious", "a")
    lone.settle(0.003)
    assert lone.log.durable_index == index
    assert lone.replica.commit_index < index

    lone.me.syncing = False
    lone.change(Promote(NodeId("c")), "a")
    lone.hear("c", frames.ack(lone.replica.term, index), 0.01)
    assert lone.replica.commit_index == (index - 1 if relaxed else index)
    lone.me.syncing = True
    lone.me.flush()
    lone.settle(0.01)

    assert lone.replica.commit_index == index


def test_power_loss_of_all_who_removed_a_voter_leaves_no_need_of_it() -> None:
    """It has let go of its log by then: whoever counted everyone with it would wait for ever."""
    cluster = relaxed_cluster()
    leader = cluster.elect()
    stays, leaves = cluster.followers()
    cluster.change(Remove(NodeId(leaves)), leader)
    committed = [cluster.raft_group(name) for name in (leader, stays)]
    cluster.time.run(
        0.04, lambda: all(raft_group.membership.is_committed for raft_group in committed)
    )
    assert cluster.raft_group(leader).membership.is_committed
    host = cluster.nodes[leaves].host
    assert host is not None
    host.retire_raft_group(GROUP)
    cluster.nodes[leaves].flush()

    for name in (leader, stays):
        cluster.kill(name, power=True)
    for name in (leader, stays):
        cluster.restart(name)
    survivors = [cluster.raft_group(name) for name in (leader, stays)]

    assert cluster.time.run(20.0, lambda: any(one.is_ready_leader for one in survivors))
