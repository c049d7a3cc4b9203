"""What a follower keeps, when it acknowledges, and what a leader may count as committed."""

from __future__ import annotations

from goqueue.wire.types import Index, NodeId
from log.entry import Entry
from raft import frames
from raft.errors import Unsafe
from raft.frames import FrameKind
from raft.group import RaftGroup
from tests.unit.raft.cluster import GROUP, Cluster, Lone, Sent, append_frame, command, fails_under
from tests.unit.raft.mutants import (
    AckBeforeSync,
    BackOffByOne,
    CommitBeyondMatch,
    CommitIndexBelieved,
    LeaderCountsUnsynced,
    NoWindow,
    OldTermCommit,
    TermlessAcks,
    TruncateAlways,
    VoteForgotten,
    VoteToldUnsynced,
)


def ten_entries() -> list[Entry]:
    return [command(index, 1, b"%d" % index) for index in range(2, 12)]


@fails_under(TruncateAlways)
def test_older_append_or_empty_one_truncates_nothing(raft_group_type: type[RaftGroup]) -> None:
    lone = Lone(raft_group_type=raft_group_type)
    lone.hear("b", append_frame(1, 1, 0, 1, ten_entries()), 0.05)
    lone.hear("b", append_frame(1, 11, 1, 11), 0.05)

    lone.hear("b", append_frame(1, 4, 1, 11), 0.05)
    lone.hear("b", append_frame(1, 2, 1, 11, ten_entries()[1:3]), 0.05)

    assert lone.log.last_index == 11
    assert lone.replica.commit_index == 11
    assert lone.replica.failed is None


def test_conflicting_suffix_is_replaced_by_the_leaders() -> None:
    lone = Lone()
    lone.hear("b", append_frame(1, 1, 0, 1, ten_entries()), 0.05)

    lone.hear("c", append_frame(2, 5, 1, 5, [command(6, 2, b"new")]), 0.05)

    assert lone.log.last_index == 6
    assert lone.log.term_at(lone.log.last_index) == 2
    assert lone.acked("c") == [6]


def test_conflict_with_a_committed_entry_stops_the_replica() -> None:
    lone = Lone()
    lone.hear("b", append_frame(1, 1, 0, 11, ten_entries()), 0.05)

    lone.hear("c", append_frame(2, 5, 1, 5, [command(6, 2, b"new")]), 0.05)

    assert isinstance(lone.replica.failed, Unsafe)
    assert lone.me.failures == [lone.replica.failed]
    assert lone.log.last_index == 11
    assert lone.acked("c") == []


@fails_under(TermlessAcks)
def test_acknowledgement_of_an_earlier_term_commits_nothing(
    raft_group_type: type[RaftGroup],
) -> None:
    lone = Lone(raft_group_type=raft_group_type)
    first = lone.lead()
    lone.ack_all()
    lone.hear("c", frames.vote(first + 1, 99, first, frames.TRANSFER), 0.05)
    second = lone.lead()
    lone.ack_all()
    lone.propose(b"x", on="a")

    late = lone.log.last_index
    lone.hear("b", frames.ack(first, late), 0.05)

    assert second > first
    assert lone.outcomes(b"x") == []
    assert lone.replica.commit_index < late


@fails_under(AckBeforeSync)
def test_follower_acknowledges_after_its_sync(raft_group_type: type[RaftGroup]) -> None:
    lone = Lone(raft_group_type=raft_group_type)
    lone.hear("b", append_frame(1, 1, 0, 1), 0.05)
    lone.me.syncing = False

    lone.hear("b", append_frame(1, 1, 0, 1, ten_entries()), 0.5)
    before = lone.acked("b")
    lone.me.syncing = True
    lone.me.flush()
    lone.settle(0.05)

    assert before == [1]
    assert lone.acked("b") == [1, 11]


@fails_under(LeaderCountsUnsynced)
def test_leader_counts_itself_only_by_its_durable_index(raft_group_type: type[RaftGroup]) -> None:
    lone = Lone(raft_group_type=raft_group_type)
    lone.lead()
    lone.ack_all()
    lone.me.syncing = False

    lone.propose(b"x", on="a")
    lone.settle(0.05)
    lone.ack_all()
    assert lone.outcomes(b"x") == []

    lone.me.syncing = True
    lone.me.flush()
    lone.settle(0.05)
    assert len(lone.outcomes(b"x")) == 1


