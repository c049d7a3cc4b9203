"""Schedules in the cluster's state: each run is begun before and ended after it is published."""

from __future__ import annotations

import dataclasses

import pytest

from coordinator.cluster.state import ClusterState
from coordinator.commands.codec import AllocateProducer, CreateTopic, DeleteTopic, ProducerAllocated
from coordinator.commands.queue import (
    BeginRun,
    DeleteSchedule,
    EndRun,
    PauseSchedule,
    PlanRun,
    PutSchedule,
    ScheduleResult,
)
from coordinator.errors import BadConfig, ClusterFull, Overtaken, UnknownSchedule
from coordinator.jobs import schedules
from coordinator.jobs.schedules import Schedule
from goqueue.wire.errors import BadName, UnknownTopic
from goqueue.wire.partitioner import partition_for
from tests.unit.coordinator.cluster_group import Cluster

MINUTE_MS = 60_000
DAY_MS = 86_400_000


def prepared() -> Cluster:
    cluster = Cluster()
    cluster.do(CreateTopic("jobs"))
    return cluster


def hourly(**more: object) -> PutSchedule:
    return PutSchedule(
        **{"name": "tick", "topic": "jobs", "value": b"go", "every_ms": MINUTE_MS, **more}
    )  # type: ignore[arg-type]


def put(cluster: Cluster, **more: object) -> Schedule:
    result = cluster.do(hourly(**more))
    assert isinstance(result, ScheduleResult), result
    return cluster.state.schedules[result.name]


def tick(cluster: Cluster) -> Schedule:
    return cluster.state.schedules["tick"]


def begun(cluster: Cluster) -> int:
    """A run of the schedule is begun; when it is due."""
    schedule = tick(cluster)
    run_ms = schedule.planned_ms + MINUTE_MS
    cluster.pass_ms(max(0, run_ms - cluster.now_ms))
    assert isinstance(cluster.do(BeginRun("tick", schedule.id, run_ms)), ScheduleResult)
    return run_ms


def ended(cluster: Cluster, run_ms: int, **more: object) -> None:
    command = EndRun("tick", tick(cluster).id, run_ms, run_ms + MINUTE_MS, **more)  # type: ignore[arg-type]
    assert isinstance(cluster.do(command), ScheduleResult)


# making and changing


def test_a_schedule_has_an_identity_and_a_partition_from_the_beginning() -> None:
    cluster = prepared()

    schedule = put(cluster, headers=[("a", b"1")], lane=1)

    assert (schedule.id, schedule.created_ms) == (cluster.index, cluster.now_ms)
    assert schedule.topic_id == cluster.topic("jobs").id
    assert schedule.partition == partition_for(b"tick", 6)
    assert (schedule.producer_id, schedule.sequence) == (1, 0)
    assert (schedule.next_ms, schedule.planned_ms) == (0, cluster.now_ms)
    assert schedule.headers == (("a", b"1"),)


def test_a_message_with_a_key_goes_where_its_key_goes() -> None:
    assert put(prepared(), key=b"user-7").partition == partition_for(b"user-7", 6)


def test_a_schedule_put_again_is_another_one_in_its_place() -> None:
    cluster = prepared()
    old = put(cluster)
    begun(cluster)

    new = put(cluster, value=b"other")

    assert (new.id > old.id, new.runs, new.begun_ms) == (True, 0, 0)
    assert new.producer_id != old.producer_id
    cluster.refuses(DeleteSchedule("tick", old.id), UnknownSchedule)


def test_no_identity_is_given_twice() -> None:
    cluster = prepared()
    put(cluster)

    assert cluster.do(AllocateProducer()) == ProducerAllocated(2, 0)


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ({"every_ms": 0}, "give cron or every, not both"),
        ({"cron": "* * * * *"}, "give cron or every, not both"),
        ({"every_ms": 999}, "every"),
        ({"every_ms": -1}, "every"),
        ({"every_ms": 367 * DAY_MS}, "every"),
        ({"cron": "*" * 257, "every_ms": 0}, "cron"),
        ({"timezone": ""}, "timezone"),
        ({"missed": "some"}, "missed"),
        ({"lane": 5}, "priority"),
        ({"lane": -1}, "priority"),
        ({"headers": [("", b"")]}, "headers"),
        ({"headers": [("a", b"")] * 65}, "headers"),
        ({"value": b"x" * 65_537}, "value"),
    ],
)
def test_a_schedule_that_will_not_do_is_refused(more: dict[str, object], named: str) -> None:
    error = prepared().refuses(hourly(**more), BadConfig)

    assert error.message.startswith(named)


