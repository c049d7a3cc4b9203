"""Groups at rest: no frames and no timers, and what rouses them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import pairwise

import pytest

from goqueue.wire.types import Index, NodeId, PartitionId, TopicId
from log.entry import EntryKind
from raft import frames
from raft.config import RaftConfig
from raft.configuration import AddLearner
from raft.errors import Outcome
from raft.frames import HEARTBEAT_GROUP, FrameKind
from raft.rest import beats
from raft.rest.beats import OFFERS_S, OTHER_FRAMES_S, mark_of
from tests.unit.raft.cluster import GROUP, Cluster, Machine, Sent

OTHER = PartitionId(TopicId(8, 1), 0)
REST_S = 3.0
FAILOVER_S = 2.0
"""As without rest: silence is believed after 1.0 to 1.5 s, and the rest is a vote."""


def at_rest(size: int = 3, spares: int = 0) -> Cluster:
    """A cluster with one entry, whose group rests on every node; `spares` are learners."""
    cluster = Cluster(size, spares=spares, rests=True)
    cluster.propose(b"one")
    for name in [name for name in cluster.nodes if name not in cluster.voter_names]:
        cluster.change(AddLearner(cluster.join(name)))
    cluster.settle(REST_S + spares)
    assert resting(cluster) == set(cluster.nodes)
    return cluster


def resting(cluster: Cluster) -> set[str]:
    return {node.name for node in cluster.running() if node.raft_group.state.resting}


def new_leader(cluster: Cluster, former: str, within_s: float = FAILOVER_S) -> str:
    def led() -> bool:
        return cluster.leader() not in (None, former)

    assert cluster.time.run(within_s, led), "no leader"
    leader = cluster.leader()
    assert leader is not None
    return leader


def sent_in(cluster: Cluster, seconds: float) -> Counter[tuple[int, bool]]:
    """Kinds of frames that are sent meanwhile, and whether they are the group's own."""
    cluster.net.log.clear()
    cluster.settle(seconds)
    return Counter((sent.kind, sent.partition_id == GROUP) for sent in cluster.net.log)


def test_a_group_at_rest_sends_nothing_and_sets_no_timer() -> None:
    cluster = at_rest(spares=1)

    sent = sent_in(cluster, 60.0)

    assert set(sent) == {(FrameKind.NODE_BEAT, False), (FrameKind.NODE_BEAT_ANSWER, False)}
    assert sent[FrameKind.NODE_BEAT, False] == pytest.approx(3 * 60 / 0.2, abs=3)
    for node in cluster.running():
        assert node.raft_group.deadline == float("inf")
        assert node.raft_group.commit_index == node.raft_group.applied_index
    leader = cluster.raft_group(cluster.elect())
    assert leader.election.has_quorum and leader.is_ready_leader
    assert all(cluster.raft_group(name).voting.hears_leader() for name in cluster.nodes)
    assert all(leader.replication.in_step(NodeId(name)) for name in "bcd")
    assert all(leader.replication.caught_up(NodeId(name)) for name in "bcd")
    assert resting(cluster) == set(cluster.nodes)


def test_no_group_rests_where_a_node_may_not_know_the_frames() -> None:
    cluster = Cluster(3)
    cluster.propose(b"one")

    sent = sent_in(cluster, 20.0)

    assert not resting(cluster)
    assert FrameKind.NODE_BEAT not in {kind for kind, _ in sent}


def test_a_group_of_one_replica_rests_without_any_beat() -> None:
    cluster = at_rest(size=1)

    assert not sent_in(cluster, 10.0)
    cluster.propose(b"two")
    cluster.settle()

    assert cluster.outcomes(b"two") == [Outcome.APPLIED]


def test_what_is_published_rouses_the_group_which_rests_again() -> None:
    cluster = at_rest()

    cluster.propose(b"two")
    cluster.settle(0.1)

    assert cluster.outcomes(b"two") == [Outcome.APPLIED]
    assert not resting(cluster)
    cluster.settle(REST_S)
    assert resting(cluster) == set(cluster.nodes)
    assert {tuple(cluster.bodies(name)) for name in cluster.nodes} == {(b"one", b"two")}


