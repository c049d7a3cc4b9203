"""A read index is given only by who still leads, and knows all that was committed."""

from __future__ import annotations

from goqueue.wire.types import Index
from raft import frames
from raft.config import RaftConfig
from raft.frames import FrameKind
from raft.group import RaftGroup
from tests.unit.raft.cluster import Cluster, Lone, append_frame, command, fails_under
from tests.unit.raft.mutants import (
    AnyRoundConfirms,
    ReadsAwaitNoApply,
    ReadsUnconfirmed,
    ReadyBeforeNoop,
)


def ask(raft_group: RaftGroup) -> list[tuple[bool, Index]]:
    answers: list[tuple[bool, Index]] = []
    raft_group.reads.ask(lambda ok, index: answers.append((ok, index)))
    return answers


def test_read_index_covers_everything_acknowledged_before() -> None:
    cluster = Cluster(3)
    index = cluster.propose(b"x")
    cluster.settle()
    leader = cluster.elect()

    answers = ask(cluster.raft_group(leader))
    cluster.settle(0.1)

    assert len(answers) == 1
    assert answers[0][0]
    assert answers[0][1] >= index


def test_reads_of_one_turn_share_one_round() -> None:
    cluster = Cluster(3)
    leader = cluster.elect()
    cluster.settle()
    sent = len(cluster.net.log)

    answers = [ask(cluster.raft_group(leader)) for _ in range(100)]
    cluster.settle(0.05)

    assert all(answer[0][0] for answer in answers)
    beats = [s for s in cluster.net.log[sent:] if s.kind == FrameKind.BEAT]
    assert len(beats) == 2


@fails_under(ReadsUnconfirmed)
def test_leader_that_was_replaced_gives_no_read_index(raft_group_type: type[RaftGroup]) -> None:
    cluster = Cluster(3, raft_group_type=raft_group_type)
    old = cluster.elect()
    cluster.settle()
    cluster.mute(old)

    answers = ask(cluster.raft_group(old))
    cluster.settle(5)

    assert answers == [(False, 0)]


@fails_under(ReadyBeforeNoop)
def test_new_leader_answers_reads_only_after_its_own_noop(raft_group_type: type[RaftGroup]) -> None:
    lone = Lone(raft_group_type=raft_group_type)
    lone.hear("b", append_frame(1, 1, 0, 1, [command(2, 1, b"committed elsewhere")]), 0.05)
    lone.lead(votes=("c",))

    answers = ask(lone.replica)
    lone.settle(0.01)

    assert not lone.replica.is_ready_leader
    assert answers == [(False, 0)]


@fails_under(ReadsAwaitNoApply)
def test_read_index_is_told_once_all_that_it_covers_has_applied(
    raft_group_type: type[RaftGroup],
) -> None:
    config = RaftConfig(apply_slice_s=0.001)
    lone = Lone(raft_group_type=raft_group_type, config=config)
    lone.lead()
    lone.ack_all()
    lone.me.machine.on_apply = lambda: lone.time.pass_by(0.01)
    for _ in range(5):
        lone.propose(b"x", "a")
    lone.settle(0.02)
    told: list[int] = []
    replica = lone.replica
    lone.hear("b", frames.ack(replica.term, lone.log.last_index))
    replica.flush()
    assert replica.applied_index < replica.commit_index == lone.log.last_index

    replica.reads.ask(lambda _ok, _index: told.append(replica.applied_index))
    replica.flush()
    asked = frames.parse_beat(lone.said(FrameKind.BEAT, "b")[-1])[3]
    lone.hear("b", frames.beat_answer(replica.term, asked, lone.log.last_index), 1.0)

    assert told == [lone.log.last_index]


@fails_under(AnyRoundConfirms)
def test_answer_to_an_earlier_round_confirms_no_later_read(
    raft_group_type: type[RaftGroup],
) -> None:
    lone = Lone(raft_group_type=raft_group_type)
    term = lone.lead()
    lone.ack_all()
    early = ask(lone.replica)
    lone.settle(0.01)
    first = frames.parse_beat(lone.said(FrameKind.BEAT, "b")[-1])[3]
    late = ask(lone.replica)
    lone.settle(0.01)

    lone.hear("b", frames.beat_answer(term, first, lone.log.last_index), 0.01)
    assert [ok for ok, _index in early] == [True]
    assert late == []
    lone.hear("b", frames.beat_answer(term, first + 1, lone.log.last_index), 0.01)
    assert [ok for ok, _index in late] == [True]


def test_followers_give_no_read_index() -> None:
    cluster = Cluster(3)
    cluster.elect()
    assert ask(cluster.raft_group(cluster.followers()[0])) == [(False, 0)]


def test_single_voter_answers_without_asking_anybody() -> None:
    cluster = Cluster(1)
    cluster.elect()
    answers = ask(cluster.raft_group("a"))
    cluster.settle(0.01)
    assert answers == [(True, cluster.raft_group("a").commit_index)]
