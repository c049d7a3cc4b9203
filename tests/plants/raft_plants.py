"""Bugs in how Raft groups rest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from raft.rest.beats import Marked, NodeBeats, Resting
from tests.plants.plant import Plant, nothing

Call = Callable[..., Any]
TESTS = "tests/unit/raft/test_rest.py::"


def _leaders_rest_on(original: Call) -> Call:
    """Nothing that a leader at rest has to do rouses it."""

    def rouse(self: NodeBeats, group: Resting) -> None:
        if group not in self._led:
            original(self, group)

    return rouse


def _unmarked(_original: Call) -> Call:
    """All groups at rest have the same mark as none."""

    def add(self: Marked, group: Resting, _term: int) -> None:
        self._marks[group] = 0

    return add


RAFT_PLANTS = (
    Plant(
        "leaders-death-missed-at-rest",
        "raft.rest.beats:NodeBeats.look",
        nothing,
        TESTS + "test_a_leader_that_stops_in_its_rest_is_missed_though_its_beats_are_lost",
    ),
    Plant(
        "wake-lost-at-rest",
        "raft.rest.beats:NodeBeats.rouse",
        _leaders_rest_on,
        TESTS + "test_what_is_published_rouses_the_group_which_rests_again",
    ),
    Plant(
        "silent-followers-believed-at-rest",
        "raft.rest.beats:NodeBeats.rouse_unanswered",
        nothing,
        TESTS + "test_a_leader_that_nobody_answers_steps_down",
    ),
    Plant(
        "lost-news-unnoticed-at-rest",
        "raft.rest.beats:Marked.add",
        _unmarked,
        TESTS + "test_a_group_that_only_its_leader_takes_for_resting_is_roused_within_a_second",
    ),
)