def test_who_acknowledged_an_entry_need_not_be_asked_by_many_beats() -> None:
    cluster = Cluster(3, rests=True, config=RaftConfig(quiet_beats=5))
    heartbeat_s = RaftConfig().heartbeat_s
    cluster.propose(b"one")

    cluster.settle(3 * heartbeat_s)

    assert resting(cluster) == set(cluster.nodes)
    cluster.raft_group(cluster.elect()).reads.ask(lambda _ok, _index: None)
    cluster.settle(3 * heartbeat_s)
    assert not resting(cluster)  # nothing was appended: whether all follow takes more beats
    cluster.settle(4 * heartbeat_s)
    assert resting(cluster) == set(cluster.nodes)


def test_who_has_not_acknowledged_the_last_entry_is_waited_for() -> None:
    cluster = at_rest()
    leader = cluster.elect()
    late = next(name for name in cluster.nodes if name != leader)
    cluster.mute(late)

    cluster.propose(b"two")
    cluster.settle(0.9)

    assert cluster.outcomes(b"two") == [Outcome.APPLIED]
    assert not cluster.raft_group(leader).rests


def test_a_read_index_is_answered_at_once() -> None:
    cluster = at_rest()
    leader = cluster.raft_group(cluster.elect())
    reads: list[tuple[bool, Index]] = []

    leader.reads.ask(lambda ok, index: reads.append((ok, index)))
    cluster.settle(0.05)

    assert reads == [(True, leader.commit_index)]


def test_a_read_index_of_a_leader_that_was_cut_off_in_its_rest_is_not_confirmed() -> None:
    cluster = at_rest()
    leader = cluster.elect()
    cluster.mute(leader)
    reads: list[tuple[bool, Index]] = []

    cluster.raft_group(leader).reads.ask(lambda ok, index: reads.append((ok, index)))
    cluster.settle(5.0)

    assert reads == [(False, Index(0))]
    assert cluster.leader() != leader


def test_a_leader_that_is_killed_is_missed() -> None:
    cluster = at_rest()
    former = cluster.elect()

    cluster.kill(former)

    assert new_leader(cluster, former, within_s=1.0)
    cluster.propose(b"two")
    cluster.settle()
    assert cluster.outcomes(b"two") == [Outcome.APPLIED]


def test_a_leader_whose_node_falls_silent_is_missed_as_soon_as_one_that_does_not_rest() -> None:
    cluster = at_rest()
    former = cluster.elect()

    cluster.mute(former)

    new_leader(cluster, former)
    cluster.settle(1.0)
    assert not cluster.raft_group(former).is_leader, "nobody answered it, either"
    cluster.unmute()
    cluster.settle(2 * REST_S)
    assert resting(cluster) == set(cluster.nodes)


def test_a_follower_that_falls_silent_rouses_the_leader_which_goes_on_leading() -> None:
    cluster = at_rest()
    leader = cluster.elect()
    silent, other = cluster.followers()

    cluster.mute(silent)
    cluster.settle(2.0)

    assert cluster.leader() == leader
    assert not cluster.raft_group(leader).state.resting
    assert cluster.raft_group(leader).election.has_quorum
    assert cluster.raft_group(other).voting.hears_leader()


def test_a_leader_that_nobody_answers_steps_down() -> None:
    cluster = at_rest()
    leader = cluster.elect()
    for name in cluster.followers():
        cluster.mute(name)

    cluster.settle(2.0)

    assert not cluster.raft_group(leader).is_leader


def test_a_follower_that_begins_anew_is_led() -> None:
    cluster = at_rest()
    leader, follower = cluster.elect(), cluster.followers()[0]

    cluster.kill(follower)
    cluster.settle(0.2)
    cluster.restart(follower)
    cluster.settle(0.5)

    assert cluster.leader() == leader
    assert cluster.raft_group(follower).leader == leader
    cluster.settle(REST_S)
    assert resting(cluster) == set(cluster.nodes)


def test_leadership_is_handed_over_in_a_rest() -> None:
    cluster = at_rest()
    former, follower = cluster.elect(), cluster.followers()[0]

    cluster.raft_group(former).transfer.start(NodeId(follower))
    cluster.settle(0.5)

    assert cluster.leader() == follower
    cluster.settle(REST_S)
    assert resting(cluster) == set(cluster.nodes)
    assert {cluster.raft_group(name).leader for name in cluster.nodes} == {follower}