def test_a_schedule_needs_a_name_and_a_topic() -> None:
    cluster = prepared()

    cluster.refuses(hourly(name="a b"), BadName)
    cluster.refuses(hourly(topic="nowhere"), UnknownTopic)


def test_schedules_and_their_bytes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedules, "SCHEDULES_MAX", 2)
    monkeypatch.setattr(schedules, "BYTES_TOTAL_MAX", 10)
    cluster = prepared()
    put(cluster, name="a", value=b"12345")

    cluster.refuses(hourly(value=b"123456"), ClusterFull)
    put(cluster, name="a", value=b"1234567890")
    cluster.do(DeleteSchedule("a"))
    put(cluster, name="a", value=b"1")
    put(cluster, name="b", value=b"123456789")
    cluster.refuses(hourly(name="c", value=b""), ClusterFull)


# runs


def test_a_run_that_ended_counts_and_leads_to_the_next() -> None:
    cluster = prepared()
    put(cluster)

    run_ms = begun(cluster)
    assert (tick(cluster).begun_ms, tick(cluster).sequence, tick(cluster).runs) == (run_ms, 0, 0)
    ended(cluster, run_ms)

    found = tick(cluster)
    assert (found.begun_ms, found.last_ms, found.next_ms) == (0, run_ms, run_ms + MINUTE_MS)
    assert (found.runs, found.sequence, found.planned_ms) == (1, 1, run_ms)


def test_a_command_that_is_told_twice_changes_nothing_more() -> None:
    cluster = prepared()
    schedule = put(cluster)
    run_ms = begun(cluster)

    cluster.do(BeginRun("tick", schedule.id, run_ms))
    assert tick(cluster).sequence == 0
    ended(cluster, run_ms)

    cluster.refuses(EndRun("tick", schedule.id, run_ms, run_ms + 1), Overtaken)
    cluster.refuses(BeginRun("tick", schedule.id, run_ms), Overtaken)


def test_no_other_run_begins_before_the_one_that_is_begun_has_ended() -> None:
    cluster = prepared()
    schedule = put(cluster)
    run_ms = begun(cluster)
    cluster.pass_ms(5 * MINUTE_MS)

    cluster.refuses(BeginRun("tick", schedule.id, run_ms + MINUTE_MS), Overtaken)
    cluster.refuses(PlanRun("tick", schedule.id, run_ms + MINUTE_MS), Overtaken)
    cluster.refuses(EndRun("tick", schedule.id, run_ms + MINUTE_MS, 0), Overtaken)


def test_no_run_begins_before_its_time() -> None:
    cluster = prepared()
    schedule = put(cluster)

    cluster.refuses(BeginRun("tick", schedule.id, cluster.now_ms + 2), Overtaken)
    assert isinstance(cluster.do(BeginRun("tick", schedule.id, cluster.now_ms + 1)), ScheduleResult)


def test_a_planned_run_is_shown_as_the_next() -> None:
    cluster = prepared()
    schedule = put(cluster)

    cluster.do(PlanRun("tick", schedule.id, cluster.now_ms + MINUTE_MS))

    assert tick(cluster).next_ms > cluster.now_ms
    cluster.refuses(PlanRun("tick", schedule.id, schedule.planned_ms), Overtaken)


def test_a_run_that_is_given_up_is_told_and_takes_no_sequence_with_it() -> None:
    cluster = prepared()
    before = put(cluster)
    run_ms = begun(cluster)

    ended(cluster, run_ms, error="too large")

    found = tick(cluster)
    assert (found.error, found.runs, found.last_ms) == ("too large", 0, run_ms)
    assert (found.producer_id > before.producer_id, found.sequence) == (True, 0)
    ended(cluster, begun(cluster))
    assert (tick(cluster).error, tick(cluster).runs) == ("", 1)


# identities that partitions still know


def test_a_rare_run_has_a_new_identity_because_the_old_one_may_be_forgotten() -> None:
    cluster = prepared()
    put(cluster)
    ended(cluster, begun(cluster))
    before = tick(cluster)

    cluster.pass_ms(2 * DAY_MS)
    begun(cluster)

    assert tick(cluster).producer_id > before.producer_id
    assert tick(cluster).sequence == 0


