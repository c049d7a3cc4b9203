"""Waiting is measured where it was, and held against what is promised."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.chaos.group_windows import (
    JOIN,
    KILL,
    LEAVE,
    Change,
    Figures,
    exit_code,
    figures,
    lines,
    longest_gap,
    measure,
)
from tests.check.groupcase import GroupCase
from tests.check.history import Event

GOOD = Figures(
    changes=100,
    joins=40,
    leaves=30,
    kills=30,
    rate=500.0,
    pairs=100,
    p=0.4,
    median_ms=1.0,
    gap_p50_ms=60.0,
    gap_p99_ms=90.0,
    control_p50_ms=59.0,
    control_p99_ms=90.0,
    healthy=140,
    healthy_p50_ms=60.0,
    healthy_p99_ms=200.0,
    killed=60,
    killed_p50_ms=2000.0,
    killed_p99_ms=2900.0,
    session_ms=2000.0,
    violations=0,
)


def received(member: str, partition: int, *times: float) -> list[Event]:
    return [
        {
            "type": "received",
            "time": time,
            "member": member,
            "partition": partition,
            "offset": int(time * 1000),
            "value": "v",
            "attempt": 1,
            "reason": "",
            "receipt": f"{partition}-{time}",
        }
        for time in times
    ]


def moved(partition: int, generation: int, former: str, member: str) -> Event:
    return {
        "type": "moved",
        "time": 0.0,
        "partition": partition,
        "generation": generation,
        "former": former,
        "member": member,
    }


@pytest.mark.parametrize(
    ("times", "gap"),
    [
        ([], 4.0),
        ([1.0, 2.0, 3.0], 4.0),
        ([10.5, 11.0, 13.5], 2.5),
        ([9.0, 12.0, 15.0], 2.0),
        ([10.0, 11.0, 12.0, 13.0, 14.0], 1.0),
    ],
)
def test_a_gap_is_cut_at_the_edges_of_its_window(times: list[float], gap: float) -> None:
    assert longest_gap(times, 10.0, 14.0) == gap


def test_partitions_that_stay_are_compared_with_themselves_before_the_change() -> None:
    case = GroupCase(
        [
            moved(0, 1, "", "a"),
            moved(1, 1, "", "a"),
            moved(1, 2, "a", "b"),
            *received("a", 0, 6.2, 6.4, 7.0, 10.1, 10.4, 10.9),
            *received("a", 1, 6.0, 7.0, 10.0),
            *received("b", 1, 10.8),
        ]
    )
    change = Change(JOIN, "b", 10.0, window_s=1.0, control=6.0, moved=[1])

    waits = measure(case, [change], 2)

    assert waits.pairs == [pytest.approx((0.5, 0.6))]
    assert waits.by_kind() == ["  join                median difference -100.0 ms of 1"]
    assert [(p.former, p.member, p.kind) for p in waits.pauses] == [("a", "b", JOIN)]
    assert waits.healthy_s() == [pytest.approx(0.8)]


def test_a_killed_owners_pause_begins_with_its_last_delivery() -> None:
    case = GroupCase(
        [
            moved(0, 1, "", "a"),
            moved(0, 2, "a", "b"),
            *received("a", 0, 8.0, 9.9),
            *received("b", 0, 12.1, 12.2),
        ]
    )

    waits = measure(case, [Change(KILL, "a", 10.0, 3.0, 5.0, [0])], 1)

    assert waits.killed_s() == [pytest.approx(2.2)]
    assert waits.healthy_s() == [] and waits.pairs == []


def test_of_a_kill_what_a_healthy_member_hands_over_counts_as_healthy() -> None:
    case = GroupCase(
        [
            moved(0, 1, "", "c"),
            moved(0, 2, "c", "b"),
            *received("c", 0, 9.9, 12.0),
            *received("b", 0, 12.1),
        ]
    )

    waits = measure(case, [Change(KILL, "a", 10.0, 3.0, 5.0, [0])], 1)

    assert waits.healthy_s() == [pytest.approx(0.1)]


def test_figures_tell_what_a_run_did() -> None:
    case = GroupCase([moved(0, 1, "", "a"), *received("a", 0, 6.5, 10.5)])
    changes = [Change(LEAVE, "b", 10.0, 1.0, 6.0), Change(KILL, "c", 10.0, 1.0, 6.0)]

    found = figures(measure(case, changes, 1), changes, rate=2.0, session_s=2.0, violations=0)

    assert (found.changes, found.joins, found.leaves, found.kills) == (2, 0, 1, 1)
    assert (found.pairs, found.median_ms, found.p) == (2, 0.0, 1.0)
    assert (found.gap_p50_ms, found.healthy, found.killed) == (500.0, 0, 0)


def test_a_good_run_passes_and_says_so() -> None:
    assert exit_code(GOOD, 100) == 0
    assert not any("FAIL" in line for line in lines(GOOD))


@pytest.mark.parametrize(
    ("broken", "code"),
    [
        ({"violations": 1}, 1),
        ({"p": 0.009}, 3),
        ({"median_ms": 10.1}, 3),
        ({"healthy_p99_ms": 501.0}, 3),
        ({"killed_p99_ms": 3001.0}, 3),
        ({"changes": 99}, 4),
        ({"healthy": 0}, 4),
        ({"killed": 0}, 4),
    ],
)
def test_what_is_not_good_enough_fails(broken: dict[str, float], code: int) -> None:
    assert exit_code(replace(GOOD, **broken), 100) == code  # type: ignore[arg-type]


def test_few_changes_are_not_compared() -> None:
    few = replace(GOOD, changes=3, pairs=3, p=0.001)

    assert exit_code(few, 3) == 0


def test_figures_are_read_back_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "figures.json"
    GOOD.write(path)

    assert Figures.read(path) == GOOD