def test_a_new_replica_rouses_the_group() -> None:
    cluster = Cluster(3, spares=1, rests=True)
    cluster.propose(b"one")
    cluster.settle(REST_S)

    cluster.change(AddLearner(cluster.join("d")))
    cluster.settle(REST_S + 1)

    assert cluster.learning(cluster.elect()) == "d"
    assert cluster.bodies("d") == [b"one"]
    assert resting(cluster) == set("abcd")


def test_who_asks_for_a_vote_rouses_who_is_asked() -> None:
    cluster = at_rest()
    leader = cluster.elect()
    one, other = cluster.followers()
    group = cluster.raft_group(one)

    frame = frames.vote(group.term + 1, group.commit_index, group.term, frames.PRE)
    host = cluster.nodes[one].host
    assert host is not None
    host.receive(NodeId(other), GROUP, frame)
    assert one not in resting(cluster)
    cluster.settle(0.5)

    assert cluster.leader() == leader
    assert not resting(cluster), "its node has told the leader's, and this one the others'"


@pytest.mark.parametrize("kind", [FrameKind.NODE_BEAT, FrameKind.NODE_BEAT_ANSWER])
def test_a_beat_that_is_lost_with_its_news_costs_no_leader(kind: FrameKind) -> None:
    cluster = Cluster(3, rests=True)
    cluster.propose(b"one")
    lost: list[Sent] = []

    def loses_the_first_two(sent: Sent) -> bool:
        if sent.kind != kind or sent.partition_id != HEARTBEAT_GROUP or len(lost) >= 2:
            return True
        lost.append(sent)
        return False

    cluster.net.filter = loses_the_first_two
    leader = cluster.elect()
    term = cluster.raft_group(leader).term
    cluster.settle(10.0)

    assert len(lost) == 2
    assert cluster.raft_group(leader).is_leader and cluster.raft_group(leader).term == term
    assert resting(cluster) == set(cluster.nodes)


def test_a_group_that_only_its_leader_takes_for_resting_is_roused_within_a_second() -> None:
    cluster = at_rest()
    leader, follower = cluster.elect(), cluster.followers()[0]
    host = cluster.nodes[follower].host
    assert host is not None

    host.node_beats._links[NodeId(leader)].refused.clear()
    host.node_beats.rouse(host._handles[GROUP])
    host.node_beats._links[NodeId(leader)].refused.clear()  # as if the answer had been lost
    roused: list[PartitionId] = []
    leading = cluster.nodes[leader].host
    assert leading is not None
    leading.on_roused = roused.append
    cluster.settle(1.0)

    assert roused == [GROUP]
    assert cluster.leader() == leader


def add_group(cluster: Cluster, leader: str) -> None:
    """Another group between the same nodes, with the same leader, at rest."""
    for node in cluster.running():
        assert node.host is not None
        voters = cluster.voters
        node.host.start_raft_group(OTHER, voters, Machine(), bootstrap=True, created_ms=1)
    cluster.settle(REST_S)
    for node in cluster.running():
        assert node.host is not None
        if node.host.raft_group(OTHER).is_leader and node.name != leader:
            node.host.raft_group(OTHER).transfer.start(NodeId(leader))
    cluster.settle(REST_S)


def test_a_group_that_only_a_follower_takes_for_resting_is_roused_beside_one_that_rests() -> None:
    cluster = at_rest()
    leader = cluster.elect()
    add_group(cluster, leader)
    host = cluster.nodes[leader].host
    assert host is not None
    assert host.raft_group(OTHER).is_leader and host.raft_group(OTHER).state.resting
    lost: list[Sent] = []

    def loses_the_next_beats(sent: Sent) -> bool:
        loses = sent.kind == FrameKind.NODE_BEAT and len(lost) < 2
        lost.extend([sent] * loses)
        return not loses

    cluster.net.filter = loses_the_next_beats
    host.stop_raft_group(GROUP)
    followers = [name for name in cluster.nodes if name != leader]

    def led() -> bool:
        return any(cluster.raft_group(name).is_ready_leader for name in followers)

    assert cluster.time.run(4.0, led)
    cluster.settle(REST_S)
    assert host.raft_group(OTHER).is_leader, "it was roused with the other, and its leader heard"