@fails_under(VoteToldUnsynced)
def test_vote_is_told_after_it_is_durable(raft_group_type: type[RaftGroup]) -> None:
    lone = Lone(raft_group_type=raft_group_type)
    lone.me.syncing = False

    lone.hear("b", frames.vote(5, 9, 4, 0), 0.5)
    before = lone.granted("b", 5)
    lone.me.syncing = True
    lone.me.flush()
    lone.settle(0.05)

    assert not before
    assert lone.granted("b", 5)


@fails_under(VoteToldUnsynced)
def test_candidate_asks_for_votes_after_its_own_is_durable(
    raft_group_type: type[RaftGroup],
) -> None:
    lone = Lone(raft_group_type=raft_group_type)
    lone.me.syncing = False
    lone.time.run(3, lambda: bool(lone.said(FrameKind.VOTE)))

    lone.hear("b", frames.vote_reply(0, 1, frames.PRE | frames.GRANTED), 0.05)
    asked = [frames.parse_vote(frame)[0] for frame in lone.said(FrameKind.VOTE)]

    assert lone.replica.term == 1
    assert set(asked) == {frames.PRE}


@fails_under(VoteForgotten)
def test_voter_remembers_its_vote_after_a_power_cut(raft_group_type: type[RaftGroup]) -> None:
    lone = Lone(raft_group_type=raft_group_type)
    lone.hear("b", frames.vote(5, 9, 4, 0), 0.05)
    assert lone.granted("b", 5)

    lone.kill("a", power=True)
    lone.me.open()
    lone.start_raft_group("a")
    lone.link_up()
    lone.hear("c", frames.vote(5, 9, 4, 0), 0.05)

    assert lone.replica.term == 5
    assert not lone.granted("c", 5)


@fails_under(CommitIndexBelieved)
def test_restart_believes_nothing_committed_beyond_its_log(
    raft_group_type: type[RaftGroup],
) -> None:
    lone = Lone(raft_group_type=RaftGroup)
    lone.hear("b", append_frame(1, 1, 0, 1, ten_entries()), 0.05)
    lone.kill("a")

    lone.raft_group_type = raft_group_type
    lone.me.open()
    lone.start_raft_group("a")

    assert lone.replica.commit_index <= lone.log.last_index
    lone.settle(0.05)
    assert lone.me.machine.applied == []


@fails_under(OldTermCommit)
def test_leader_commits_older_terms_only_by_an_entry_of_its_own(
    raft_group_type: type[RaftGroup],
) -> None:
    lone = Lone(raft_group_type=raft_group_type)
    lone.hear("b", append_frame(1, 1, 0, 1, [command(2, 1, b"old")]), 0.05)
    term = lone.lead(votes=("c",))

    lone.hear("c", frames.ack(term, 2), 0.05)
    assert lone.replica.commit_index < 2

    lone.hear("c", frames.ack(term, 3), 0.05)
    assert lone.replica.commit_index == 3
    assert lone.bodies("a") == [b"old"]


@fails_under(CommitBeyondMatch)
def test_follower_commits_only_what_it_knows_to_match(raft_group_type: type[RaftGroup]) -> None:
    lone = Lone(raft_group_type=raft_group_type)
    lone.hear("b", append_frame(1, 1, 0, 1, ten_entries()), 0.05)

    lone.hear("c", append_frame(2, 3, 1, 9), 0.05)

    assert lone.replica.commit_index == 3


@fails_under(NoWindow)
def test_silent_follower_is_sent_no_more_than_its_window(raft_group_type: type[RaftGroup]) -> None:
    lone = Lone(raft_group_type=raft_group_type)
    lone.lead()
    lone.ack_all("b")
    lone.ack_all("c")
    window = lone.config.window_bytes

    sent_before = len(lone.net.log)
    for _ in range(40):
        lone.propose(bytes(500_000), on="a")
        lone.settle(0.001)
    sent = sum(len(s.frame) for s in lone.net.log[sent_before:] if s.target == "b")
    assert window <= sent <= window + 1_000_000

    lone.hear("b", frames.ack(lone.replica.term, lone.log.last_index - 20), 0.01)
    more = sum(len(s.frame) for s in lone.net.log[sent_before:] if s.target == "b")
    assert more > sent


