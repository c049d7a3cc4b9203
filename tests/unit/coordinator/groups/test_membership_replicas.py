"""Replicas of the cluster group agree about members: byte for byte, and in any process."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from coordinator.commands.codec import CreateTopic, DeleteTopic
from coordinator.commands.members import JoinGroup
from coordinator.groups.subscriptions import Patterns
from goqueue.wire.types import TopicId
from tests.steps import steps
from tests.unit.coordinator.cluster_group import Cluster
from tests.unit.coordinator.groups.consumer_group import NAME, ConsumerGroup

ROOT = Path(__file__).parents[4]
APPLY_STEPS_MAX = 3_000_000
"""More than twice what is needed today, of what all other entries of the cluster group wait for."""


def busy() -> ConsumerGroup:
    """A group in which everything happens: several subscriptions, moves in all states."""
    group = ConsumerGroup("orders", "bills", "order-items")
    for number in range(7):
        topics = ["orders"] if number % 2 else []
        group.join(f"m{number}", *topics, patterns=[["b*"], ["order*", "?ills"], ["*"]][number % 3])
        if number % 3:
            group.settle()
    group.join("s1", instance_id="s")
    group.let_go("m1")
    group.hand_over(group.namings()[::2])
    group.join("s2", instance_id="s")
    group.expire("m2", "m5")
    group.create("bills-2", 3)
    group.do(DeleteTopic("order-items"))
    group.leave("m3")
    return group


def digest(group: Cluster) -> str:
    return hashlib.sha256(group.state.snapshot()).hexdigest()


def test_replicas_are_equal_whatever_the_order_of_their_sets() -> None:
    """Hashes of texts differ from process to process, and with them the order of sets."""
    script = (
        "from tests.unit.coordinator.groups.test_membership_replicas import busy, digest\n"
        "print(digest(busy()))"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": f"{ROOT}:{ROOT / 'client'}"},
            cwd=ROOT,
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("1", "2", "3")
    }

    assert found == {digest(busy()) + "\n"}


def test_a_replica_from_a_snapshot_goes_on_like_the_others() -> None:
    one, other = busy(), busy()
    other.restart()

    for group in (one, other):
        group.settle()
        group.leave("m0")
        group.create("bills-3", 2)
        group.join("m9", patterns=["*s", "order?"])
        group.settle()

    assert digest(one) == digest(other)


def test_what_was_refused_leaves_no_trace_of_its_group() -> None:
    group = ConsumerGroup("orders")

    result = group.do(JoinGroup(NAME, group.group.id, "a", patterns=["*" * 300]))

    assert isinstance(result, Exception)
    assert not group.state.members.by_group


def wide() -> ConsumerGroup:
    """Five thousand partitions, and a group without members yet."""
    group = ConsumerGroup()
    for number in range(50):
        topic = CreateTopic(f"t{number}", {"partitions": 100, "replication_factor": 1})
        group.do(topic)
    return group


def test_a_group_of_five_thousand_partitions_fits_into_a_snapshot() -> None:
    group = wide()
    empty = len(group.state.snapshot())

    for number in range(10):
        group.join(f"m{number}", patterns=["*"])
    group.settle()

    assert len(group.membership.holdings) == 5000
    assert len(group.state.snapshot()) - empty < 220 * 5000


def test_nothing_that_happens_to_five_thousand_partitions_takes_many_steps_to_apply() -> None:
    """All other entries of the cluster group wait for it."""
    group = wide()
    taken: list[int] = []

    def counted(act: Callable[[], object]) -> None:
        taken.append(steps(act))

    for number in range(20):
        if number in (*range(4), 18, 19):  # from the second one on each takes less than the last
            counted(lambda: group.join(f"m{number}", patterns=["*"]))  # noqa: B023 - at once
        else:
            group.join(f"m{number}", patterns=["*"])
    counted(group.hand_over)
    counted(lambda: group.join("late", patterns=["*"]))
    counted(lambda: [group.let_go(member) for member in group.membership.members])
    counted(group.hand_over)
    counted(lambda: group.expire(*[f"m{number}" for number in range(10)]))
    counted(group.hand_over)
    counted(lambda: group.create("t-new", 1))
    counted(lambda: [group.view(member) for member in group.membership.members])

    assert group.membership.holdings.moving.keys() == {
        partition for partition, held in group.membership.holdings.items() if held.topic == "t-new"
    }
    assert max(taken) < APPLY_STEPS_MAX


@pytest.mark.parametrize(
    ("pattern", "matching"),
    [
        ("*", ["Orders", "a.b", "orders", "orders-1"]),
        ("orders*", ["orders", "orders-1"]),
        ("orders-?", ["orders-1"]),
        ("[oO]rders", ["Orders", "orders"]),
        ("[!o]*", ["Orders", "a.b"]),
        ("a.b", ["a.b"]),
        ("a?b", ["a.b"]),
        ("orders-[0-9]", ["orders-1"]),
        ("orders-[9-0]", []),
        ("[", []),
        ("[]", []),
        ("[!]", []),
        ("order", []),
        ("[[]*", []),
        ("[a--]*", []),
        ("[!-]*[!!]", ["Orders", "a.b", "orders", "orders-1"]),
    ],
)
def test_patterns_match_whole_names_and_mind_letter_case(pattern: str, matching: list[str]) -> None:
    names = ["orders", "orders-1", "Orders", "a.b"]
    topics = {name: (TopicId(1, at), 1) for at, name in enumerate(names)}

    assert sorted(Patterns().matching(pattern, topics)) == matching


def test_no_pattern_takes_long() -> None:
    """Nothing goes back from one star to the one before."""
    name = "a" * 249
    topics = {f"{name[:-4]}{at:04}": (TopicId(1, at), 1) for at in range(200)}
    patterns = Patterns()

    for pattern in (
        "*a" * 120 + "b",
        "*a?" * 80 + "b",
        "a*" * 124,
        "*[a-z]" * 40 + "b",
        "?*" * 124,
    ):
        assert patterns.matching(pattern, topics) in (set(), set(topics))


def test_topics_that_come_and_go_are_followed_by_patterns_that_are_known() -> None:
    patterns = Patterns()
    first = {"a1": (TopicId(1, 1), 1), "b1": (TopicId(1, 2), 1)}
    patterns.matching("a*", first)

    second = {"a2": (TopicId(1, 3), 1), "b1": (TopicId(1, 2), 1)}

    assert patterns.matching("a*", second) == {"a2"}
    assert patterns.matching("b*", second) == {"b1"}
    assert patterns.matching("a*", first) == {"a1"}


def test_patterns_that_are_remembered_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coordinator.groups.subscriptions.PATTERNS_KEPT_MAX", 3)
    patterns = Patterns()
    topics = {"a1": (TopicId(1, 1), 1)}

    for number in range(10):
        assert patterns.matching(f"a[{number}]", topics) == ({"a1"} if number == 1 else set())

    assert len(patterns._found) <= 3


def test_names_that_are_remembered_are_bounded_and_found_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("coordinator.groups.subscriptions.NAMES_KEPT_MAX", 5)
    patterns = Patterns()
    topics = {f"a{number}": (TopicId(1, number), 1) for number in range(3)}

    for pattern in ("*", "a*", "?[0-9]", "a1"):
        assert patterns.matching(pattern, topics) == ({"a1"} if pattern == "a1" else set(topics))

    assert set(patterns._found) == {"*", "a1"}