def test_a_stall_of_the_followers_node_is_no_evidence_against_the_leader() -> None:
    cluster = at_rest()
    leader = cluster.elect()
    term = cluster.raft_group(leader).term

    cluster.time.pass_by(1.4)  # all nodes stand still
    cluster.settle(2.0)

    assert cluster.leader() == leader
    assert {cluster.raft_group(name).term for name in cluster.nodes} == {term}


def test_a_replica_that_stops_in_its_rest_is_told_of() -> None:
    cluster = at_rest()
    leader, follower = cluster.elect(), cluster.followers()[0]
    host = cluster.nodes[follower].host
    assert host is not None

    host.stop_raft_group(GROUP)
    cluster.settle(0.5)

    assert not cluster.raft_group(leader).state.resting
    assert cluster.raft_group(leader).is_leader


def test_a_leader_that_stops_in_its_rest_is_missed() -> None:
    cluster = at_rest()
    former = cluster.elect()
    host = cluster.nodes[former].host
    assert host is not None

    host.stop_raft_group(GROUP)
    followers = [name for name in cluster.nodes if name != former]

    def led() -> bool:
        return any(cluster.raft_group(name).is_ready_leader for name in followers)

    assert cluster.time.run(FAILOVER_S, led)


def test_a_leader_that_stops_in_its_rest_is_missed_though_its_beats_are_lost() -> None:
    cluster = at_rest()
    former = cluster.elect()
    host = cluster.nodes[former].host
    assert host is not None
    cluster.net.filter = lambda sent: sent.source != former  # its links stay up

    host.stop_raft_group(GROUP)
    followers = [name for name in cluster.nodes if name != former]

    def led() -> bool:
        return any(cluster.raft_group(name).is_ready_leader for name in followers)

    assert cluster.time.run(FAILOVER_S, led)


def _cut_short(frame: bytes) -> bytes:
    return frame[:-1]


@pytest.mark.parametrize("spoil", [_cut_short, lambda frame: frame[:3], lambda frame: frame + b"x"])
@pytest.mark.parametrize("kind", [FrameKind.NODE_BEAT, FrameKind.NODE_BEAT_ANSWER])
def test_a_malformed_beat_changes_nothing(spoil: Callable[[bytes], bytes], kind: FrameKind) -> None:
    cluster = at_rest()
    leader, follower = cluster.elect(), cluster.followers()[0]
    item = frames.beat_item(GROUP.pack(), 0, 0, frames.ROUSED)
    target, source = (follower, leader) if kind == FrameKind.NODE_BEAT else (leader, follower)
    host = cluster.nodes[target].host
    assert host is not None

    host.receive(
        NodeId(source), HEARTBEAT_GROUP, spoil(b"".join(frames.node_beat(kind, 0, 0, [item])))
    )

    assert target in resting(cluster)


def test_many_groups_go_to_rest_in_frames_of_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "ITEMS_MAX", 2)
    sent: list[tuple[int, int, int]] = []
    cluster = at_rest()
    host = cluster.nodes[cluster.elect()].host
    assert host is not None
    link = host.node_beats._links[NodeId(cluster.followers()[0])]
    for number in range(5):
        key = number.to_bytes(len(GROUP.pack()), "little")
        link.news[key] = frames.beat_item(key, 1, 1, frames.ROUSED)
    cluster.net.log.clear()
    host.node_beats.send()
    for frame in cluster.net.log:
        if frame.target == cluster.followers()[0]:
            flags, _mark, items = frames.parse_node_beat(memoryview(frame.frame))
            sent.append((flags, len(list(items)), frame.kind))

    kind = FrameKind.NODE_BEAT
    assert sent == [(frames.MORE, 2, kind), (frames.MORE, 2, kind), (0, 1, kind)]


def test_a_replica_that_was_started_anew_on_its_node_is_found_by_a_leader_that_rests_soon() -> None:
    cluster = Cluster(3, rests=True, config=RaftConfig(quiet_beats=1))
    cluster.propose(b"one")
    cluster.settle(REST_S)
    leader, follower = cluster.elect(), cluster.followers()[0]
    host = cluster.nodes[follower].host
    assert host is not None

    host.stop_raft_group(GROUP)
    cluster.settle(REST_S)
    cluster.start_raft_group(follower)
    cluster.settle(REST_S)

    assert cluster.leader() == leader
    assert cluster.bodies(follower) == [b"one"]
    assert resting(cluster) == set(cluster.nodes)