def test_a_run_that_is_begun_keeps_its_identity_whatever_the_outage() -> None:
    cluster = prepared()
    put(cluster)
    run_ms = begun(cluster)
    before = tick(cluster)

    cluster.pass_ms(6 * DAY_MS)
    cluster.do(BeginRun("tick", before.id, run_ms))

    assert tick(cluster) == before


def test_a_renewed_identity_begins_anew() -> None:
    cluster = prepared()
    put(cluster)
    ended(cluster, begun(cluster))
    run_ms = begun(cluster)
    before = tick(cluster)

    cluster.do(BeginRun("tick", before.id, run_ms, renew=True))

    assert (tick(cluster).producer_id, tick(cluster).sequence) == (before.producer_id + 1, 0)
    assert (tick(cluster).begun_ms, tick(cluster).begun_at_ms) == (run_ms, cluster.now_ms)


def test_a_topic_that_is_made_again_gets_a_new_identity_and_partition() -> None:
    cluster = prepared()
    put(cluster)
    run_ms = begun(cluster)
    before = tick(cluster)
    cluster.do(DeleteTopic("jobs"))

    cluster.refuses(BeginRun("tick", before.id, run_ms), UnknownTopic)
    cluster.do(CreateTopic("jobs", {"partitions": 1}))
    cluster.do(BeginRun("tick", before.id, run_ms))

    after = tick(cluster)
    assert (after.topic_id, after.partition) == (cluster.topic("jobs").id, 0)
    assert (after.producer_id > before.producer_id, after.begun_ms) == (True, run_ms)


# pauses


def test_nothing_begins_while_paused_and_what_was_missed_then_stays_so() -> None:
    cluster = prepared()
    schedule = put(cluster)
    cluster.do(PauseSchedule("tick", schedule.id))
    cluster.pass_ms(10 * MINUTE_MS)
    cluster.refuses(BeginRun("tick", schedule.id, schedule.planned_ms + MINUTE_MS), Overtaken)

    cluster.do(PauseSchedule("tick", schedule.id, paused=False))

    assert (tick(cluster).paused, tick(cluster).next_ms) == (False, 0)
    assert tick(cluster).planned_ms == cluster.now_ms
    cluster.refuses(BeginRun("tick", schedule.id, schedule.planned_ms + MINUTE_MS), Overtaken)


def test_to_pause_what_is_paused_changes_nothing() -> None:
    cluster = prepared()
    schedule = put(cluster)
    cluster.do(PauseSchedule("tick", schedule.id))
    before = tick(cluster)

    cluster.do(PauseSchedule("tick", schedule.id))

    assert tick(cluster) is before


def test_a_run_that_is_begun_ends_also_while_paused() -> None:
    cluster = prepared()
    schedule = put(cluster)
    run_ms = begun(cluster)
    cluster.do(PauseSchedule("tick", schedule.id))

    ended(cluster, run_ms)

    assert (tick(cluster).runs, tick(cluster).next_ms) == (1, 0)
    assert tick(cluster).planned_ms > run_ms


def test_a_pause_during_a_run_skips_what_it_missed_too() -> None:
    cluster = prepared()
    schedule = put(cluster)
    run_ms = begun(cluster)
    cluster.do(PauseSchedule("tick", schedule.id))
    cluster.pass_ms(10 * MINUTE_MS)
    cluster.do(PauseSchedule("tick", schedule.id, paused=False))
    gone_on_ms = cluster.now_ms

    ended(cluster, run_ms)

    assert (tick(cluster).next_ms, tick(cluster).planned_ms) == (0, gone_on_ms)


def test_schedules_outlive_a_snapshot() -> None:
    cluster = prepared()
    put(cluster, key=b"k", headers=[("a", b"1")])
    begun(cluster)

    restored = ClusterState.restore(cluster.state.snapshot())

    assert restored.schedules == cluster.state.schedules
    assert restored.snapshot() == cluster.state.snapshot()


def test_a_deleted_schedule_frees_its_bytes_also_after_a_snapshot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(schedules, "BYTES_TOTAL_MAX", 3)
    cluster = prepared()
    put(cluster, value=b"123")
    cluster.state = ClusterState.restore(cluster.state.snapshot())

    cluster.refuses(hourly(name="b", value=b"1"), ClusterFull)
    cluster.do(DeleteSchedule("tick"))
    put(cluster, name="b", value=b"123")


def test_a_schedule_says_how_large_its_message_is() -> None:
    schedule = put(prepared(), value=b"123", key=b"45", headers=[("a", b"bc")])

    assert schedule.size_bytes == 8
    assert dataclasses.replace(schedule, key=None).size_bytes == 6
