"""The peers' clocks are believed by majority only."""

from __future__ import annotations

from goqueue.wire.types import NodeId
from node.peer_clocks import PeerClocks

A, B = NodeId("a"), NodeId("b")


def test_the_median_of_a_majority_is_believed() -> None:
    clocks = PeerClocks(lambda: 1000, nodes=3)
    clocks.told(A, {"wall_ms": 6000})
    clocks.told(B, {"wall_ms": 7000})

    assert clocks.offset_ms() == 5500.0


def test_without_a_majority_nothing_is_known() -> None:
    clocks = PeerClocks(lambda: 1000, nodes=5)
    clocks.told(A, {"wall_ms": 6000})

    assert clocks.offset_ms() is None
    clocks.told(B, {"wall_ms": 6000})
    assert clocks.offset_ms() == 5000.0
    clocks.gone(B)
    assert clocks.offset_ms() is None


def test_what_is_no_time_is_ignored() -> None:
    clocks = PeerClocks(lambda: 1000, nodes=1)
    clocks.told(A, {"wall_ms": "soon"})

    assert clocks.offset_ms() is None