def back_without_its_replica(cluster: Cluster, name: str) -> None:
    """The node is there again, and starts its replica later."""
    cluster.nodes[name].open()
    for other in cluster.nodes:
        cluster.net.connect(name, other)


def test_a_replica_that_is_back_is_led_without_a_frame_of_its_group() -> None:
    cluster = at_rest()
    leader, follower = cluster.elect(), cluster.followers()[0]
    cluster.net.log.clear()

    cluster.kill(follower)
    cluster.settle(REST_S)
    assert resting(cluster) == set(cluster.nodes) - {follower}
    cluster.restart(follower)
    cluster.settle(0.3)

    assert resting(cluster) == set(cluster.nodes)
    assert not [sent for sent in cluster.net.log if sent.partition_id == GROUP]
    back = cluster.raft_group(follower)
    assert back.leader == leader
    assert back.applied_index == back.commit_index == cluster.raft_group(leader).commit_index
    assert cluster.raft_group(leader).replication.in_step(NodeId(follower))
    cluster.propose(b"two")
    cluster.settle()
    assert cluster.bodies(follower) == [b"one", b"two"]


def test_a_node_that_begins_keeps_what_it_is_offered_until_its_replica_is_started() -> None:
    cluster = at_rest()
    leader, follower = cluster.elect(), cluster.followers()[0]

    cluster.kill(follower)
    back_without_its_replica(cluster, follower)
    cluster.settle(REST_S)
    assert cluster.raft_group(leader).state.resting
    cluster.net.log.clear()
    cluster.start_raft_group(follower)

    assert resting(cluster) == set(cluster.nodes)
    cluster.settle(REST_S)
    assert resting(cluster) == set(cluster.nodes)
    assert not [sent for sent in cluster.net.log if sent.partition_id == GROUP]
    assert cluster.bodies(follower) == [b"one"]


def test_a_learner_that_is_back_counts_as_caught_up_in_the_rest() -> None:
    cluster = at_rest(spares=1)
    leader = cluster.raft_group(cluster.elect())

    cluster.kill("d")
    cluster.settle(REST_S)
    assert not leader.replication.caught_up(NodeId("d"))
    cluster.restart("d")
    cluster.settle(0.5)

    assert leader.state.resting
    assert leader.replication.caught_up(NodeId("d"))


def test_a_link_that_is_made_anew_costs_no_leader() -> None:
    cluster = at_rest()
    leader, follower = cluster.elect(), cluster.followers()[0]

    cluster.net.cut(leader, follower)
    cluster.net.connect(leader, follower)
    cluster.settle(0.5)

    assert cluster.raft_group(leader).replication.in_step(NodeId(follower))
    assert cluster.leader() == leader
    cluster.settle(REST_S)
    assert resting(cluster) == set(cluster.nodes)


def test_what_was_roused_since_it_was_offered_is_offered_no_more() -> None:
    cluster = at_rest()
    leader, follower = cluster.elect(), cluster.followers()[0]

    cluster.kill(follower)
    back_without_its_replica(cluster, follower)
    cluster.settle()
    cluster.propose(b"two", on=leader)
    cluster.settle()
    cluster.start_raft_group(follower)
    assert not cluster.raft_group(follower).state.resting
    cluster.settle(REST_S)

    assert cluster.leader() == leader
    assert cluster.bodies(follower) == [b"one", b"two"]
    assert resting(cluster) == set(cluster.nodes)


def test_a_leader_is_roused_in_the_end_by_a_node_that_starts_no_replica() -> None:
    cluster = at_rest()
    leader, follower = cluster.elect(), cluster.followers()[0]

    cluster.kill(follower)
    back_without_its_replica(cluster, follower)
    cluster.settle(OFFERS_S - 1)
    assert cluster.raft_group(leader).state.resting
    cluster.settle(2)
    assert not cluster.raft_group(leader).state.resting
    cluster.start_raft_group(follower)
    cluster.settle(60)

    assert cluster.leader() == leader
    assert resting(cluster) == set(cluster.nodes)


