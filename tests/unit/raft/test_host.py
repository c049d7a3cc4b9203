"""One host carries all groups of a node: one timer, one heartbeat a peer, hostile bytes dropped."""

from __future__ import annotations

import random

import pytest

from goqueue.wire.types import Index, NodeId, PartitionId, TopicId, Voter
from log.entry import EntryKind
from log.errors import EntryDamaged
from raft import frames, host
from raft.config import RaftConfig
from raft.errors import ConfigurationMismatch
from raft.frames import HEARTBEAT_GROUP, FrameKind
from raft.peer import FlowControl
from raft.rest.handle import GroupHandle
from tests.unit.raft.cluster import GROUP, Cluster, Lone, Machine, NodeNet

TELLING_A_TERM = (
    FrameKind.VOTE,
    FrameKind.VOTE_REPLY,
    FrameKind.ACK,
    FrameKind.BEAT,
    FrameKind.BEAT_ANSWER,
)
MORE = [PartitionId(TopicId(7, 100 + at), at) for at in range(63)]


def many_groups() -> Cluster:
    cluster = Cluster(3)
    for id in MORE:
        for node in cluster.nodes.values():
            assert node.host is not None
            node.host.start_raft_group(id, cluster.voters, Machine(), bootstrap=True)
    cluster.settle(5)
    return cluster


def test_heartbeats_of_all_groups_share_one_frame_a_peer() -> None:
    cluster = many_groups()
    hosts = [node.host for node in cluster.nodes.values()]
    assert all(any(g.is_leader for g in h.raft_groups()) for h in hosts if h is not None)

    sent = len(cluster.net.log)
    cluster.settle(2.0)
    quiet = cluster.net.log[sent:]

    assert {s.partition_id for s in quiet} == {HEARTBEAT_GROUP}
    rounds = 2.0 / cluster.config.heartbeat_s
    assert len(quiet) <= 2 * 6 * rounds + 12


def test_idle_groups_keep_their_leaders() -> None:
    cluster = many_groups()
    raft_groups = [
        raft_group
        for node in cluster.running()
        if node.host
        for raft_group in node.host.raft_groups()
    ]
    before = [(raft_group.term, raft_group.leader) for raft_group in raft_groups]
    cluster.settle(30)
    assert before == [(raft_group.term, raft_group.leader) for raft_group in raft_groups]


def test_host_holds_one_timer_for_all_groups() -> None:
    cluster = many_groups()
    timers = [
        entry
        for entry in cluster.time._queue
        if not entry[2].cancelled and entry[4] and "_on_timer" in repr(entry[4][0])
    ]
    assert len(timers) == 3


@pytest.mark.parametrize("seed", range(4))
def test_hostile_frames_are_dropped_without_any_effect(seed: int) -> None:
    rng = random.Random(seed)
    lone = Lone()
    host = lone.me.host
    assert host is not None
    term, last = lone.replica.term, lone.log.last_index

    for _ in range(2000):
        kind = rng.randrange(12)
        body = bytes([kind]) + rng.randbytes(rng.choice((0, 3, 11, 40, 44, 200)))
        if kind not in TELLING_A_TERM or len(body) < frames.HEAD.size:
            host.receive(NodeId("b"), GROUP, body)
        host.receive(NodeId("stranger"), GROUP, body)
        host.receive(NodeId("b"), HEARTBEAT_GROUP, bytes([kind]) + rng.randbytes(50))
        host.receive(NodeId("b"), PartitionId(TopicId(9, 9), 9), body)

    assert lone.replica.failed is None
    assert (lone.replica.term, lone.log.last_index) == (term, last)


def test_append_with_a_flipped_bit_changes_nothing() -> None:
    cluster = Cluster(3)
    leader = cluster.elect()
    cluster.settle()
    follower = cluster.followers()[0]
    cluster.propose(b"payload", on=leader)
    cluster.time.run(0.0005)
    appends = [s for s in cluster.net.log if s.target == follower and s.kind == FrameKind.APPEND]
    whole = bytearray(appends[-1].frame)

    other = Lone()
    for at in range(frames.APPEND_BYTES, len(whole)):
        flipped = bytearray(whole)
        flipped[at] ^= 1
        other.hear("b", bytes(flipped))

    assert other.log.last_index == 1
    assert other.replica.failed is None


