"""Who should have which partition: all of them, once, evenly, and with few moves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from math import ceil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator.groups.assignors import (
    ASSIGNORS,
    Assignor,
    range_of_each_topic,
    round_robin,
    sticky,
)
from goqueue.wire.types import PartitionId, TopicId
from tests.steps import Steps

APPLY_STEPS_MAX = 3_000_000
"""More than twice what is needed today, of what all other entries of the cluster group wait for."""

Subscriptions = dict[str, frozenset[TopicId]]


def topic(number: int) -> TopicId:
    return TopicId(1, number)


def partitions(*counts: int) -> list[PartitionId]:
    """All partitions of topics with so many of them."""
    return [PartitionId(topic(n), p) for n, count in enumerate(counts) for p in range(count)]


def all_subscribe(members: int, *topics: int, prefix: str = "m") -> Subscriptions:
    return {f"{prefix}{n:04}": frozenset(map(topic, topics)) for n in range(members)}


def spread(assignment: Mapping[PartitionId, str], members: Sequence[str]) -> int:
    loads = Counter(dict.fromkeys(members, 0))
    loads.update(assignment.values())
    return max(loads.values()) - min(loads.values())


def moves(before: Mapping[PartitionId, str], after: Mapping[PartitionId, str]) -> list[PartitionId]:
    return [p for p in before if p in after and before[p] != after[p]]


@st.composite
def groups(draw: st.DrawFn) -> tuple[Subscriptions, list[PartitionId], dict[PartitionId, str]]:
    """Members with any subscriptions, and any state to begin with."""
    counts = draw(st.lists(st.integers(1, 7), min_size=1, max_size=4))
    numbers = st.frozensets(st.integers(0, len(counts) - 1).map(topic))
    names = st.sampled_from([f"m{n}" for n in range(8)])
    subscriptions = draw(st.dictionaries(names, numbers, min_size=1, max_size=8))
    known = partitions(*counts)
    owners = st.sampled_from([*subscriptions, "gone", ""])
    return subscriptions, known, draw(st.dictionaries(st.sampled_from(known), owners))


@pytest.mark.parametrize("name", ASSIGNORS)
@given(group=groups())
@settings(max_examples=150, deadline=None)
def test_every_partition_has_exactly_one_member_that_subscribes_to_it(
    name: str, group: tuple[Subscriptions, list[PartitionId], dict[PartitionId, str]]
) -> None:
    subscriptions, known, current = group

    found = ASSIGNORS[name](subscriptions, known, current)

    wanted = {p for p in known if any(p.topic in mine for mine in subscriptions.values())}
    assert set(found) == wanted
    assert all(p.topic in subscriptions[member] for p, member in found.items())


@pytest.mark.parametrize("name", ASSIGNORS)
@given(group=groups(), seed=st.randoms(use_true_random=False))
@settings(max_examples=100, deadline=None)
def test_the_order_of_dicts_and_sets_does_not_matter(
    name: str, group: tuple[Subscriptions, list[PartitionId], dict[PartitionId, str]], seed: object
) -> None:
    subscriptions, known, current = group
    shuffled = list(subscriptions.items())
    turned = list(current.items())
    for items in (shuffled, turned):
        seed.shuffle(items)  # type: ignore[attr-defined]
    copies = {member: frozenset(sorted(mine, reverse=True)) for member, mine in shuffled}

    found = ASSIGNORS[name](copies, known, dict(turned))

    assert found == ASSIGNORS[name](subscriptions, known, current)


@given(group=groups())
@settings(max_examples=200, deadline=None)
def test_no_chain_of_moves_would_make_sticky_loads_more_equal(
    group: tuple[Subscriptions, list[PartitionId], dict[PartitionId, str]],
) -> None:
    subscriptions, known, current = group

    found = sticky(subscriptions, known, current)

    loads = Counter(found.values())
    for source in subscriptions:
        reached = {source}
        while True:
            given_away = {p.topic for p, member in found.items() if member in reached}
            more = {m for m, mine in subscriptions.items() if mine & given_away} - reached
            if not more:
                break
            reached |= more
        assert all(loads[source] - loads[member] < 2 for member in reached)


@given(group=groups())
@settings(max_examples=100, deadline=None)
def test_what_is_sticky_stays_when_nothing_changes(
    group: tuple[Subscriptions, list[PartitionId], dict[PartitionId, str]],
) -> None:
    subscriptions, known, current = group
    found = sticky(subscriptions, known, current)

    assert sticky(subscriptions, known, found) == found


@given(
    members=st.integers(0, 12),
    counts=st.lists(st.integers(1, 9), min_size=1, max_size=3),
    joining=st.sampled_from(["a", "m0003x", "z"]),
)
@settings(max_examples=150, deadline=None)
def test_a_join_moves_its_share_at_most_and_only_to_itself(
    members: int, counts: list[int], joining: str
) -> None:
    known = partitions(*counts)
    topics = range(len(counts))
    before = sticky(all_subscribe(members, *topics), known, {})

    joined = {**all_subscribe(members, *topics), joining: frozenset(map(topic, topics))}
    after = sticky(joined, known, before)

    moved = moves(before, after)
    assert len(moved) <= ceil(len(known) / len(joined))
    assert all(after[p] == joining for p in moved)
    assert spread(after, list(joined)) <= 1


@given(
    members=st.integers(2, 12),
    counts=st.lists(st.integers(1, 9), min_size=1, max_size=3),
    leaving=st.integers(0, 11),
)
@settings(max_examples=150, deadline=None)
def test_a_leave_moves_only_what_the_leaver_had(
    members: int, counts: list[int], leaving: int
) -> None:
    known = partitions(*counts)
    all_members = all_subscribe(members, *range(len(counts)))
    before = sticky(all_members, known, {})
    gone = sorted(all_members)[leaving % members]

    left = {member: mine for member, mine in all_members.items() if member != gone}
    after = sticky(left, known, before)

    assert {before[p] for p in moves(before, after)} <= {gone}
    assert spread(after, list(left)) <= 1


def test_a_chain_of_moves_is_found_where_no_single_one_helps() -> None:
    """One has too much, and nothing for the one that has too little but through a third."""
    known = partitions(4, 2)
    subscriptions = {
        "heavy": frozenset({topic(0)}),
        "middle": frozenset({topic(0), topic(1)}),
        "light": frozenset({topic(1)}),
    }
    current = {p: "heavy" if p.partition < 3 else "middle" for p in known[:4]}
    current |= {known[4]: "middle", known[5]: "light"}

    found = sticky(subscriptions, known, current)

    assert Counter(found.values()) == {"heavy": 2, "middle": 2, "light": 2}
    assert len(moves(current, found)) == 2


def test_what_few_can_take_is_given_before_what_many_can() -> None:
    known = partitions(2, 2)
    subscriptions = {"a": frozenset({topic(0), topic(1)}), "b": frozenset({topic(0)})}

    found = sticky(subscriptions, known, {})

    assert {found[p] for p in known if p.topic == topic(1)} == {"a"}
    assert {found[p] for p in known if p.topic == topic(0)} == {"b"}


def test_ranges_are_neighbours_of_each_topic_and_the_first_get_one_more() -> None:
    known = partitions(5, 2)

    found = range_of_each_topic(all_subscribe(3, 0, 1), known, {})

    assert [found[p][-1] for p in known] == ["0", "0", "1", "1", "2", "0", "1"]


def test_round_robin_goes_on_with_the_next_topic_where_it_was() -> None:
    known = partitions(4, 2)
    subscriptions = all_subscribe(3, 0, 1)

    found = round_robin(subscriptions, known, {})

    assert [found[p][-1] for p in known] == ["0", "1", "2", "0", "1", "2"]


def test_round_robin_passes_over_who_does_not_subscribe() -> None:
    known = partitions(3, 2)
    subscriptions = {"a": frozenset({topic(0)}), "b": frozenset({topic(0), topic(1)})}

    found = round_robin(subscriptions, known, {})

    assert [found[p] for p in known] == ["a", "b", "a", "b", "b"]


def test_nobody_has_anything_where_nobody_subscribes() -> None:
    for assignor in ASSIGNORS.values():
        assert assignor({}, [], {}) == {}
        assert assignor({"a": frozenset()}, partitions(3), {}) == {}


def large() -> dict[str, tuple[Subscriptions, dict[PartitionId, str]]]:
    """A thousand members and five thousand partitions, in the ways that cost most."""
    topics = range(50)
    known = partitions(*[100] * 50)
    same = all_subscribe(1000, *topics)
    pairs = {f"m{n:04}": frozenset(map(topic, (n % 50, (n + 1) % 50))) for n in range(1000)}
    return {
        "nobody has anything": (same, {}),
        "one has everything": (same, dict.fromkeys(known, "m0000")),
        "each topic is one member's, who can pass it on to neighbours only": (
            pairs,
            {p: f"m{p.topic.index:04}" for p in known},
        ),
        "one topic's members have all of two": (
            {**pairs, **all_subscribe(100, 0, 1, prefix="z")},
            {p: "z0000" for p in known if p.topic.index < 2},
        ),
    }


@pytest.mark.parametrize("case", large())
@pytest.mark.parametrize("assignor", ASSIGNORS.values(), ids=ASSIGNORS)
def test_a_thousand_members_share_five_thousand_partitions_in_a_bounded_number_of_steps(
    case: str, assignor: Assignor
) -> None:
    subscriptions, current = large()[case]
    known = partitions(*[100] * 50)

    with Steps() as counted:
        found = assignor(subscriptions, known, current)

    assert len(found) == len(known)
    assert counted.count < APPLY_STEPS_MAX


def test_a_search_for_chains_ends_where_there_are_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("coordinator.groups.assignors.CHAINS_MAX", 3)
    known = partitions(*[20] * 10)
    steps = {f"m{n}": frozenset({topic(n), topic(max(0, n - 1))}) for n in range(10)}
    current = {p: f"m{p.topic.index}" for p in known if p.topic.index == 0}

    found = sticky(steps, known, current)

    assert set(found) == set(known)
