"""Messages that may go to any partition: together for a moment, and to each its share."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from goqueue.wire.types import PartitionId, TopicId
from node.broker import sticky
from node.broker.sticky import RATE_S, STAY_S, StickyPartitions

TOPIC = TopicId(1, 1)


class Leaders:
    """Whom this node knows: it leads `here`, and nobody leads `nowhere`."""

    def __init__(self) -> None:
        self.here: set[int] = set()
        self.nowhere: set[int] = set()

    def led_here(self, partition_id: PartitionId) -> bool | None:
        if partition_id.partition in self.nowhere:
            return None
        return partition_id.partition in self.here


@pytest.fixture
def leaders() -> Leaders:
    return Leaders()


@pytest.fixture
def partitions(leaders: Leaders) -> StickyPartitions:
    return StickyPartitions(leaders.led_here, random.Random(1))


def run(
    partitions: StickyPartitions,
    count: int,
    per_s: float,
    seconds: float,
    *,
    begin_s: float = 0.0,
    sizes: tuple[int, ...] = (1,),
    at_once: int = 1,
) -> list[tuple[float, int, int]]:
    """(time, partition, messages) of requests at a rate of messages, in bursts of `at_once`."""
    chance = random.Random(2)
    found: list[tuple[float, int, int]] = []
    sent = 0
    while sent < per_s * seconds:
        now_s = begin_s + sent / per_s
        for _ in range(at_once):
            messages = chance.choice(sizes)
            found.append((now_s, partitions.pick(TOPIC, count, messages, now_s), messages))
            sent += messages
    return found


def shares(found: list[tuple[float, int, int]], from_s: float, to_s: float) -> Counter[int]:
    sums: Counter[int] = Counter()
    for at_s, partition, messages in found:
        if from_s <= at_s < to_s:
            sums[partition] += messages
    return sums


@pytest.mark.parametrize("per_s", [1_000, 2_500, 20_000])
@pytest.mark.parametrize(("count", "at_once"), [(2, 1), (6, 1), (6, 64), (16, 21), (50, 1)])
def test_in_any_second_each_partition_gets_its_share_within_a_fifth(
    partitions: StickyPartitions, count: int, at_once: int, per_s: int
) -> None:
    found = run(partitions, count, per_s, 3.0, at_once=at_once)

    for from_s in (RATE_S, 0.7, 1.33, 1.9):
        sums = shares(found, from_s, from_s + 1.0)
        fair = sum(sums.values()) / count
        assert len(sums) == count
        assert all(0.8 * fair <= messages <= 1.2 * fair for messages in sums.values()), sums


def test_requests_of_all_sizes_are_counted_by_their_messages(partitions: StickyPartitions) -> None:
    found = run(partitions, 6, 60_000, 3.0, sizes=(1, 1, 1, 10, 500))

    sums = shares(found, 1.0, 2.0)
    fair = sum(sums.values()) / 6
    assert all(0.8 * fair <= messages <= 1.2 * fair for messages in sums.values()), sums


@pytest.mark.parametrize("per_s", [1_000, 2_500])
@pytest.mark.parametrize("at_once", [7, 21])
def test_bursts_through_three_nodes_leave_each_its_share_too(
    leaders: Leaders, per_s: int, at_once: int
) -> None:
    found: list[tuple[float, int, int]] = []
    for number in range(3):
        node = StickyPartitions(leaders.led_here, random.Random(number))
        begin_s = 0.01 * number
        found += run(node, 6, per_s / 3, 4.0, begin_s=begin_s, at_once=at_once)

    for from_s in (1.0, 1.7, 2.4):
        sums = shares(found, from_s, from_s + 1.0)
        fair = sum(sums.values()) / 6
        assert all(0.8 * fair <= messages <= 1.2 * fair for messages in sums.values()), sums


def test_what_comes_at_once_goes_together(partitions: StickyPartitions) -> None:
    run(partitions, 6, 10_000, 1.0, at_once=64)

    times = [1.0 + 0.0064 * turn for turn in range(4)]
    together = [{partitions.pick(TOPIC, 6, 1, now_s) for _ in range(64)} for now_s in times]

    assert [len(some) for some in together] == [1, 1, 1, 1]
    assert len(set.union(*together)) == 4


def test_a_partition_is_left_after_some_milliseconds(partitions: StickyPartitions) -> None:
    run(partitions, 2, 10_000, 1.0)
    first = partitions.pick(TOPIC, 2, 100, 1.0 + STAY_S)

    soon = partitions.pick(TOPIC, 2, 1, 1.0 + STAY_S * 1.9)
    later = partitions.pick(TOPIC, 2, 1, 1.0 + STAY_S * 2.1)

    assert (soon, later) == (first, 1 - first)


def test_few_messages_go_round_one_by_one(partitions: StickyPartitions) -> None:
    found = run(partitions, 6, 50, 2.4)

    picked = [partition for _, partition, _ in found]
    rounds = [sorted(picked[at : at + 6]) for at in range(0, 120, 6)]
    assert rounds == [list(range(6))] * 20


def test_of_those_alike_the_ones_that_are_led_here_come_first(
    leaders: Leaders, partitions: StickyPartitions
) -> None:
    leaders.here = {1, 4}

    picked = [partitions.pick(TOPIC, 6, 1, 0.1 * number) for number in range(12)]

    assert {*picked[:2]} == {*picked[6:8]} == {1, 4}
    assert sorted(picked) == sorted([*range(6)] * 2)


def test_what_nobody_leads_is_passed_over_and_owed_nothing(
    leaders: Leaders, partitions: StickyPartitions
) -> None:
    leaders.nowhere = {0}
    without = run(partitions, 3, 10_000, 1.0)
    leaders.nowhere = set()

    found = run(partitions, 3, 10_000, 1.0, begin_s=1.0)

    assert {partition for _, partition, _ in without} == {1, 2}
    assert shares(found, 1.0, 1.5)[0] <= 1.2 * 5_000 / 3


def test_where_nobody_leads_any_all_are_tried(
    leaders: Leaders, partitions: StickyPartitions
) -> None:
    leaders.nowhere = {0, 1, 2}

    picked = {partitions.pick(TOPIC, 3, 1, 0.1 * number) for number in range(9)}

    assert picked == {0, 1, 2}


def test_partitions_that_were_added_get_their_share_and_no_more(
    partitions: StickyPartitions,
) -> None:
    run(partitions, 2, 10_000, 1.0)

    found = run(partitions, 4, 10_000, 1.5, begin_s=1.0)

    assert all(2_000 <= messages <= 3_000 for messages in shares(found, 1.3, 2.3).values())


def test_so_many_topics_are_remembered_and_no_more(
    partitions: StickyPartitions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sticky, "TOPICS_MAX", 3)

    for number in range(5):
        partitions.pick(TopicId(1, number), 2, 1, 0.0)

    assert len(partitions._topics) == 3


def test_a_topic_of_one_partition_costs_nothing(partitions: StickyPartitions) -> None:
    assert partitions.pick(TOPIC, 1, 1, 0.0) == 0
    assert not partitions._topics