def test_a_replica_that_is_back_and_lacks_entries_rouses_its_leader() -> None:
    cluster = at_rest()
    leader, follower = cluster.elect(), cluster.followers()[0]

    cluster.kill(follower)
    cluster.propose(b"two")
    cluster.settle(REST_S)
    assert resting(cluster) == set(cluster.nodes) - {follower}
    cluster.restart(follower)
    cluster.settle(REST_S)

    assert cluster.leader() == leader
    assert cluster.bodies(follower) == [b"one", b"two"]
    assert resting(cluster) == set(cluster.nodes)


def test_a_log_of_the_same_length_with_another_end_is_not_taken_for_the_leaders() -> None:
    """It has what an earlier leader appended alone, and knows the term of the present one."""
    cluster = at_rest()
    former = cluster.elect()
    cluster.mute(former)
    alone = cluster.propose(b"alone", on=former)
    leader = new_leader(cluster, former)
    cluster.settle(REST_S)
    assert cluster.raft_group(leader).state.log.last_index == alone
    term = cluster.raft_group(leader).term
    cluster.kill(former)
    cluster.unmute()
    cluster.settle(REST_S)

    node = cluster.nodes[former]
    back_without_its_replica(cluster, former)
    assert node.store is not None
    node.store.partition_log(GROUP).save_hard_state(term, None)
    cluster.settle()
    cluster.start_raft_group(former)
    assert not cluster.raft_group(former).state.resting
    cluster.settle(REST_S)

    assert cluster.bodies(former) == [b"one"]
    assert resting(cluster) == set(cluster.nodes)


def test_a_node_that_is_gone_rouses_nothing_that_has_a_majority_without_it() -> None:
    cluster = at_rest()
    follower = cluster.followers()[0]
    leader = cluster.nodes[cluster.elect()].host
    assert leader is not None
    looked_at: list[PartitionId] = []
    leader.on_roused = looked_at.append
    cluster.net.log.clear()

    cluster.kill(follower)
    cluster.settle(REST_S)

    assert resting(cluster) == set(cluster.nodes) - {follower}
    assert not [sent for sent in cluster.net.log if sent.partition_id == GROUP]
    assert looked_at == [GROUP], "it is looked at who is in sync"


def stall(cluster: Cluster, name: str, seconds: float) -> None:
    """This node's loop stands still: its timers and what it is sent come late."""
    time, net, node = cluster.time, cluster.net, cluster.nodes[name].time
    until = time.now() + seconds
    call, deliver = node._call, net._deliver

    def late_call(callback: Callable[..., object], args: tuple[object, ...]) -> None:
        if time.now() < until:
            time.call_later(until - time.now(), call, callback, args)
        else:
            call(callback, args)

    def late_deliver(sent: Sent, epoch: int) -> None:
        if sent.target == name and time.now() < until:
            time.call_later(until - time.now() - 1e-6, deliver, sent, epoch)
        else:
            deliver(sent, epoch)

    node._call = late_call  # type: ignore[method-assign]
    net._deliver = late_deliver  # type: ignore[method-assign]
    time._queue[:] = [
        (*planned[:3], late_call if planned[3] == call else planned[3], planned[4])
        for planned in time._queue
    ]
    cluster.settle(seconds)


def elections_after_a_stall(*, rests: bool, seconds: float, groups: int = 40) -> int:
    """How many of so many groups of one leader have another term afterwards."""
    cluster = Cluster(3, seed=5, rests=rests)
    cluster.propose(b"one")
    leader = cluster.elect()
    ids = [PartitionId(TopicId(9, number + 1), 0) for number in range(groups)]
    hosts = [node.host for node in cluster.running() if node.host is not None]
    for host in hosts:
        for id in ids:
            host.start_raft_group(
                id, cluster.voters, Machine(), True, created_ms=1, preferred=NodeId(leader)
            )
    cluster.settle(4.0)
    for host in hosts:
        for id in ids:
            if host.raft_group(id).is_leader and host.node != leader:
                host.raft_group(id).transfer.start(NodeId(leader))
    cluster.settle(4.0)
    terms = {id: hosts[0].raft_group(id).term for id in ids}
    cluster.net.log.clear()
    beats = (FrameKind.HEARTBEATS, FrameKind.NODE_BEAT)
    cluster.time.run(
        1.0, lambda: any(one.source == leader and one.kind in beats for one in cluster.net.log)
    )
    cluster.settle(0.002)
    stall(cluster, leader, seconds)
    cluster.settle(4.0)
    return sum(max(host.raft_group(id).term for host in hosts) != terms[id] for id in ids)