def test_windows_of_one_peer_are_shared_by_all_groups() -> None:
    windows = FlowControl(NodeNet(Cluster(1).net, "a"), 1 << 20)
    cluster = many_groups()
    host = cluster.nodes["a"].host
    assert host is not None
    one, other = GroupHandle(host, b"1", windows), GroupHandle(host, b"2", windows)
    one.raft_group, other.raft_group = host.raft_group(GROUP), host.raft_group(MORE[0])
    peer = NodeId("b")

    assert one.reserve(peer, 5 << 20)
    assert not other.reserve(peer, 1)
    one.release(peer, 5 << 20)
    assert other.reserve(peer, 1)


def test_congested_link_is_given_nothing_more() -> None:
    cluster = Cluster(3)
    leader = cluster.elect()
    cluster.settle()
    network = cluster.nodes[leader].network
    network.backlog = cluster.config.peer_window_bytes + 1

    cluster.propose(b"x", on=leader)
    cluster.settle(0.5)
    assert cluster.answers == []

    network.backlog = 0
    cluster.settle(1)
    assert len(cluster.answers) == 1


def test_stalled_loop_is_no_evidence_against_others() -> None:
    cluster = Cluster(3)
    leader = cluster.elect()
    cluster.settle()
    term = cluster.raft_group(leader).term

    for _ in range(5):
        cluster.time.pass_by(3.0)
        cluster.settle(2)

    assert cluster.leader() == leader
    assert cluster.raft_group(leader).term == term


def test_creating_entry_is_the_same_everywhere_and_written_once() -> None:
    cluster = Cluster(3)
    cluster.propose(b"x")
    cluster.settle()
    for name in cluster.nodes:
        cluster.kill(name)
    for name in cluster.nodes:
        cluster.nodes[name].open()
        cluster.start_raft_group(name, bootstrap=True)

    entries = [
        node.store.partition_log(GROUP).entries(Index(1))[0] for node in cluster.nodes.values()
    ]
    assert {entry.frame for entry in entries} == {entries[0].frame}
    assert entries[0].kind == EntryKind.VOTERS
    kinds = [e.kind for e in cluster.nodes["a"].store.partition_log(GROUP).entries(Index(1))]
    assert kinds.count(EntryKind.VOTERS) == 1


def test_group_created_with_other_voters_does_not_start() -> None:
    cluster = Cluster(3)
    cluster.settle()
    cluster.kill("a")
    cluster.nodes["a"].open()
    cluster.voters = [*cluster.voters[:2], Voter(NodeId("z"), cluster.voters[0].incarnation)]

    with pytest.raises(ConfigurationMismatch):
        cluster.start_raft_group("a")


def test_local_snapshot_shortens_what_is_applied_again() -> None:
    cluster = Cluster(3)
    for number in range(30):
        cluster.propose(b"%d" % number)
    cluster.settle()
    name = cluster.followers()[0]
    work = cluster.raft_group(name).apply.take_snapshot()
    assert work is not None
    work.run()
    assert cluster.raft_group(name).apply.take_snapshot() is None
    applied = cluster.raft_group(name).applied_index

    cluster.kill(name, power=True)
    cluster.restart(name)
    assert cluster.nodes[name].machine.events[0] == ("restore", applied)
    cluster.propose(b"after")
    cluster.settle(2)

    assert cluster.bodies(name) == [b"restored"] * 30 + [b"after"]


def test_a_replica_whose_state_can_not_be_read_is_damaged_and_to_be_copied() -> None:
    cluster = Cluster(3)
    for number in range(30):
        cluster.propose(b"%d" % number)
    cluster.settle()
    name = cluster.followers()[0]
    work = cluster.raft_group(name).apply.take_snapshot()
    assert work is not None
    work.run()
    node = cluster.nodes[name]
    log = node.store.partition_log(GROUP)
    log.first_index = Index(20)
    for path in node.disk.paths():
        if path.endswith(".snapshot"):
            node.disk.content(path)[-1] ^= 1
    node.host.stop_raft_group(GROUP)

    with pytest.raises(EntryDamaged, match="entries 1 to 19 are damaged: no snapshot"):
        cluster.start_raft_group(name)

    assert log.damaged == (1, 19)


