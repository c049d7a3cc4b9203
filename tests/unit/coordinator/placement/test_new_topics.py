"""Replicas and leaders of a topic are spread evenly, over zones first, the same way every time."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.errors import TooFewBrokers
from coordinator.placement.new_topics import Candidate, place
from goqueue.wire.types import NodeId

LOADS = st.integers(0, 20)


@st.composite
def one_zone(draw: st.DrawFn) -> tuple[list[Candidate], int, int]:
    count = draw(st.integers(1, 8))
    brokers = [Candidate(NodeId(f"n{at}"), "", draw(LOADS), draw(LOADS)) for at in range(count)]
    return brokers, draw(st.integers(1, 40)), draw(st.integers(1, min(count, 5)))


@st.composite
def equal_zones(draw: st.DrawFn) -> tuple[list[Candidate], int, int]:
    zones, size = draw(st.integers(2, 4)), draw(st.integers(1, 3))
    brokers = [
        Candidate(NodeId(f"n{zone}{at}"), f"z{zone}") for zone in range(zones) for at in range(size)
    ]
    return brokers, draw(st.integers(1, 30)), draw(st.integers(1, zones))


def _spread(counts: Counter[NodeId], brokers: list[Candidate]) -> int:
    each = [counts[broker.node] for broker in brokers]
    return max(each) - min(each)


@given(one_zone())
def test_replicas_and_leaders_of_a_topic_differ_by_at_most_one(
    wanted: tuple[list[Candidate], int, int],
) -> None:
    brokers, partitions, factor = wanted

    placed = place(brokers, partitions, factor)

    assert len(placed) == partitions
    assert all(len(nodes) == len(set(nodes)) == factor for nodes in placed)
    assert _spread(Counter(node for nodes in placed for node in nodes), brokers) <= 1
    assert _spread(Counter(nodes[0] for nodes in placed), brokers) <= 1


@given(equal_zones())
def test_replicas_of_a_partition_are_in_different_zones_where_there_are_enough(
    wanted: tuple[list[Candidate], int, int],
) -> None:
    brokers, partitions, factor = wanted
    zone = {broker.node: broker.zone for broker in brokers}

    placed = place(brokers, partitions, factor)

    for nodes in placed:
        assert len({zone[node] for node in nodes}) == factor


@given(one_zone(), st.randoms(use_true_random=False))
def test_the_order_of_the_brokers_does_not_matter(
    wanted: tuple[list[Candidate], int, int], rng: object
) -> None:
    brokers, partitions, factor = wanted
    shuffled = list(brokers)
    rng.shuffle(shuffled)  # type: ignore[attr-defined]

    assert place(shuffled, partitions, factor) == place(brokers, partitions, factor)


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 3)), max_size=8))
def test_topic_after_topic_the_whole_stays_within_one(topics: list[tuple[int, int]]) -> None:
    replicas: Counter[NodeId] = Counter()
    nodes = [NodeId(f"n{at}") for at in range(4)]

    for partitions, factor in topics:
        brokers = [Candidate(node, "", replicas[node]) for node in nodes]
        for placed in place(brokers, partitions, factor):
            replicas.update(placed)

        assert max(replicas[node] for node in nodes) - min(replicas[node] for node in nodes) <= 1


def test_two_zones_share_three_replicas() -> None:
    brokers = [Candidate(NodeId(name), name[0]) for name in ("a1", "a2", "b1", "b2")]

    for nodes in place(brokers, 8, 3):
        assert {node[0] for node in nodes} == {"a", "b"}


def test_more_replicas_than_brokers_is_refused() -> None:
    with pytest.raises(TooFewBrokers, match="replication factor 3 with 2 brokers"):
        place([Candidate(NodeId("a")), Candidate(NodeId("b"))], 1, 3)
