"""Plans keep zones, give no broker more than its share, and move no more than they must."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.commands.members import Partition
from coordinator.commands.placement import Row
from coordinator.errors import TooFewBrokers
from coordinator.placement.planner import (
    Picture,
    Site,
    plan_drain,
    plan_factor,
    plan_leaders,
    plan_rebalance,
)
from goqueue.wire.types import NodeId
from tests.steps import steps

BROKERS_MAX = 7
PLANNED_STEPS_MAX = 3000
"""Of each of many partitions; 1,326 today."""


@st.composite
def pictures(draw: st.DrawFn, zones_max: int = 3) -> Picture:
    """Any placement at all, balanced or not, of topics with different factors."""
    zones = draw(st.integers(1, zones_max))
    brokers = draw(st.integers(1, BROKERS_MAX))
    sites = {
        NodeId(f"n{at}"): Site(f"z{draw(st.integers(0, zones - 1))}" if zones > 1 else "")
        for at in range(brokers)
    }
    desired: dict[Partition, tuple[NodeId, ...]] = {}
    factors: dict[int, int] = {}
    for topic in range(1, draw(st.integers(1, 4)) + 1):
        factor = draw(st.integers(1, min(brokers, 4)))
        factors[topic] = factor
        for number in range(draw(st.integers(1, 12))):
            order = draw(st.permutations(sorted(sites)))
            desired[topic, number] = tuple(order[:factor])
    return Picture(sites, desired, factors)


def after(picture: Picture, rows: list[Row]) -> Picture:
    desired = dict(picture.desired)
    for row in rows:
        key = (row.topic, row.partition)
        assert tuple(row.before) == desired[key]
        assert row.before != row.replicas
        assert len(set(row.replicas)) == len(row.replicas)
        desired[key] = tuple(map(NodeId, row.replicas))
    return Picture(picture.sites, desired, picture.factors)


def loads(picture: Picture) -> Counter[NodeId]:
    found: Counter[NodeId] = Counter(dict.fromkeys(picture.sites, 0))
    for nodes in picture.desired.values():
        found.update(nodes)
    return found


def leads(picture: Picture) -> Counter[NodeId]:
    found: Counter[NodeId] = Counter(dict.fromkeys(picture.sites, 0))
    found.update(nodes[0] for nodes in picture.desired.values())
    return found


def spread(counts: Counter[NodeId]) -> int:
    return max(counts.values()) - min(counts.values())


def unevenness(picture: Picture, nodes: tuple[NodeId, ...]) -> int:
    """By how many more replicas than need be a zone has, against any that could take one."""
    zones = Counter(picture.sites[node].zone for node in nodes)
    free = {site.zone for node, site in picture.sites.items() if site.takes and node not in nodes}
    return max((max(zones.values()) - zones[zone] - 1 for zone in free), default=0)


def moved(rows: list[Row]) -> int:
    return sum(len(set(row.replicas) - set(row.before)) for row in rows)


@given(pictures(zones_max=1))
def test_a_rebalance_gives_no_broker_more_than_its_share_and_moves_only_what_is_over(
    picture: Picture,
) -> None:
    rows = plan_rebalance(picture)

    found = after(picture, rows)
    assert spread(loads(found)) <= 1
    share = sum(loads(picture).values()) / len(picture.sites)
    over = sum(max(0, count - int(share)) for count in loads(picture).values())
    under = sum(max(0, int(share) - count) for count in loads(picture).values())
    assert moved(rows) <= max(over, under)
    assert plan_rebalance(found) == []


@given(pictures())
def test_a_rebalance_never_crowds_a_zone_and_has_nothing_to_do_twice(picture: Picture) -> None:
    found = after(picture, plan_rebalance(picture))

    for nodes in found.desired.values():
        assert unevenness(found, nodes) <= 0
    assert plan_rebalance(found) == []


@given(pictures())
def test_leaders_are_evened_out_among_the_same_replicas(picture: Picture) -> None:
    rows = plan_leaders(picture)

    found = after(picture, rows)
    assert all(sorted(row.before) == sorted(row.replicas) for row in rows)
    assert spread(leads(found)) <= spread(leads(picture))
    assert plan_leaders(found) == []


@given(st.integers(2, 6), st.integers(1, 30))
def test_where_all_hold_all_leaders_differ_by_one_at_most(brokers: int, partitions: int) -> None:
    nodes = tuple(NodeId(f"n{at}") for at in range(brokers))
    desired = {(1, number): nodes for number in range(partitions)}

    found = after(
        Picture(dict.fromkeys(nodes, Site()), desired),
        plan_leaders(Picture(dict.fromkeys(nodes, Site()), desired)),
    )

    assert spread(leads(found)) <= 1


@given(pictures(), st.integers(0, 6))
def test_a_drain_moves_just_what_must_go_and_nobody_gets_more_than_another_could_have(
    picture: Picture, which: int
) -> None:
    leaving = sorted(picture.sites)[which % len(picture.sites)]
    if max(picture.factors.values()) >= len(picture.sites):
        return

    rows = plan_drain(picture, [leaving])

    found = after(picture, rows)
    assert loads(found)[leaving] == 0
    assert moved(rows) == loads(picture)[leaving]
    if len({site.zone for site in picture.sites.values()}) == 1:
        load = loads(found)
        for row in rows:
            new = map(NodeId, set(row.replicas) - set(row.before))
            others = set(picture.sites) - {leaving} - set(map(NodeId, row.replicas))
            assert all(load[node] - load[other] <= 1 for node in new for other in others)


@given(pictures(), st.integers(0, 6))
def test_a_drain_leaves_zones_as_even_as_they_were(picture: Picture, which: int) -> None:
    leaving = sorted(picture.sites)[which % len(picture.sites)]
    sites = {n: Site(s.zone, n != leaving) for n, s in picture.sites.items()}
    picture = Picture(sites, picture.desired, picture.factors)
    if max(picture.factors.values()) >= len(picture.sites):
        return
    even = {p for p, nodes in picture.desired.items() if unevenness(picture, nodes) <= 0}

    found = after(picture, plan_drain(picture, [leaving]))

    assert all(unevenness(found, found.desired[partition]) <= 0 for partition in even)


def test_a_drain_with_too_few_others_is_refused() -> None:
    nodes = (NodeId("a"), NodeId("b"))

    with pytest.raises(TooFewBrokers):
        plan_drain(Picture(dict.fromkeys(nodes, Site()), {(1, 0): nodes}), [nodes[0]])


@given(pictures(), st.integers(1, 7))
def test_another_replication_factor_keeps_what_there_is(picture: Picture, factor: int) -> None:
    factor = min(factor, len(picture.sites))
    picture = Picture(picture.sites, picture.desired, dict.fromkeys(picture.factors, factor))

    rows = plan_factor(picture)

    found = after(picture, rows)
    assert all(len(nodes) == factor for nodes in found.desired.values())
    for row in rows:
        small, large = sorted((set(row.before), set(row.replicas)), key=len)
        assert small <= large
    assert plan_factor(found) == []


@given(pictures(), st.integers(BROKERS_MAX, BROKERS_MAX + 3))
def test_a_long_plan_comes_in_parts_that_end_in_the_same_balance(
    picture: Picture, rows_max: int
) -> None:
    parts = 0
    while rows := plan_rebalance(picture, rows_max):
        assert len(rows) <= rows_max
        picture = after(picture, rows)
        parts += 1
        assert parts < 500

    assert plan_rebalance(picture) == []


def test_no_part_of_a_plan_takes_back_what_the_one_before_did() -> None:
    near, far, other = (NodeId(name) for name in ("n0", "n1", "n2"))
    sites = {near: Site("z1"), far: Site("z1"), other: Site("z0")}
    pairs = [(near, other), (near, far), (far, other), *[(other, near)] * 3]
    picture = Picture(sites, {(1, number): pair for number, pair in enumerate(pairs)}, {1: 2})

    for _ in range(6):
        picture = after(picture, plan_rebalance(picture, rows_max=2))

    assert plan_rebalance(picture) == []


@given(pictures(), st.randoms(use_true_random=False))
def test_the_order_of_what_is_looked_at_does_not_matter(picture: Picture, rng: object) -> None:
    sites, desired = list(picture.sites.items()), list(picture.desired.items())
    rng.shuffle(sites)  # type: ignore[attr-defined]
    rng.shuffle(desired)  # type: ignore[attr-defined]
    shuffled = Picture(dict(sites), dict(desired), picture.factors)

    assert plan_rebalance(shuffled) == plan_rebalance(picture)


def test_a_broker_that_was_added_gets_its_share_and_nothing_else_moves() -> None:
    nodes = [NodeId(f"n{at}") for at in range(4)]
    trio = tuple(nodes[:3])
    desired = {(1, number): trio[number % 3 :] + trio[: number % 3] for number in range(12)}
    picture = Picture(dict.fromkeys(nodes, Site()), desired)

    rows = plan_rebalance(picture)

    assert moved(rows) == 9
    found = after(picture, rows)
    assert set(loads(found).values()) == {9}
    assert set(leads(found).values()) == {3}


def test_many_partitions_are_planned_in_a_bounded_number_of_steps() -> None:
    nodes = [NodeId(f"n{at}") for at in range(6)]
    desired = {
        (topic, number): tuple(nodes[(topic + number + at) % 5] for at in range(3))
        for topic in range(1, 41)
        for number in range(50)
    }
    picture = Picture({node: Site(f"z{at % 3}") for at, node in enumerate(nodes)}, desired)

    rows = []
    taken = steps(lambda: rows.extend(plan_rebalance(picture)))

    assert rows
    assert taken < len(desired) * PLANNED_STEPS_MAX
