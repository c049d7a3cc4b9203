"""Every proposer is told once how it ended, and never something untrue."""

from __future__ import annotations

import pytest

from goqueue.wire.errors import GoQueueError
from goqueue.wire.types import Index, NodeId, PartitionId, TopicId
from log.entry import Entry
from raft.errors import ApplyFailed, NotLeader, Outcome
from raft.group import RaftGroup
from tests.unit.raft.cluster import (
    GROUP,
    Cluster,
    Lone,
    Machine,
    append_frame,
    command,
    fails_under,
)
from tests.unit.raft.mutants import (
    ApplyErrorsIgnored,
    ApplyNeverYields,
    DiscardedMeansApplied,
    TruncationMeansNone,
    WaitersForgotten,
)


@fails_under(DiscardedMeansApplied)
def test_proposal_whose_index_was_taken_by_another_entry_is_none(
    raft_group_type: type[RaftGroup],
) -> None:
    lone = Lone(raft_group_type=raft_group_type)
    term = lone.lead()
    lone.ack_all()
    index = lone.propose(b"mine", on="a")

    lone.hear("b", append_frame(term + 1, 2, term, index, [command(index, term + 1, b"its")]), 0.1)

    assert lone.outcomes(b"mine") == [Outcome.NONE]
    assert lone.bodies("a") == [b"its"]


@fails_under(TruncationMeansNone)
def test_truncated_proposal_may_still_be_applied(raft_group_type: type[RaftGroup]) -> None:
    lone = Lone(raft_group_type=raft_group_type)
    term = lone.lead()
    lone.ack_all()
    index = lone.propose(b"mine", on="a")
    entry = lone.log.entries(index)[0]

    lone.hear("b", append_frame(term + 1, 2, term, 2, [command(index, term + 1, b"its")]), 0.05)
    assert lone.outcomes(b"mine") == []
    lone.hear("c", append_frame(term + 2, 2, term, index, [entry]), 0.05)

    assert lone.outcomes(b"mine") == [Outcome.APPLIED]


@fails_under(WaitersForgotten)
def test_leader_that_steps_down_answers_unknown(raft_group_type: type[RaftGroup]) -> None:
    cluster = Cluster(3, raft_group_type=raft_group_type)
    leader = cluster.elect()
    cluster.settle()
    cluster.mute(leader)

    cluster.propose(b"x", on=leader)
    cluster.settle(5)

    assert cluster.outcomes(b"x") == [Outcome.UNKNOWN]


@fails_under(WaitersForgotten)
def test_stop_answers_whoever_waits(raft_group_type: type[RaftGroup]) -> None:
    cluster = Cluster(3, raft_group_type=raft_group_type)
    leader = cluster.elect()
    reads: list[bool] = []
    cluster.propose(b"x", on=leader)
    cluster.raft_group(leader).reads.ask(lambda ok, _index: reads.append(ok))

    raft_group = cluster.raft_group(leader)
    raft_group.stop()
    raft_group.stop()
    cluster.settle(2)

    assert cluster.outcomes(b"x") == [Outcome.UNKNOWN]
    assert reads == [False]


def test_proposals_of_a_transferred_leader_learn_their_true_outcome() -> None:
    cluster = Cluster(3)
    leader = cluster.elect()
    for number in range(10):
        cluster.propose(b"%d" % number, on=leader)

    cluster.raft_group(leader).transfer.start()
    cluster.settle(2)

    assert cluster.leader() != leader
    outcomes = [outcome for _body, outcome, _result, _index in cluster.answers]
    assert outcomes == [Outcome.APPLIED] * 10


@fails_under(ApplyErrorsIgnored)
def test_exception_in_apply_stops_the_replica_loudly(raft_group_type: type[RaftGroup]) -> None:
    cluster = Cluster(3, raft_group_type=raft_group_type)
    leader = cluster.elect()
    cluster.nodes[leader].machine.poison = b"boom"

    cluster.propose(b"boom", on=leader)
    cluster.propose(b"next", on=leader)
    cluster.settle(2)

    failed = cluster.raft_group(leader).failed
    assert isinstance(failed, ApplyFailed)
    assert cluster.nodes[leader].failures == [failed]
    assert cluster.outcomes(b"boom") == cluster.outcomes(b"next") == [Outcome.UNKNOWN]
    assert cluster.bodies(leader) == []
    with pytest.raises(NotLeader):
        cluster.propose(b"more", on=leader)

    survivor = cluster.elect()
    assert survivor != leader
    cluster.settle()
    assert cluster.bodies(survivor) == [b"boom", b"next"]