def test_a_stall_of_the_leader_costs_no_more_elections_than_of_one_that_does_not_rest() -> None:
    """Whoever is roused at its end hears of its leader by the next beat, which comes at once."""
    resting, active = (
        elections_after_a_stall(rests=rests, seconds=1.02) for rests in (True, False)
    )

    assert resting <= active + 2
    assert elections_after_a_stall(rests=True, seconds=1.5) > 2, "or it would prove nothing"


def test_groups_that_are_refused_with_every_beat_hide_no_lost_news() -> None:
    cluster = at_rest()
    leader = cluster.elect()
    add_group(cluster, leader)
    host = cluster.nodes[leader].host
    assert host is not None
    link = host.node_beats._links
    number = 0
    followers = [name for name in cluster.nodes if name != leader]
    host.stop_raft_group(GROUP)
    for name in followers:
        link[NodeId(name)].news.pop(GROUP.pack(), None)  # as if it had been lost
    for _ in range(20):
        for name in followers:
            number += 1
            key = number.to_bytes(len(GROUP.pack()), "little")
            link[NodeId(name)].news[key] = frames.beat_item(key, 1, 1, frames.RESTS)
            link[NodeId(name)].led.mark ^= mark_of(key, 1)
        cluster.settle(0.2)
        for name in followers:
            if link[NodeId(name)].led:
                link[NodeId(name)].led.mark = 0
                for group in link[NodeId(name)].led:
                    link[NodeId(name)].led.mark ^= mark_of(group.key, group.term)

    assert any(cluster.raft_group(name).is_ready_leader for name in followers)


