"""A group grows and shrinks one replica at a time, whoever dies meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from goqueue.wire.types import Incarnation, Index, NodeId, Voter
from log.entry import Entry, EntryKind, make_entry
from log.errors import EntryDamaged
from raft import frames
from raft.config import RaftConfig
from raft.configuration import (
    AddLearner,
    Configuration,
    Confirm,
    Promote,
    Remove,
    encode_configuration,
    unpack_snapshot,
)
from raft.errors import ChangeUnderWay, NotCaughtUp, NotLeader, Outcome
from raft.frames import FrameKind
from raft.group import RaftGroup
from tests.unit.raft.cluster import (
    EPOCH_MS,
    GROUP,
    Cluster,
    ClusterNode,
    Lone,
    Sent,
    append_frame,
    fails_under,
)
from tests.unit.raft.mutants import (
    ChangesAtOnce,
    ConfigurationAwaitsCommit,
    JoinersTrusted,
    LearnerCountsItself,
    LearnersCount,
    LearnersStandBy,
    OnlyOwnConfigurationVotes,
    RemovalOutlivesTruncation,
    RemovedGiveUp,
    RemovedLeaderCounts,
)


def grow(cluster: Cluster, name: str) -> None:
    """This node joins, catches up and gets a vote."""
    cluster.change(AddLearner(cluster.join(name)))
    cluster.settle()
    cluster.change(Promote(NodeId(name)))
    cluster.settle()


def drop(cluster: Cluster, name: str) -> None:
    cluster.change(Remove(NodeId(name)))
    cluster.settle()


def no_appends_from(leader: str, *targets: str) -> Callable[[Sent], bool]:
    """Entries of this node reach none of these; heartbeats and votes do."""

    def passes(sent: Sent) -> bool:
        append = sent.partition_id == GROUP and sent.kind == FrameKind.APPEND
        return not (append and sent.source == leader and (not targets or sent.target in targets))

    return passes


# -- growing and shrinking


def test_group_grows_to_five_and_shrinks_to_three_under_proposals() -> None:
    cluster = Cluster(3, spares=2)
    sent = []
    for name in "de":
        sent.append(b"before " + name.encode())
        cluster.propose(sent[-1])
        grow(cluster, name)
    assert {cluster.voting(name) for name in cluster.nodes} == {"abcde"}

    for name in "ab":
        sent.append(b"without " + name.encode())
        cluster.propose(sent[-1])
        drop(cluster, name)
        cluster.settle(2)
        cluster.kill(name)
    cluster.propose(b"end")
    cluster.settle(2)

    assert {cluster.voting(name) for name in "cde"} == {"cde"}
    assert {tuple(cluster.bodies(name)) for name in "cde"} == {(*sent, b"end")}
    assert all(cluster.outcomes(body) == [Outcome.APPLIED] for body in sent)


def test_a_confirmation_changes_nothing_but_index_and_epoch_and_is_one_change_at_a_time() -> None:
    cluster = Cluster(3)
    leader = cluster.elect()
    before = cluster.raft_group(leader).membership.configuration

    cluster.raft_group(leader).changes.change(Confirm(), lambda *_: None, epoch=4)
    with pytest.raises(ChangeUnderWay):
        cluster.raft_group(leader).changes.change(Confirm(), lambda *_: None, epoch=5)
    cluster.settle()
    for name in "abc":
        now = cluster.raft_group(name).membership.before
        assert (now.voters, now.learners, now.epoch) == (before.voters, (), 4)
        assert now.index > before.index
    cluster.kill(leader, power=True)
    cluster.restart(leader)
    cluster.settle()

    assert cluster.raft_group(leader).membership.configuration.epoch == 4


def test_replica_that_starts_empty_learns_its_configuration_and_keeps_it() -> None:
    cluster = Cluster(3, spares=1)
    cluster.propose(b"x")
    joiner = cluster.join("d")
    cluster.settle(3)
    assert cluster.raft_group("d").membership.configuration.members == ()
    assert cluster.raft_group("d").term == 0

    cluster.change(AddLearner(joiner))
    cluster.settle()
    assert (cluster.voting("d"), cluster.learning("d")) == ("abc", "d")
    assert cluster.raft_group("d").is_learner
    assert cluster.bodies("d") == [b"x"]

    cluster.kill("d", power=True)
    cluster.restart("d")
    cluster.settle()
    assert (cluster.voting("d"), cluster.learning("d")) == ("abc", "d")


@fails_under(LearnersCount)
def test_entry_that_only_a_learner_holds_is_not_committed(raft_group_type: type[RaftGroup]) -> None:
    cluster = Cluster(3, spares=1, raft_group_type=raft_group_type)
    leader = cluster.elect()
    cluster.change(AddLearner(cluster.join("d")))
    cluster.settle()

    for name in cluster.followers():
        cluster.mute(name)
    cluster.net.silent = {link for link in cluster.net.silent if "d" not in link}
    cluster.propose(b"lonely", on=leader)
    cluster.settle(0.3)

    assert cluster.outcomes(b"lonely") == []


def test_learner_neither_campaigns_nor_votes_for_who_does_not_name_it() -> None:
    cluster = Cluster(3, spares=1)
    leader = cluster.elect()
    cluster.change(AddLearner(cluster.join("d")))
    cluster.settle()

    for name in cluster.followers():
        cluster.kill(name)
    cluster.settle(6)

    assert cluster.leader() is None
    assert not cluster.raft_group("d").is_leader
    votes = [sent for sent in cluster.net.log if sent.kind == FrameKind.VOTE]
    assert not any(sent.source == "d" or sent.target == "d" for sent in votes)
    assert cluster.raft_group(leader).term == cluster.raft_group("d").term


def test_learner_is_promoted_only_once_it_has_caught_up() -> None:
    cluster = Cluster(3, spares=1)
    leader = cluster.elect()
    cluster.net.filter = no_appends_from(leader, "d")
    cluster.change(AddLearner(cluster.join("d")))
    cluster.settle()

    assert not cluster.raft_group(leader).replication.caught_up(NodeId("d"))
    with pytest.raises(NotCaughtUp):
        cluster.change(Promote(NodeId("d")))

    cluster.net.filter = None
    cluster.settle()
    assert cluster.raft_group(leader).replication.caught_up(NodeId("d"))
    cluster.settle(20)
    cluster.propose(b"after a long silence")
    cluster.settle(0.1)
    assert cluster.raft_group(leader).replication.caught_up(NodeId("d"))
    cluster.change(Promote(NodeId("d")))
    cluster.settle()
    assert not cluster.raft_group("d").is_learner


def test_slow_learner_of_an_idle_group_has_caught_up_once_it_holds_everything() -> None:
    cluster = Cluster(3, spares=1, config=RaftConfig(append_entries=1))
    leader = cluster.elect()
    joiner = cluster.join("d")
    cluster.nodes["d"].sync_s = 4.0
    cluster.change(AddLearner(joiner))
    cluster.settle(1.0)
    cluster.propose(b"the last one")

    cluster.settle(20)

    assert cluster.raft_group(leader).replication.caught_up(NodeId("d"))
    cluster.change(Promote(NodeId("d")))


def test_replica_applies_the_configurations_that_damage_hid_from_it_as_it_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster(3, spares=1)
    cluster.propose(b"w")
    cluster.settle()
    damaged = cluster.raft_group("a").applied_index + 1
    grow(cluster, "d")
    cluster.propose(b"x")
    cluster.settle()
    name = cluster.followers()[0]
    told = cluster.raft_group(cluster.elect()).membership.configuration
    log, host = cluster.nodes[name].store.partition_log(GROUP), cluster.nodes[name].host
    assert host is not None
    host.stop_raft_group(GROUP)
    read = log.entries

    def entries(first: Index, **bounds: int) -> Sequence[Entry]:
        found = [entry for entry in read(first, **bounds) if entry.index < damaged]
        if not found:
            raise EntryDamaged(str(GROUP), first, log.last_index, "a bit flipped")
        return found

    with monkeypatch.context() as patched:
        patched.setattr(
            type(log), "entries", lambda _log, first, **bounds: entries(first, **bounds)
        )
        cluster.start_raft_group(name)
        assert cluster.voting(name) == "abc"
    noted: list[int] = []
    cluster.raft_group(name).membership.on_voters = lambda one: noted.append(one.index)
    cluster.settle()

    assert cluster.raft_group(name).membership.configuration == told
    assert cluster.voting(name) == "abcd"
    assert len(noted) == len({*noted}) == 3
    work = cluster.raft_group(name).apply.take_snapshot()
    assert work is not None
    work.run()
    kept = log.latest_snapshot()
    assert kept is not None
    assert unpack_snapshot(kept[1])[0] == told


# -- one at a time


@fails_under(ChangesAtOnce)
def test_second_change_waits_for_the_first_to_commit(raft_group_type: type[RaftGroup]) -> None:
    cluster = Cluster(3, spares=2, raft_group_type=raft_group_type)
    leader = cluster.elect()
    joiners = [cluster.join(name) for name in "de"]
    last = cluster.change(AddLearner(joiners[0]))

    refused = False
    try:
        cluster.change(AddLearner(joiners[1]), on=leader)
    except ChangeUnderWay as error:
        refused = error.retriable
    assert refused
    assert cluster.nodes[leader].store.partition_log(GROUP).last_index == last

    cluster.settle()
    cluster.change(AddLearner(joiners[1]))
    cluster.settle()
    assert cluster.learning(leader) == "de"


def test_no_change_before_the_leaders_own_noop_has_committed() -> None:
    lone = Lone()
    lone.lead()

    with pytest.raises(NotLeader):
        lone.change(Remove(NodeId("c")), on="a")
    lone.ack_all()
    lone.change(Remove(NodeId("c")), on="a")
    assert lone.voting("a") == "ab"


# -- interrupted


@fails_under(RemovalOutlivesTruncation)
def test_change_that_nobody_else_has_is_rolled_back(raft_group_type: type[RaftGroup]) -> None:
    cluster = Cluster(3, raft_group_type=raft_group_type)
    leader = cluster.elect()
    cluster.settle()
    other = cluster.followers()[0]
    cluster.net.filter = no_appends_from(leader)
    cluster.change(Remove(NodeId(other)))
    assert other not in cluster.voting(leader)

    cluster.isolate(leader)
    cluster.net.filter = None
    cluster.settle(3)
    cluster.propose(b"meanwhile")
    cluster.settle()
    cluster.connect_all()
    cluster.settle(3)

    assert {cluster.voting(name) for name in "abc"} == {"abc"}
    assert all(cluster.bodies(name) == [b"meanwhile"] for name in "abc")
    peers = cluster.raft_group(leader).state.other_voters
    assert {peer.node for peer in peers} == set("abc") - {leader}


def test_change_that_one_follower_has_survives_its_leader() -> None:
    cluster = Cluster(3, spares=1)
    leader = cluster.elect()
    cluster.settle()
    holder, other = cluster.followers()
    joiner = cluster.join("d")
    cluster.net.filter = no_appends_from(leader, other, "d")
    cluster.change(AddLearner(joiner))
    cluster.time.run(0.02, lambda: cluster.learning(holder) == "d")
    cluster.kill(leader)
    cluster.net.filter = None
    cluster.settle(3)

    assert cluster.leader() == holder
    assert {cluster.learning(name) for name in (holder, other, "d")} == {"d"}
    assert cluster.raft_group(holder).membership.is_committed
    cluster.change(Promote(NodeId("d")))
    cluster.settle()
    cluster.restart(leader)
    cluster.settle()
    assert {cluster.voting(name) for name in cluster.nodes} == {"abcd"}


@fails_under(ConfigurationAwaitsCommit)
def test_configuration_is_in_force_before_it_commits(raft_group_type: type[RaftGroup]) -> None:
    """Four voters need three: two that do not know of the fourth must not decide alone."""
    cluster = Cluster(3, spares=1, raft_group_type=raft_group_type)
    leader = cluster.elect()
    cluster.change(AddLearner(cluster.join("d")))
    cluster.settle()
    cluster.net.filter = no_appends_from(leader, "d", cluster.followers()[0])
    cluster.change(Promote(NodeId("d")))
    cluster.settle(0.3)

    assert cluster.outcomes(repr(Promote(NodeId("d"))).encode()) == []


@fails_under(OnlyOwnConfigurationVotes)
def test_learner_votes_for_a_candidate_that_knows_of_its_promotion(
    raft_group_type: type[RaftGroup],
) -> None:
    """Else one dead leader would be enough to stop four voters for ever."""
    cluster = Cluster(3, spares=1, raft_group_type=raft_group_type)
    leader = cluster.elect()
    cluster.change(AddLearner(cluster.join("d")))
    cluster.settle()
    cluster.net.filter = no_appends_from(leader, "d")
    cluster.change(Promote(NodeId("d")))
    cluster.settle(0.3)
    assert cluster.raft_group("d").is_learner

    cluster.kill(leader)
    cluster.net.filter = None
    cluster.settle(5)

    assert cluster.leader() is not None
    assert cluster.voting("d") == "abcd"


@fails_under(LearnersStandBy)
def test_learner_with_the_newest_log_campaigns_where_it_is_asked_for_its_vote(
    raft_group_type: type[RaftGroup],
) -> None:
    """Else one voter that dies for good would stop the group for ever: its last entry reached the
    learner alone, so that this may vote for nobody, and the others only with it."""
    cluster = Cluster(3, spares=1, raft_group_type=raft_group_type)
    first = cluster.elect()
    cluster.change(AddLearner(cluster.join("d")))
    cluster.settle()
    cluster.net.filter = no_appends_from(first)
    cluster.change(Promote(NodeId("d")))
    cluster.settle(0.1)
    cluster.kill(first)
    cluster.net.filter = lambda sent: sent.target == "d" or sent.kind != FrameKind.APPEND
    cluster.time.run(5, lambda: cluster.raft_group("d").term > 1)
    second = next(name for name in "abc" if name != first and cluster.raft_group(name).is_leader)
    (third,) = set("abc") - {first, second}
    cluster.settle(0.1)
    assert (
        cluster.raft_group("d").state.log.last_index
        > cluster.raft_group(third).state.log.last_index
    )
    assert cluster.raft_group("d").is_learner

    cluster.wipe(second)
    cluster.restart(first)
    assert (cluster.voting(first), cluster.voting(third)) == ("abcd", "abc")
    cluster.net.filter = None
    cluster.settle(5)

    leader = cluster.leader()
    assert leader in (first, third)
    assert {cluster.voting(name) for name in (first, third, "d")} == {"abc"}
    cluster.propose(b"goes on")
    cluster.settle()
    assert cluster.bodies("d") == [b"goes on"]
    cluster.change(Promote(NodeId("d")))
    cluster.settle()
    assert {cluster.voting(name) for name in (first, third, "d")} == {"abcd"}


@fails_under(LearnerCountsItself)
def test_learner_that_campaigns_is_elected_by_the_voters_alone(
    raft_group_type: type[RaftGroup],
) -> None:
    """Its own log says that it has no vote, and so two of three have to vote for it."""
    lone = Lone(3, raft_group_type=raft_group_type)
    voters = tuple(Voter(NodeId(name), Incarnation(at)) for at, name in enumerate("bcd", 1))
    me = Voter(NodeId("a"), lone.me.store.incarnation)
    body = encode_configuration(Configuration(voters, (me,)))
    entry = make_entry(index=2, term=4, time_ms=EPOCH_MS, kind=EntryKind.VOTERS, body=body)
    lone.nodes["d"] = ClusterNode(lone, "d")
    lone.link_up()
    lone.hear("b", append_frame(4, 1, 0, 2, [entry]), 3.0)
    assert lone.replica.is_learner

    lone.hear("c", frames.vote(5, 1, 0, frames.PRE, me.incarnation), 0.02)
    lone.hear("c", frames.vote_reply(4, 5, frames.PRE | frames.GRANTED), 0.02)
    assert lone.replica.term == 4
    lone.hear("d", frames.vote_reply(4, 5, frames.PRE | frames.GRANTED), 0.02)
    assert lone.replica.term == 5
    lone.hear("c", frames.vote_reply(5, 5, frames.GRANTED), 0.02)
    assert not lone.replica.is_leader
    lone.hear("d", frames.vote_reply(5, 5, frames.GRANTED), 0.02)
    assert lone.replica.is_leader


# -- removal


@fails_under(RemovedLeaderCounts)
def test_leader_does_not_count_itself_for_its_own_removal(raft_group_type: type[RaftGroup]) -> None:
    cluster = Cluster(3, raft_group_type=raft_group_type)
    leader = cluster.elect()
    cluster.settle()
    cluster.mute(cluster.followers()[0])
    index = cluster.change(Remove(NodeId(leader)))
    cluster.settle(0.5)

    assert cluster.raft_group(leader).commit_index < index


def test_leader_that_removes_itself_hands_over_and_never_comes_back() -> None:
    cluster = Cluster(3)
    leader = cluster.elect()
    cluster.propose(b"x")
    cluster.settle()
    started = cluster.time.now()
    cluster.change(Remove(NodeId(leader)))
    assert cluster.time.run(1.0, lambda: cluster.leader() not in (None, leader))
    assert cluster.time.now() - started < 0.2

    after = cluster.leader()
    term = cluster.raft_group(after or "").term
    cluster.settle(10)
    assert cluster.leader() == after
    assert cluster.raft_group(after or "").term == term
    assert not cluster.raft_group(leader).is_leader
    assert leader not in cluster.voting(leader)
    cluster.propose(b"y")
    cluster.settle()
    assert cluster.bodies(after or "") == [b"x", b"y"]


@fails_under(RemovedGiveUp)
def test_leader_whose_removal_only_it_holds_may_still_win(raft_group_type: type[RaftGroup]) -> None:
    """Of two voters the one that is being removed holds the newer log: only it can go on."""
    cluster = Cluster(2, raft_group_type=raft_group_type)
    leader = cluster.elect()
    cluster.settle()
    other = cluster.followers()[0]
    cluster.net.filter = no_appends_from(leader)
    cluster.change(Remove(NodeId(leader)))
    cluster.settle(0.1)
    for name in "ab":
        cluster.kill(name)
    cluster.net.filter = None
    for name in "ab":
        cluster.restart(name)

    assert cluster.time.run(10.0, lambda: cluster.leader() == other)
    assert cluster.voting(other) == other


def test_dead_voter_is_removed_and_no_longer_missed() -> None:
    cluster = Cluster(4)
    cluster.settle(3)
    leader = cluster.elect()
    first, second = cluster.followers()[:2]
    cluster.kill(first)
    drop(cluster, first)
    assert cluster.raft_group(leader).membership.is_committed

    cluster.kill(second)
    cluster.settle(3)
    cluster.propose(b"two of three")
    cluster.settle(2)
    assert cluster.outcomes(b"two of three") == [Outcome.APPLIED]


def test_removed_replica_that_does_not_know_it_disturbs_nobody() -> None:
    cluster = Cluster(4)
    leader = cluster.elect()
    cluster.settle()
    gone = cluster.followers()[0]
    cluster.isolate(gone)
    drop(cluster, gone)
    term = cluster.raft_group(leader).term

    for name in cluster.nodes:
        if name != gone:
            cluster.net.connect(gone, name)
    cluster.settle(20)

    assert (cluster.leader(), cluster.raft_group(leader).term) == (leader, term)
    assert gone in cluster.voting(gone)
    asked = [sent for sent in cluster.net.log if sent.source == gone]
    assert any(sent.kind == FrameKind.VOTE for sent in asked)


# -- coming back


def test_wiped_node_comes_back_as_learner_with_its_new_incarnation() -> None:
    cluster = Cluster(3)
    cluster.propose(b"x")
    cluster.settle()
    wiped = cluster.followers()[0]
    cluster.wipe(wiped)
    again = cluster.join(wiped)
    assert again not in cluster.voters
    cluster.settle(3)
    assert cluster.raft_group(wiped).membership.is_refused

    drop(cluster, wiped)
    cluster.change(AddLearner(again))
    cluster.settle()
    assert cluster.raft_group(wiped).is_learner
    assert not cluster.raft_group(wiped).membership.is_refused
    cluster.change(Promote(NodeId(wiped)))
    cluster.settle()

    cluster.kill(cluster.elect())
    cluster.elect()
    cluster.propose(b"y")
    cluster.settle()
    assert cluster.bodies(wiped) == [b"x", b"y"]


def test_node_that_begins_anew_confirms_nothing_in_its_former_place() -> None:
    """Its former data directory may have voted for another leader of which this one knows nothing:
    until it has been removed, who has come in its place counts for nobody."""
    cluster = Cluster(3)
    cluster.net.proves_incarnations = True
    leader = cluster.elect()
    cluster.propose(b"x")
    cluster.settle()
    wiped, cut = cluster.followers()
    cluster.wipe(wiped)
    cluster.isolate(cut)
    cluster.join(wiped)

    cluster.propose(b"y", leader)
    cluster.settle(3)

    assert cluster.raft_group(wiped).membership.configuration.members == ()
    assert not cluster.raft_group(leader).is_leader
    assert cluster.bodies(leader) == [b"x"]


def test_node_that_begins_anew_is_linked_once_it_takes_part_itself() -> None:
    cluster = Cluster(3)
    cluster.net.proves_incarnations = True
    cluster.propose(b"x")
    cluster.settle()
    wiped = cluster.followers()[0]
    cluster.wipe(wiped)
    again = cluster.join(wiped)
    cluster.settle(3)

    drop(cluster, wiped)
    cluster.change(AddLearner(again))
    cluster.settle()
    cluster.change(Promote(NodeId(wiped)))
    cluster.settle()
    cluster.kill(cluster.elect())
    cluster.elect()
    cluster.propose(b"y")
    cluster.settle()

    assert cluster.bodies(wiped) == [b"x", b"y"]


def test_replica_that_starts_long_after_its_link_is_known_to_keep_up_though_all_is_idle() -> None:
    """What its leader asked it when the link came up went to nobody."""
    cluster = Cluster(3)
    cluster.propose(b"x")
    cluster.settle()
    leader, late = cluster.elect(), cluster.followers()[0]
    cluster.kill(late)
    cluster.nodes[late].open()
    cluster.connect_all()
    cluster.settle(1)

    cluster.start_raft_group(late)
    cluster.settle(1)

    assert cluster.raft_group(leader).replication.in_step(NodeId(late))
    assert cluster.raft_group(leader).replication.caught_up(NodeId(late))


@fails_under(JoinersTrusted)
def test_replica_that_joins_again_forgets_no_promise(raft_group_type: type[RaftGroup]) -> None:
    """Two that were removed and come back hold the first configuration, and not the later ones:
    with a third that knows no later one either, they must not be a majority of it."""
    cluster = Cluster(5, raft_group_type=raft_group_type, config=RaftConfig(append_entries=1))
    cluster.elect()
    cluster.settle()
    late, first, second = cluster.followers()[:3]
    cluster.isolate(late)
    for name in (first, second):
        drop(cluster, name)
    cluster.propose(b"committed")
    cluster.settle()

    def only_the_beginning(sent: Sent) -> bool:
        if sent.target not in (first, second) or sent.kind != FrameKind.APPEND:
            return True
        _term, prev, _prev_term, _commit, count = frames.parse_append(memoryview(sent.frame))
        return prev < 1 or not count

    cluster.net.filter = only_the_beginning
    for name in (first, second):
        host = cluster.nodes[name].host
        assert host is not None
        host.retire_raft_group(GROUP)
        cluster.change(AddLearner(cluster.join(name)))
        cluster.settle()
        assert (cluster.voting(name), cluster.raft_group(name).commit_index) == ("abcde", 1)
    for name in set(cluster.nodes) - {late, first, second}:
        cluster.isolate(name)
    cluster.settle(10)

    assert not any(cluster.raft_group(name).is_leader for name in (late, first, second))


def test_retired_replica_keeps_its_term_and_vote_and_never_founds_the_group_again() -> None:
    cluster = Cluster(3)
    leader = cluster.elect()
    cluster.settle()
    gone = cluster.followers()[0]
    drop(cluster, gone)
    node = cluster.nodes[gone]
    before = node.store.partition_log(GROUP).hard_state
    assert node.host is not None
    node.host.retire_raft_group(GROUP)
    cluster.settle()

    cluster.kill(gone, power=True)
    node.open()
    log = node.store.partition_log(GROUP)
    assert (log.hard_state, log.last_index, log.suspect) == (before, 0, True)
    cluster.start_raft_group(gone, bootstrap=True)
    cluster.settle(3)
    assert log.last_index == 0
    assert cluster.leader() == leader


# -- what the leader sends to whom


def test_learner_that_is_removed_receives_nothing_more() -> None:
    cluster = Cluster(3, spares=1)
    leader = cluster.elect()
    cluster.change(AddLearner(cluster.join("d")))
    cluster.settle()
    drop(cluster, "d")
    cluster.net.log.clear()
    cluster.propose(b"x")
    cluster.settle()

    assert cluster.bodies("d") == []
    assert NodeId("d") not in cluster.raft_group(leader).peers
    assert not any(sent.target == "d" for sent in cluster.net.log if sent.partition_id == GROUP)


def test_follower_whose_log_was_replaced_by_a_copy_goes_on_where_that_ends() -> None:
    cluster = Cluster(3)
    leader = cluster.elect()
    cluster.propose(b"x")
    cluster.settle()
    raft_group = cluster.raft_group(leader)
    peer = raft_group.peers[NodeId(cluster.followers()[0])]
    raft_group.state.next_index[peer] = 0
    peer.behind = peer.probing = True
    cluster.propose(b"y")
    cluster.settle()

    assert not peer.behind
    assert cluster.bodies(peer.node) == [b"x", b"y"]


# -- snapshots


def test_snapshot_carries_the_configuration_that_was_applied() -> None:
    cluster = Cluster(3, spares=1)
    leader = cluster.elect()
    grow(cluster, "d")
    cluster.propose(b"x")
    cluster.settle()
    expected = cluster.raft_group(leader).membership.configuration
    work = cluster.raft_group("d").apply.take_snapshot()
    assert work is not None
    work.run()

    found = cluster.nodes["d"].store.partition_log(GROUP).latest_snapshot()
    assert found is not None
    assert unpack_snapshot(found[1])[0] == expected
    cluster.kill("d")
    cluster.restart("d")
    assert cluster.raft_group("d").membership._configurations == [expected]
    cluster.settle()
    assert cluster.bodies("d")[-1:] == [b"restored"]
