"""Redrive jobs: counted exactly, stopped without loss, forgotten in the end."""

from __future__ import annotations

import pytest

from coordinator.cluster.state import ClusterState
from coordinator.commands.codec import CreateTopic, DeleteTopic
from coordinator.commands.queue import (
    DeadLetterFilter,
    DeleteGroup,
    PutGroup,
    RedriveResult,
    RedriveStep,
    StartRedrive,
    StopRedrive,
)
from coordinator.errors import BadConfig, Overtaken, UnknownRedrive
from coordinator.jobs import redrives
from coordinator.jobs.redrives import Redrive
from goqueue.wire.errors import Busy, UnknownGroup, UnknownTopic
from tests.unit.coordinator.cluster_group import Cluster


def prepared() -> Cluster:
    cluster = Cluster()
    cluster.do(CreateTopic("orders"))
    cluster.do(PutGroup("pay"))
    return cluster


def start(cluster: Cluster, **more: object) -> StartRedrive:
    group = cluster.state.groups["pay"]
    return StartRedrive("pay", group.id, "orders", **more)  # type: ignore[arg-type]


def started(cluster: Cluster, **more: object) -> int:
    result = cluster.do(start(cluster, **more))
    assert isinstance(result, RedriveResult), result
    return result.job


def job(cluster: Cluster, number: int) -> Redrive:
    return cluster.state.redrives[number]


def test_a_job_begins_at_the_beginning_and_knows_what_it_was_asked() -> None:
    cluster = prepared()
    which = DeadLetterFilter(reason="timeout", key=b"k", headers={"a": "1"}, ids=["orders:0:1"])

    number = started(cluster, which=which, rate=2.5, force=True, matched=9)

    found = job(cluster, number)
    assert (found.id, found.which, found.rate) == (cluster.index, which, 2.5)
    assert (found.state, found.cursor, found.moved, found.matched) == ("running", None, 0, 9)
    assert found.created_ms == cluster.now_ms


def test_steps_add_up_and_the_last_one_ends_the_job() -> None:
    cluster = prepared()
    number = started(cluster)

    cluster.do(RedriveStep(number, None, (0, 7), moved=3, refused=1))
    cluster.do(RedriveStep(number, (0, 7), (2, 1), moved=2))
    result = cluster.do(RedriveStep(number, (2, 1), None, moved=1))

    assert result == RedriveResult(number, "done")
    assert (job(cluster, number).moved, job(cluster, number).refused) == (6, 1)


def test_a_step_that_is_told_twice_counts_once() -> None:
    cluster = prepared()
    number = started(cluster)
    step = RedriveStep(number, None, (0, 7), moved=3)
    cluster.do(step)

    cluster.refuses(step, Overtaken)
    cluster.do(RedriveStep(number, (0, 7), None))
    cluster.refuses(RedriveStep(number, (0, 7), None), Overtaken)


def test_a_stopped_job_still_counts_the_step_that_was_being_made() -> None:
    cluster = prepared()
    number = started(cluster)

    assert cluster.do(StopRedrive(number)) == RedriveResult(number, "stopped")
    cluster.do(RedriveStep(number, None, None, moved=4))

    assert (job(cluster, number).state, job(cluster, number).moved) == ("stopped", 4)


def test_a_job_that_is_over_stays_as_it_ended() -> None:
    cluster = prepared()
    number = started(cluster)
    cluster.do(RedriveStep(number, None, None))

    assert cluster.do(StopRedrive(number)) == RedriveResult(number, "done")


def test_an_error_stops_the_job_and_is_shown() -> None:
    cluster = prepared()
    number = started(cluster)

    cluster.do(RedriveStep(number, None, None, error="no such thing"))

    assert (job(cluster, number).state, job(cluster, number).error) == ("stopped", "no such thing")


def test_a_command_sent_again_makes_no_second_job() -> None:
    cluster = prepared()
    number = started(cluster, request=77)

    assert started(cluster, request=77) == number
    assert len(cluster.state.redrives) == 1


def test_jobs_of_a_deleted_group_or_topic_stop() -> None:
    cluster = prepared()
    first = started(cluster)
    cluster.do(DeleteGroup("pay"))
    cluster.do(PutGroup("pay"))
    second = started(cluster)
    cluster.do(DeleteTopic("orders"))

    assert (job(cluster, first).state, job(cluster, second).state) == ("stopped", "stopped")
    assert "group" in job(cluster, first).error
    assert "topic" in job(cluster, second).error


def test_a_job_needs_its_topic_and_its_very_group() -> None:
    cluster = prepared()
    command = start(cluster)
    cluster.do(DeleteGroup("pay"))

    cluster.refuses(command, UnknownGroup)
    cluster.do(PutGroup("pay"))
    cluster.refuses(command, UnknownGroup)
    cluster.do(DeleteTopic("orders"))
    cluster.refuses(start(cluster), UnknownTopic)


@pytest.mark.parametrize("rate", [-1.0, 0.009, 1e7, float("nan"), float("inf")])
def test_a_rate_that_is_none_is_refused(rate: float) -> None:
    cluster = prepared()

    cluster.refuses(start(cluster, rate=rate), BadConfig)


def test_a_filter_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redrives, "IDS_MAX", 1)
    monkeypatch.setattr(redrives, "FILTER_CHARACTERS_MAX", 10)
    cluster = prepared()

    error = cluster.refuses(start(cluster, which=DeadLetterFilter(ids=["x" * 9, "y"])), BadConfig)
    assert len(error.data["problems"]) == 1  # type: ignore[arg-type]
    cluster.refuses(start(cluster, which=DeadLetterFilter(reason="x" * 11)), BadConfig)


def test_running_jobs_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redrives, "RUNNING_MAX", 1)
    cluster = prepared()
    number = started(cluster)

    cluster.refuses(start(cluster), Busy)
    cluster.do(StopRedrive(number))
    started(cluster)


def test_only_the_last_ones_that_ended_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redrives, "FINISHED_MAX", 2)
    cluster = prepared()
    running = started(cluster)
    ended = [started(cluster) for _ in range(3)]
    for number in ended:
        cluster.do(StopRedrive(number))

    assert list(cluster.state.redrives) == [running, *ended[1:]]
    cluster.refuses(StopRedrive(ended[0]), UnknownRedrive)


def test_jobs_outlive_a_snapshot() -> None:
    cluster = prepared()
    number = started(cluster, which=DeadLetterFilter(partition=1, from_ms=5))
    cluster.do(RedriveStep(number, None, (0, 7), moved=3))

    restored = ClusterState.restore(cluster.state.snapshot())

    assert restored.redrives == cluster.state.redrives
