"""Bugs in how Raft groups rest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from goqueue.wire.types import NodeId
from raft.rest.beats import NEVER, Link, Marked, NodeBeats, Resting
from raft.rest.replica import Rest
from tests.plants.plant import Plant, always, nothing

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


def _any_word(_original: Call) -> Call:
    """Whatever a node says stands for its beats, for as long as it says anything."""

    def word(self: Link, at: float) -> float:
        return max(at, self.there_at)

    return word


def _any_end(_original: Call) -> Call:
    """Where a log ends says enough of what is in it."""

    def accept(self: Rest, node: NodeId, term: int, last_index: int) -> bool:
        state = self._state
        peer = self._membership.speaker(node)
        if peer is None or term != state.term or self._log.last_index != last_index:
            return False
        self._roles.follow(peer, term)
        state.commit_to(last_index)
        self._timer.set(NEVER)
        state.resting = True
        return True

    return accept


RAFT_PLANTS = (
    Plant(
        "any-log-follows-at-rest",
        "raft.rest.replica:Rest.accept",
        _any_end,
        TESTS + "test_a_log_of_the_same_length_with_another_end_is_not_taken_for_the_leaders",
    ),
    Plant(
        "offers-forgotten-at-rest",
        "raft.rest.beats:NodeBeats.started",
        nothing,
        TESTS + "test_a_node_that_begins_keeps_what_it_is_offered_until_its_replica_is_started",
    ),
    Plant(
        "taken-offers-uncounted-at-rest",
        "raft.replication:Replication.rests_too",
        nothing,
        TESTS + "test_a_replica_that_is_back_is_led_without_a_frame_of_its_group",
    ),
    Plant(
        "rest-without-majority",
        "raft.rest.replica:Rest.goes_on_without",
        always(True),
        TESTS + "test_a_leader_that_loses_its_majority_in_its_rest_steps_down",
    ),
    Plant(
        "other-frames-believed-for-good",
        "raft.rest.beats:Link._word",
        _any_word,
        TESTS + "test_other_frames_of_a_node_stand_for_its_beats_for_a_while_only",
    ),
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