@fails_under(ApplyNeverYields)
def test_apply_yields_after_its_slice(raft_group_type: type[RaftGroup]) -> None:
    lone = Lone(raft_group_type=raft_group_type)
    lone.me.machine.on_apply = lambda: lone.time.pass_by(0.0005)
    entries = [command(index, 1, b"x") for index in range(2, 102)]
    host = lone.me.host
    assert host is not None
    host.receive(NodeId("b"), GROUP, append_frame(1, 1, 0, 101, entries))

    applied_in_turn: list[int] = []
    while lone.replica.applied_index < 101:
        before = lone.replica.applied_index
        host._flush()
        applied_in_turn.append(lone.replica.applied_index - before)

    assert max(applied_in_turn) <= 6


def test_entries_are_read_once_where_reading_takes_longer_than_a_slice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lone = Lone()
    host = lone.me.host
    assert host is not None
    read, firsts = lone.log.entries, list[int]()

    def slow_read(first: Index, *, max_bytes: int = 1 << 20, max_count: int = 1) -> list[Entry]:
        lone.time.pass_by(0.003)
        firsts.append(first)
        return read(first, max_bytes=max_bytes, max_count=max_count)

    entries = [command(index, 1, b"x") for index in range(2, 102)]
    host.receive(NodeId("b"), GROUP, append_frame(1, 1, 0, 101, entries))
    monkeypatch.setattr(lone.log, "entries", slow_read)
    turns = 0
    while lone.replica.applied_index < 101:
        host._flush()
        turns += 1

    assert len(firsts) == 1
    assert turns == 2


def test_failing_store_stops_the_leader_and_reports() -> None:
    cluster = Cluster(3)
    leader = cluster.elect()
    cluster.nodes[leader].store.failed = OSError("disk gone")

    with pytest.raises(GoQueueError):
        cluster.propose(b"x", on=leader)

    assert cluster.raft_group(leader).failed is not None
    assert cluster.elect() != leader


def test_callback_that_raises_does_not_stop_the_group() -> None:
    cluster = Cluster(3)
    leader = cluster.elect()

    def bad(*_args: object) -> None:
        raise RuntimeError("a bug above")

    cluster.raft_group(leader).propose(4, b"x", callback=bad)
    cluster.raft_group(leader).reads.ask(bad)
    cluster.propose(b"y", on=leader)
    cluster.settle()

    assert cluster.outcomes(b"y") == [Outcome.APPLIED]
    assert cluster.raft_group(leader).failed is None


def test_state_machine_hears_of_every_change_of_leadership() -> None:
    cluster = Cluster(3)
    leader = cluster.elect()
    cluster.settle()
    follower = cluster.followers()[0]

    cluster.kill(leader)
    second = cluster.elect()
    cluster.settle()

    assert ("follower", leader) in cluster.nodes[follower].machine.events
    terms = [e for e in cluster.nodes[second].machine.events if e[0] == "leader"]
    assert terms == [("leader", cluster.raft_group(second).term)]
    third = next(n for n in cluster.nodes if n not in (leader, second))
    assert cluster.nodes[third].machine.events[-1] == ("follower", second)


def test_unexpected_error_stops_one_replica_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(3)
    leader = cluster.elect()
    other = PartitionId(TopicId(7, 2), 0)
    machines = [Machine() for _ in cluster.nodes]
    for node, machine in zip(cluster.nodes.values(), machines, strict=True):
        assert node.host is not None
        node.host.start_raft_group(other, cluster.voters, machine, bootstrap=True)
    cluster.settle(2)
    error = RuntimeError("a bug")

    def broken() -> None:
        raise error

    monkeypatch.setattr(cluster.raft_group(leader).replication, "advance_commit", broken)
    cluster.propose(b"x", on=leader)
    cluster.settle(3)

    assert cluster.raft_group(leader).failed is error
    assert cluster.outcomes(b"x") == [Outcome.UNKNOWN]
    host = cluster.nodes[leader].host
    assert host is not None
    assert host.raft_group(other).failed is None
    assert host.raft_group(other).election.has_quorum
    assert cluster.elect() != leader