@fails_under(BackOffByOne)
def test_back_off_takes_whole_terms_at_once(raft_group_type: type[RaftGroup]) -> None:
    lone = Lone(raft_group_type=raft_group_type)
    entries = [command(index, 1, b"mine") for index in range(2, 400)]
    lone.hear("b", append_frame(1, 1, 0, 1, entries), 0.05)
    term = lone.lead(votes=("c",))

    prev = frames.parse_append(lone.said(FrameKind.APPEND, "b")[-1])[1]
    lone.hear("b", frames.rejection(term, prev, 300, 0), 0.01)  # b's 300 entries are of term 0

    assert frames.parse_append(lone.said(FrameKind.APPEND, "b")[-1])[1] == 1


def test_lost_frames_and_lost_answers_are_sent_again() -> None:
    cluster = Cluster(3)
    leader = cluster.elect()
    lost: list[int] = []

    def lose(sent: Sent) -> bool:
        if sent.kind in (FrameKind.APPEND, FrameKind.ACK) and len(lost) < 12:
            lost.append(sent.kind)
            return False
        return True

    cluster.net.filter = lose
    for number in range(5):
        cluster.propose(b"%d" % number, on=leader)
    cluster.settle(2)

    assert len(lost) == 12
    assert [cluster.bodies(name) for name in cluster.nodes] == [[b"0", b"1", b"2", b"3", b"4"]] * 3


def test_entries_of_megabytes_travel_whole() -> None:
    cluster = Cluster(3)
    big = bytes(range(256)) * 12_000

    cluster.propose(big)
    cluster.propose(b"after")
    cluster.settle()

    assert [cluster.bodies(name) for name in cluster.nodes] == [[big, b"after"]] * 3


def test_replicas_hold_the_same_frames() -> None:
    cluster = Cluster(3)
    for number in range(20):
        cluster.propose(b"%d" % number)
    cluster.settle()

    logs = [
        [entry.frame for entry in node.store.partition_log(GROUP).entries(Index(1))]
        for node in cluster.nodes.values()
    ]
    assert logs[0] == logs[1] == logs[2]
    assert len(logs[0]) == 22


def test_entries_carry_what_each_voter_was_known_to_hold() -> None:
    cluster = Cluster(3)
    leader = cluster.elect()
    for number in range(5):
        cluster.propose(b"%d" % number)
        cluster.settle(0.1)

    entries = cluster.nodes[leader].store.partition_log(GROUP).entries(Index(3))
    for entry in entries:
        assert entry.matches == (entry.index - 1,) * 3
    assert list(cluster.raft_group(leader).replication.matches()) == sorted(cluster.nodes)
    assert cluster.raft_group(leader).replication.trim_limit == entries[-1].index


def test_trim_limit_waits_for_the_voter_that_lags() -> None:
    cluster = Cluster(3)
    leader = cluster.elect()
    cluster.settle()
    behind = cluster.followers()[0]
    held = cluster.raft_group(leader).replication.matches()[cluster.raft_group(behind).node]
    cluster.kill(behind)
    for number in range(5):
        cluster.propose(b"%d" % number)
    cluster.settle(0.5)

    assert cluster.raft_group(leader).replication.trim_limit == held
    cluster.restart(behind)
    cluster.settle()
    assert (
        cluster.raft_group(leader).replication.trim_limit == cluster.raft_group(leader).commit_index
    )


def test_follower_that_needs_trimmed_entries_is_named_and_not_fed_garbage() -> None:
    cluster = Cluster(3)
    leader = cluster.elect()
    for number in range(5):
        cluster.propose(b"%d" % number)
    cluster.settle()
    late = cluster.followers()[0]
    cluster.kill(late)
    cluster.nodes[late].disk = type(cluster.nodes[late].disk)()
    log = cluster.nodes[leader].store.partition_log(GROUP)
    peer = cluster.raft_group(leader).peers[NodeId(late)]
    log.first_index = Index(5)

    cluster.raft_group(leader).state.next_index[peer] = 2
    peer.connected = True
    cluster.raft_group(leader).replication._send_append(peer, log.last_index)

    assert [one.node for one in cluster.raft_group(leader).peers.values() if one.behind] == [late]
    assert cluster.raft_group(leader).is_ready_leader
