"""Which groups a node's stop would leave without a majority."""

from __future__ import annotations

import pytest

from goqueue.wire.types import NodeId
from node.kubernetes.quorums import at_stake

ME, OTHER, THIRD = NodeId("goqueue-2"), NodeId("goqueue-0"), NodeId("goqueue-1")
FIVE = [NodeId(f"goqueue-{ordinal}") for ordinal in range(5)]


def test_groups_are_told_by_their_kind_with_who_is_missed() -> None:
    groups = [("the cluster group", FIVE[:3]), *[("partitions", [ME, OTHER, THIRD])] * 2]

    assert at_stake(ME, groups, {OTHER}) == (
        "the cluster group and 2 partitions would have no majority, as goqueue-0 is away or not "
        "in sync"
    )


@pytest.mark.parametrize(
    ("voters", "away", "why"),
    [
        (FIVE[:3], [], "nobody is away"),
        (FIVE[:3], FIVE[3:], "who is away has no vote there"),
        ([OTHER, THIRD, FIVE[3]], [OTHER], "this node has no vote there"),
        ([ME], [OTHER], "it is alone"),
        ([ME, OTHER], [OTHER], "two need both at any time"),
        (FIVE[:3], [OTHER, THIRD], "there is no majority even with this node"),
        (FIVE, [OTHER], "three of five are left"),
    ],
)
def test_a_stop_that_costs_no_majority_is_not_held_up(
    voters: list[NodeId], away: list[NodeId], why: str
) -> None:
    assert at_stake(ME, [("partitions", voters)], set(away)) == "", why


def test_of_five_two_away_are_one_too_many() -> None:
    assert at_stake(ME, [("partitions", FIVE)], {OTHER, THIRD})
