"""The peers' clocks are believed by majority only."""

from __future__ import annotations

from goqueue.wire.types import NodeId
from node.peers.clocks import PeerClocks

A, B, C = NodeId("a"), NodeId("b"), NodeId("c")
NODES = (A, B, NodeId("this one"), C, NodeId("d"))


def test_a_majority_that_agrees_is_believed() -> None:
    clocks = PeerClocks(lambda: 1000, lambda: NODES[:3])
    clocks.told(A, {"wall_ms": 6000})
    assert clocks.offset_ms() is None

    clocks.told(B, {"wall_ms": 7000})
    assert clocks.offset_ms() == 5500.0


def test_our_own_clock_counts_among_them() -> None:
    clocks = PeerClocks(lambda: 1000, lambda: NODES[:3])
    clocks.told(A, {"wall_ms": 86_400_000})
    clocks.told(B, {"wall_ms": 1020})

    assert clocks.offset_ms() == 0.0


def test_without_a_majority_nothing_is_known() -> None:
    clocks = PeerClocks(lambda: 1000, lambda: NODES)
    clocks.told(A, {"wall_ms": 6000})

    assert clocks.offset_ms() is None
    clocks.told(B, {"wall_ms": 6000})
    assert clocks.offset_ms() is None
    clocks.told(C, {"wall_ms": 6000})
    assert clocks.offset_ms() == 5000.0
    clocks.gone(B)
    assert clocks.offset_ms() is None


def test_what_is_no_time_is_ignored() -> None:
    clocks = PeerClocks(lambda: 1000, lambda: NODES[:3])
    clocks.told(A, {"wall_ms": "soon"})

    assert clocks.offset_ms() is None


def test_single_node_is_its_own_majority() -> None:
    assert PeerClocks(lambda: 1000, lambda: NODES[:1]).offset_ms() == 0.0


def test_nodes_that_do_not_belong_to_the_cluster_are_not_believed() -> None:
    clocks = PeerClocks(lambda: 1000, lambda: NODES[:3])
    clocks.told(A, {"wall_ms": 6000})
    clocks.told(C, {"wall_ms": 6000})

    assert clocks.offset_ms() is None
