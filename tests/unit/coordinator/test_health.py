"""Up, down and wiped are told apart."""

from __future__ import annotations

from coordinator.health import Standing, cluster_health
from goqueue.wire.types import Incarnation, NodeId

A, B, C = NodeId("a"), NodeId("b"), NodeId("c")
KNOWN = {A: Incarnation(1), B: Incarnation(2), C: None}


def test_each_broker_has_its_standing() -> None:
    health = cluster_health(KNOWN, {A: Incarnation(1), B: Incarnation(9)}, [A, B, C])

    assert health.brokers == {A: Standing.UP, B: Standing.WIPED, C: Standing.DOWN}
    assert health.problems() == ["b is wiped", "c is down"]


def test_a_wiped_voter_does_not_count_for_the_majority() -> None:
    assert not cluster_health(KNOWN, {A: Incarnation(1), B: Incarnation(9)}, [A, B, C]).has_quorum
    assert cluster_health(KNOWN, {A: Incarnation(1), B: Incarnation(2)}, [A, B, C]).has_quorum


def test_a_lone_survivor_has_no_quorum() -> None:
    assert not cluster_health(KNOWN, {A: Incarnation(1)}, [A, B, C]).has_quorum


def test_a_broker_not_yet_known_by_a_directory_is_up() -> None:
    assert cluster_health({C: None}, {C: Incarnation(5)}, [C]).brokers[C] is Standing.UP
