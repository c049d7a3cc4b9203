"""A run is lost once its node has begun another one, or was not heard of for long enough."""

from __future__ import annotations

from goqueue.wire.types import NodeId
from node.peers.runs import FORMER_MAX, RUN, Runs

A, B = NodeId("a"), NodeId("b")
OWN, LOOKS = 99, 3


def made() -> Runs:
    return Runs(OWN, LOOKS)


def test_a_run_that_is_silent_is_lost_after_so_many_looks() -> None:
    runs = made()
    runs.told(A, {RUN: 1})
    assert [runs.look({1}) for _ in range(4)] == [set(), set(), set(), {1}]

    runs.told(A, {RUN: 1})
    assert runs.look({1}) == set()


def test_a_run_that_nobody_has_heard_of_is_given_its_time() -> None:
    runs = made()

    assert [runs.look({7, OWN}) for _ in range(3)] == [set(), set(), {7}]


def test_a_run_that_was_not_asked_for_meanwhile_is_given_all_its_time_anew() -> None:
    runs = made()
    runs.look({7})
    runs.look({7})
    runs.look(set())

    assert [runs.look({7}) for _ in range(3)] == [set(), set(), {7}]


def test_a_run_is_lost_at_once_where_its_node_has_begun_another() -> None:
    runs = made()
    runs.told(A, {RUN: 1})
    runs.told(B, {RUN: 3})
    runs.told(A, {RUN: 2})

    assert runs.look({1, 2, 3}) == {1}


def test_a_late_word_of_a_run_that_is_over_is_put_right_by_the_next() -> None:
    runs = made()
    for run in (1, 2, 1):
        runs.told(A, {RUN: run})
    runs.told(A, {RUN: 2})

    assert runs.look({1, 2}) == {1}


def test_the_own_run_is_never_lost() -> None:
    runs = made()

    assert [runs.look({OWN}) for _ in range(5)] == [set()] * 5


def test_a_version_without_streams_has_no_run() -> None:
    runs = made()
    runs.told(A, {RUN: 1})
    runs.told(A, {})

    assert runs.look({1}) == set()


def test_runs_that_are_over_are_remembered_within_a_bound() -> None:
    runs = made()
    for run in range(FORMER_MAX + 10):
        runs.told(A, {RUN: run})

    assert len(runs._former) == FORMER_MAX
    assert runs.look({FORMER_MAX + 8}) == {FORMER_MAX + 8}
