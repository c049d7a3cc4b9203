"""A leader judges each step anew: what was right when it was sent may be wrong when it comes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coordinator.placement.steps import (
    ADD_LEARNER,
    CONFIRM,
    PROMOTE,
    REMOVE,
    TRANSFER,
    Seen,
    Step,
    Waiting,
    is_left_out,
    next_step,
    refusal,
)
from coordinator.topics.partitions import Configuration
from goqueue.wire.types import Incarnation, Index, NodeId, PartitionId, TopicId, Voter

GROUP = PartitionId(TopicId(1, 2), 0)


def voter(name: str) -> Voter:
    """`b2` is broker b with its second data directory."""
    return Voter(NodeId(name[0]), Incarnation(int(name[1:] or 1)))


def seen(
    voters: str, learners: str = "", *, down: str = "", ready: str = "", busy: bool = False
) -> Seen:
    configuration = Configuration(
        Index(10), tuple(map(voter, voters.split())), tuple(map(voter, learners.split()))
    )
    alive = [one.node for one in configuration.voters if one.node not in down]
    return Seen(configuration, alive[0], frozenset(alive), frozenset(map(NodeId, ready)), busy)


def without_room(now: Seen, *nodes: str) -> Seen:
    return replace(now, full=frozenset(map(NodeId, nodes)))


def told(wanted: str, now: Seen) -> str:
    found = next_step(GROUP, [voter(name) for name in wanted.split()], now)
    if isinstance(found, Step):
        assert refusal(found, now) is None
        return f"{found.kind} {found.voter.node}{found.voter.incarnation}"
    return found.reason if isinstance(found, Waiting) else ""


@pytest.mark.parametrize(
    ("wanted", "now", "expected"),
    [
        ("a b c", seen("a b c"), ""),
        ("a b d", without_room(seen("a b c"), "d"), "d has no room on its disk"),
        ("a b d", without_room(seen("a b c", "d"), "d"), "d has no room on its disk"),
        ("a b d", without_room(seen("a b c", "d", ready="d"), "d"), "promote d1"),
        ("c b a", seen("a b c"), ""),
        ("a b d", seen("a b c"), "add_learner d1"),
        ("a b d", seen("a b c", "d"), "d is catching up"),
        ("a b d", seen("a b c", "d", ready="d"), "promote d1"),
        ("a b d", seen("a b c d"), "remove c1"),
        ("b c d", seen("a b c d"), "transfer b1"),
        ("b c d", seen("b c d a"), "remove a1"),
        ("a b d", seen("a b c d", down="c"), "remove c1"),
        ("a b d", seen("a b c d", down="d"), "waiting for d to be in sync"),
        ("a b c", seen("a b c", "d"), "remove d1"),
        ("a b e", seen("a b c", "d"), "remove d1"),
        ("a b2 c", seen("a b c", down="b"), "remove b1"),
        ("a b2 c", seen("a c"), "add_learner b2"),
        ("a b2 c", seen("a c", "b"), "remove b1"),
        ("d e f", seen("a b c"), "add_learner d1"),
        ("d e f", seen("a b c d"), "remove b1"),
        ("a b c", seen("a b"), "add_learner c1"),
        ("a", seen("a b c"), "remove b1"),
        ("b", seen("a"), "add_learner b1"),
        ("b", seen("a b"), "transfer b1"),
        ("a b d", seen("a b c", busy=True), "another change is under way"),
    ],
)
def test_the_next_step(wanted: str, now: Seen, expected: str) -> None:
    assert told(wanted, now) == expected


def test_a_lost_directory_is_removed_though_its_broker_is_in_sync_by_name() -> None:
    now = seen("a b c")  # its leader still takes the new process for the old one

    assert told("a b2 c", now) == "remove b1"


@pytest.mark.parametrize(
    ("step", "now", "expected"),
    [
        (Step(GROUP, REMOVE, voter("c"), Index(9), 3), seen("a b c d"), "entry 10, not 9"),
        (Step(GROUP, REMOVE, voter("c"), Index(10), 3), seen("a b c d", down="d"), "waiting for d"),
        (Step(GROUP, REMOVE, voter("c"), Index(10), 1), seen("a b c", down="b"), "only 1 of the 2"),
        (Step(GROUP, REMOVE, voter("c"), Index(10), 3), seen("a b c"), "only 2 others of 3"),
        (Step(GROUP, REMOVE, voter("e"), Index(10), 3), seen("a b c"), "e does not vote"),
        (Step(GROUP, REMOVE, voter("c2"), Index(10), 3), seen("a b c"), "c does not vote"),
        (Step(GROUP, PROMOTE, voter("d"), Index(10), 3), seen("a b c", "d"), "not caught up"),
        (Step(GROUP, CONFIRM, voter("a"), Index(9), 3), seen("a b c"), "entry 10, not 9"),
        (Step(GROUP, CONFIRM, voter("a"), Index(10), 3), seen("a b c", busy=True), "under way"),
        (
            Step(GROUP, PROMOTE, voter("d2"), Index(10), 3),
            seen("a b c", "d", ready="d"),
            "not caught",
        ),
        (Step(GROUP, ADD_LEARNER, voter("c2"), Index(10), 3), seen("a b c"), "takes part already"),
        (Step(GROUP, TRANSFER, voter("c"), Index(10), 3), seen("a b c", down="c"), "can't lead"),
        (
            Step(GROUP, ADD_LEARNER, voter("d"), Index(10), 3),
            seen("a b c", busy=True),
            "another change",
        ),
    ],
)
def test_a_step_that_is_wrong_by_now_is_refused(step: Step, now: Seen, expected: str) -> None:
    assert expected in (refusal(step, now) or "")


@pytest.mark.parametrize(
    ("told", "knows", "expected"),
    [
        (seen("a b c"), 4, True),
        (seen("a b c"), 5, True),
        (seen("a b c"), 6, False),  # of an election that this leader has not heard of
        (seen("a b c", busy=True), 5, False),
        (seen("a b c", "d"), 5, False),
        (seen("a b d"), 5, False),
        (seen("a b d2"), 5, True),  # another data directory of that broker
    ],
)
def test_a_replica_is_left_out_only_by_a_leader_of_a_term_that_is_as_new(
    told: Seen, knows: int, expected: bool
) -> None:
    assert is_left_out(voter("d"), replace(told, term=5), knows) is expected
    assert not is_left_out(voter("d"), told, knows), "an older version tells no term"


@pytest.mark.parametrize("kind", [ADD_LEARNER, PROMOTE, REMOVE, CONFIRM, TRANSFER])
def test_what_was_decided_in_an_earlier_epoch_is_refused(kind: str) -> None:
    before = seen("a b c", "d", ready="d")
    now = replace(before, configuration=replace(before.configuration, epoch=4))
    step = Step(GROUP, kind, voter("d"), Index(10), 3, epoch=3)

    assert refusal(step, now) == "it was decided in epoch 3, and this is 4"


def test_where_all_is_as_wanted_an_epoch_is_confirmed_once() -> None:
    wanted, now = [voter(name) for name in "abc"], seen("a b c")

    step = next_step(GROUP, wanted, now, epoch=5, confirmed=4)

    assert step == Step(GROUP, CONFIRM, voter("a"), Index(10), 3, epoch=5)
    after = replace(now, configuration=replace(now.configuration, epoch=5))
    assert next_step(GROUP, wanted, after, epoch=5, confirmed=4) is None
    assert next_step(GROUP, wanted, now, epoch=5) is None
