"""Frames of a leadership that is over do nothing to the one that followed."""

from __future__ import annotations

from goqueue.wire.types import NodeId
from raft import frames
from raft.frames import FrameKind
from tests.unit.raft.cluster import GROUP, Cluster, append_frame


def test_append_of_an_earlier_term_does_not_send_its_sender_back_to_the_first_entry() -> None:
    """It led in an earlier term, lost, and leads again: the answer carries the new term, and must
    not pass for one to a frame of now."""
    cluster = Cluster(3)
    leader = cluster.elect()
    for _ in range(5):
        cluster.propose(b"x", on=leader)
    cluster.settle()
    follower = cluster.followers()[0]
    node = cluster.nodes[follower]
    raft_group = cluster.raft_group(leader)
    cluster.net.log.clear()

    late = append_frame(raft_group.term - 1, raft_group.applied_index + 3, raft_group.term - 1, 1)
    assert node.host is not None
    node.host.receive(NodeId(leader), GROUP, late)
    cluster.settle()

    told = [sent for sent in cluster.net.log if sent.target == leader and sent.source == follower]
    answers = [sent.frame for sent in told if sent.kind == FrameKind.ACK]
    assert frames.parse_ack(memoryview(answers[0]))[:3] == (frames.REJECTED, raft_group.term, 0)
    appends = [sent for sent in cluster.net.log if sent.kind == FrameKind.APPEND]
    assert [frames.parse_append(memoryview(sent.frame))[1] for sent in appends] == []
    assert not raft_group.peers[NodeId(follower)].probing