@pytest.mark.parametrize("began_s", [0.0, OFFERS_S])
def test_what_a_node_says_of_groups_that_are_not_here_is_bounded(
    began_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(beats, "OFFERS_MAX", 10)
    cluster = at_rest()
    leader, follower = cluster.elect(), cluster.followers()[0]
    cluster.settle(began_s)
    host = cluster.nodes[follower].host
    assert host is not None
    for number in range(100):
        key = number.to_bytes(len(GROUP.pack()), "little")
        item = frames.beat_item(key, 1, 1, frames.RESTS)
        parts = frames.node_beat(FrameKind.NODE_BEAT, frames.MORE, 0, [item])
        host.receive(NodeId(leader), HEARTBEAT_GROUP, b"".join(parts))

    link = host.node_beats._links[NodeId(leader)]
    assert not link.refused
    assert len(link.offers) == (10 if began_s == 0.0 else 0)
    cluster.settle(REST_S)
    assert cluster.leader() == leader
    assert resting(cluster) == set(cluster.nodes)


def test_an_answer_of_a_higher_term_rouses_who_hears_it() -> None:
    cluster = at_rest()
    leader, follower = cluster.elect(), cluster.followers()[0]
    host = cluster.nodes[follower].host
    assert host is not None

    item = frames.beat_item(GROUP.pack(), cluster.raft_group(leader).term + 1, 0, 1)
    parts = frames.heartbeats(FrameKind.HEARTBEAT_ANSWERS, [item])
    host.receive(NodeId(leader), HEARTBEAT_GROUP, b"".join(parts))

    assert follower not in resting(cluster)
    cluster.settle(2 * REST_S)
    assert resting(cluster) == set(cluster.nodes)


def test_answers_to_this_nodes_own_beats_are_no_word_of_the_leader_that_it_follows() -> None:
    cluster = at_rest()
    leader, follower = cluster.elect(), cluster.followers()[0]
    add_group(cluster, follower)  # led the other way round
    cluster.net.filter = lambda sent: sent.kind != FrameKind.NODE_BEAT or sent.source != leader

    cluster.settle(OTHER_FRAMES_S + 1.6)

    host = cluster.nodes[follower].host
    assert host is not None and host.raft_group(OTHER).is_leader
    assert not cluster.raft_group(follower).state.resting
    assert cluster.raft_group(follower).timer.leader_heard_at > cluster.time.now() - 0.5


def test_a_leader_whose_follower_never_rests_asks_it_less_and_less_often() -> None:
    cluster = at_rest()
    leader = cluster.elect()
    damaged = cluster.nodes[next(name for name in cluster.nodes if name != leader)]
    damaged.raft_group.state.log.quarantine(1, 1, "by this test")  # type: ignore[attr-defined]
    host, roused = cluster.nodes[leader].host, list[float]()
    assert host is not None
    host.on_roused = lambda _id: roused.append(cluster.time.now())

    cluster.propose(b"two")
    cluster.settle(200.0)
    pauses = [round(later - earlier, 3) for earlier, later in pairwise(roused[1:])]
    assert len(pauses) <= 9, "not every 0.6 s"
    assert pauses == sorted(pauses) and pauses[-1] > 50

    asked = len(roused)
    cluster.propose(b"three")
    cluster.settle(2 * REST_S)
    assert len(roused) > asked, "what comes next is asked about as soon as ever"


def test_a_group_rests_with_those_that_are_there_until_the_last_one_is_back() -> None:
    cluster = at_rest()
    leader, gone = cluster.elect(), cluster.followers()[0]
    cluster.kill(gone)
    cluster.settle(REST_S)
    assert resting(cluster) == set(cluster.nodes) - {gone}

    cluster.propose(b"two")
    cluster.settle(REST_S)
    assert resting(cluster) == set(cluster.nodes) - {gone}

    cluster.restart(gone)
    cluster.settle(REST_S)
    assert cluster.bodies(gone) == [b"one", b"two"]
    assert cluster.leader() == leader
    assert resting(cluster) == set(cluster.nodes)


def test_what_rests_with_a_majority_elects_once_its_leader_is_gone_and_the_last_one_back() -> None:
    cluster = at_rest()
    former, gone = cluster.elect(), cluster.followers()[0]
    cluster.kill(gone)
    cluster.settle(REST_S)

    cluster.kill(former)
    cluster.settle(REST_S)
    assert cluster.leader() is None
    cluster.restart(gone)

    new_leader(cluster, former)


def test_a_leader_that_loses_its_majority_in_its_rest_steps_down() -> None:
    cluster = at_rest()
    leader = cluster.elect()
    for follower in cluster.followers():
        cluster.kill(follower)
        cluster.settle(1.5)

    assert not cluster.raft_group(leader).is_leader
    assert not cluster.raft_group(leader).state.resting


def test_a_leaders_node_that_is_busy_may_send_its_beats_late() -> None:
    cluster = at_rest()
    leader, follower = cluster.elect(), cluster.followers()[0]
    add_group(cluster, leader)
    hosts = {name: cluster.nodes[name].host for name in (leader, follower)}
    roused = list[PartitionId]()
    follows, leads = hosts[follower], hosts[leader]
    assert follows is not None and leads is not None
    follows.on_roused = roused.append
    cluster.net.filter = lambda sent: sent.kind != FrameKind.NODE_BEAT

    for _ in range(int((OTHER_FRAMES_S - 1.0) / 0.1)):
        leads.raft_group(OTHER).propose(EntryKind.COMMAND, b"x", callback=lambda *_told: None)
        cluster.settle(0.1)

    assert GROUP not in roused
    assert cluster.leader() == leader


def test_other_frames_of_a_node_stand_for_its_beats_for_a_while_only() -> None:
    cluster = at_rest()
    leader, follower = cluster.elect(), cluster.followers()[0]
    add_group(cluster, follower)  # led the other way round: both have something to say
    follows, roused = cluster.nodes[follower].host, list[PartitionId]()
    assert follows is not None
    follows.on_roused = roused.append
    lost = (leader, follower, FrameKind.NODE_BEAT)
    cluster.net.filter = lambda sent: (sent.source, sent.target, sent.kind) != lost

    cluster.settle(OTHER_FRAMES_S - 0.5)
    assert GROUP not in roused
    cluster.settle(2.0)

    assert GROUP in roused
    assert cluster.leader() == leader