def test_snapshot_is_due_after_so_many_entries_and_not_before_it_is_durable() -> None:
    cluster = Cluster(3, config=RaftConfig(snapshot_entries=10))
    leader = cluster.elect()
    due: list[object] = []
    for node in cluster.running():
        assert node.host is not None
        node.host.on_snapshot_due = due.append
    for number in range(7):
        cluster.propose(b"%d" % number)
    cluster.settle()
    assert due == []

    cluster.nodes[leader].syncing = False
    for number in range(7):
        cluster.propose(b"%d" % number)
    cluster.settle()

    assert cluster.raft_group(leader) in due
    assert cluster.raft_group(leader).applied_index == 16
    assert cluster.raft_group(leader).apply.take_snapshot() is None


def test_stop_releases_everything_and_is_idempotent() -> None:
    cluster = many_groups()
    host = cluster.nodes["a"].host
    assert host is not None

    host.stop_raft_group(GROUP)
    host.stop_raft_group(GROUP)
    host.stop()
    host.stop()
    cluster.settle(5)

    assert host.raft_groups() == []
    with pytest.raises(KeyError):
        host.raft_group(GROUP)


def test_preferred_node_wins_the_first_election() -> None:
    wins = 0
    for seed in range(20):
        cluster = Cluster(3, seed=seed)
        id = MORE[0]
        for node in cluster.nodes.values():
            assert node.host is not None
            node.host.start_raft_group(
                id, cluster.voters, Machine(), bootstrap=True, preferred=NodeId("c")
            )
        cluster.settle(3)
        wins += cluster.nodes["c"].host.raft_group(id).is_leader  # type: ignore[union-attr]
    assert wins >= 18


def test_many_groups_with_work_share_one_slice_of_time() -> None:
    cluster = many_groups()
    host = cluster.nodes["a"].host
    assert host is not None
    for raft_group in host.raft_groups():
        raft_group.flush = lambda: cluster.time.pass_by(0.0015)  # type: ignore[method-assign]
        host.wake(host._handles[raft_group.id])

    turns = []
    while host._awake:
        before = cluster.time.now()
        host._flush()
        turns.append(cluster.time.now() - before)

    assert len(turns) >= 32
    assert max(turns) < 0.004


def test_preferred_node_wins_the_first_election_though_its_replica_is_started_last() -> None:
    """As where a node that founds many is busier than the others."""
    cluster = Cluster(3)
    for name in "abc":
        host = cluster.nodes[name].host
        assert host is not None
        for number in range(10):
            id = PartitionId(TopicId(9, 1), number)
            host.start_raft_group(
                id, cluster.voters, Machine(), bootstrap=True, preferred=NodeId("c")
            )
        cluster.settle(0.3)
    cluster.settle(2.0)

    last = cluster.nodes["c"].host
    assert last is not None
    ids = [PartitionId(TopicId(9, 1), number) for number in range(10)]
    assert all(last.raft_group(id).is_leader for id in ids)


def test_node_that_always_stalls_still_replaces_a_dead_leader() -> None:
    cluster = Cluster(3)
    leader = cluster.elect()
    cluster.settle()
    cluster.mute(leader)

    for _ in range(60):
        cluster.time.pass_by(0.6)
        cluster.settle(0.05)
        if any(cluster.raft_group(name).is_leader for name in cluster.nodes if name != leader):
            break

    assert any(cluster.raft_group(name).is_leader for name in cluster.nodes if name != leader)


@pytest.mark.parametrize(("word_s", "waited"), [(0.0002, False), (1.0, True)])
def test_who_has_many_groups_gives_their_leaders_time_to_be_heard(
    word_s: float, waited: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After all nodes were down there is none: it costs an election's time at most."""
    monkeypatch.setattr(host, "WORD_S", word_s)
    cluster = many_groups()
    for name in cluster.nodes:
        cluster.kill(name)

    for name in cluster.nodes:
        cluster.restart(name)

    assert cluster.time.run(0.8, lambda: cluster.leader() is not None) is not waited
    assert cluster.time.run(1.5, lambda: cluster.leader() is not None)
