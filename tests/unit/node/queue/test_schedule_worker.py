"""Each run of a schedule is one message: on time, never early, across leaders that die."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator.cluster.state import ClusterState
from coordinator.commands.codec import Command, CreateTopic, DeleteTopic, Result
from coordinator.commands.queue import (
    BeginRun,
    DeleteSchedule,
    EndRun,
    PauseSchedule,
    PlanRun,
    PutSchedule,
)
from coordinator.jobs.schedule_runs import LATE_MS
from coordinator.jobs.schedules import Schedule
from delivery.leader.appender import Admitted, Appender
from goqueue.wire.batch import Record, RecordBatch
from goqueue.wire.errors import (
    BadRequest,
    GoQueueError,
    NotLeader,
    OutcomeUnknown,
    PayloadTooLarge,
    UnknownPartition,
    UnknownTopic,
)
from goqueue.wire.types import Offset
from node.api.records import AppendResult
from node.queue.schedule_worker import ScheduleRunner
from tests.unit.coordinator.cluster_group import Cluster
from tests.unit.delivery.batches import Leader

MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000


class Partition:
    """A partition that judges batches as real ones do."""

    def __init__(self) -> None:
        self.leader = Leader()
        self.stored: list[tuple[int, Record]] = []
        """(log time, record)"""

    def append(self, batch: bytes, now_ms: int) -> AppendResult:
        parsed = RecordBatch.parse(batch)
        verdict = Appender(self.leader.state).admit(parsed)
        is_new = isinstance(verdict, Admitted)
        if is_new:
            self.leader.time_ms = now_ms
            self.leader.store(parsed)
            self.stored.append((now_ms, parsed.records()[0]))
        return AppendResult(Offset(0), 1, not is_new, now_ms, "majority")

    def forget_producers(self) -> None:
        self.leader.state.producers.load([])


class World:
    """A cluster group on a clock that only the test moves, and partitions that know duplicates.

    `lose_command` says of each command whether its leader dies: before it is taken, or after.
    """

    def __init__(self) -> None:
        self.cluster = Cluster()
        self.leads = True
        self.partitions: dict[tuple[str, int], Partition] = {}
        self.append_errors: list[GoQueueError | None] = []
        self.answers_lost = 0
        self.lose_command: Callable[[Command], str] = lambda _command: ""
        self.cluster.do(CreateTopic("jobs", {"partitions": 2}))

    # what the runner sees of the cluster

    @property
    def state(self) -> ClusterState:
        return self.cluster.state

    def led_time_ms(self) -> int | None:
        return self.cluster.now_ms if self.leads else None

    async def command(self, command: Command, deadline_s: float) -> Result:
        lost = self.lose_command(command) if self.leads else "before"
        if lost == "before":
            self.leads = False
            raise NotLeader()
        result = self.cluster.do(command)
        if lost == "after":
            self.leads = False
            raise OutcomeUnknown()
        if isinstance(result, GoQueueError):
            raise result
        return result  # type: ignore[return-value]

    async def append(
        self, topic: str, partition: int, batch: bytes, *, deadline_s: float
    ) -> AppendResult:
        if topic not in self.state.topics:
            raise UnknownTopic(topic)
        if partition >= len(self.cluster.topic(topic).partitions):
            raise UnknownPartition(topic, partition)
        if self.append_errors:
            error = self.append_errors.pop(0)
            if error is not None:
                raise error
        log = self.partitions.setdefault((topic, partition), Partition())
        result = log.append(batch, self.cluster.now_ms)
        if self.answers_lost:
            self.answers_lost -= 1
            raise OutcomeUnknown()
        return result

    # what the test sees

    def put(self, **more: object) -> Schedule:
        command = {"name": "tick", "topic": "jobs", "value": b"go", "every_ms": MINUTE_MS, **more}
        self.cluster.do(PutSchedule(**command))  # type: ignore[arg-type]
        return self.schedule

    @property
    def schedule(self) -> Schedule:
        return self.state.schedules["tick"]

    def stored(self) -> list[tuple[int, Record]]:
        return [stored for log in self.partitions.values() for stored in log.stored]

    def published(self) -> list[int]:
        """The moments that published runs were meant for, in the order of their partitions."""
        return [record.timestamp_ms for _at_ms, record in self.stored()]

    def until(self, time_ms: int) -> None:
        """Time goes by up to this moment."""
        self.cluster.pass_ms(max(0, time_ms - self.cluster.now_ms))

    async def look(self) -> None:
        """Whoever leads now takes over with nothing but the cluster's state."""
        self.leads = True
        runner = ScheduleRunner(self, self)
        runner.look()
        await runner.settled()
        runner.look()
        await runner.settled()


def runs_of(schedule: Schedule, first: int, count: int) -> list[int]:
    return [schedule.created_ms + MINUTE_MS * (first + at) for at in range(count)]


async def test_a_run_is_published_at_its_time_and_not_before() -> None:
    world = World()
    schedule = world.put()
    (due_ms,) = runs_of(schedule, 1, 1)
    await world.look()
    assert world.schedule.next_ms == due_ms

    world.until(due_ms - 1)
    await world.look()
    assert world.published() == []
    world.until(due_ms)
    await world.look()

    assert world.published() == [due_ms]
    assert (world.schedule.runs, world.schedule.last_ms) == (1, due_ms)
    assert world.schedule.next_ms == due_ms + MINUTE_MS


async def test_a_runner_says_when_it_must_look_again() -> None:
    world = World()
    schedule = world.put()
    await world.look()
    runner = ScheduleRunner(world, world)

    world.until(schedule.created_ms + MINUTE_MS - 100)

    assert runner.look() == pytest.approx(0.1)


async def test_a_message_says_which_run_it_is() -> None:
    world = World()
    schedule = world.put(key=b"k", headers=[("a", b"1")], lane=0)
    world.until(schedule.created_ms + MINUTE_MS)
    await world.look()

    ((_at_ms, record),) = world.partitions["jobs", schedule.partition].stored

    due_ms = schedule.created_ms + MINUTE_MS
    assert (record.value, record.key, record.lane) == (b"go", b"k", 0)
    assert record.headers == (("a", b"1"), ("goqueue-schedule", b"tick"))
    assert record.message_id == f"schedule:tick:{schedule.id}:{due_ms}"
    assert record.timestamp_ms == due_ms


async def test_a_node_that_does_not_lead_publishes_nothing() -> None:
    world = World()
    schedule = world.put()
    world.until(schedule.created_ms + MINUTE_MS)
    world.leads = False
    runner = ScheduleRunner(world, world)

    runner.look()
    await runner.settled()

    assert world.published() == []


# leaders that die


@pytest.mark.parametrize("command", [PlanRun, BeginRun, EndRun])
@pytest.mark.parametrize("lost", ["before", "after"])
async def test_a_leader_killed_around_any_command_leaves_one_message(
    command: type[Command], lost: str
) -> None:
    world = World()
    schedule = world.put()
    world.lose_command = lambda sent: lost if isinstance(sent, command) else ""
    await world.look()
    world.until(schedule.created_ms + MINUTE_MS)
    await world.look()
    world.lose_command = lambda _sent: ""

    await world.look()

    assert world.published() == runs_of(schedule, 1, 1)
    assert world.schedule.runs == 1


async def test_a_run_published_before_its_leader_was_killed_is_not_published_again_after_days() -> (
    None
):
    world = World()
    schedule = world.put(missed="skip")
    world.until(schedule.created_ms + MINUTE_MS)
    world.lose_command = lambda sent: "before" if isinstance(sent, EndRun) else ""
    await world.look()
    assert world.published() == runs_of(schedule, 1, 1)
    assert world.schedule.runs == 0
    world.lose_command = lambda _sent: ""

    world.cluster.pass_ms(5 * DAY_MS)
    await world.look()

    assert world.published() == runs_of(schedule, 1, 1)
    assert world.schedule.runs == 1
    assert world.schedule.next_ms > world.cluster.now_ms


async def test_an_answer_that_is_lost_does_not_double_the_message() -> None:
    world = World()
    schedule = world.put()
    world.until(schedule.created_ms + MINUTE_MS)
    world.answers_lost = 2

    for _ in range(3):
        await world.look()

    assert world.published() == runs_of(schedule, 1, 1)
    assert world.schedule.runs == 1


@settings(max_examples=60, deadline=None)
@given(st.data())
async def test_whatever_dies_and_when_each_run_is_one_message_and_none_is_early(
    data: st.DataObject,
) -> None:
    world = World()
    schedule = world.put(every_ms=5000)
    fates = st.sampled_from(["", "", "before", "after"])
    world.lose_command = lambda _sent: data.draw(fates)

    for _ in range(12):
        world.answers_lost = data.draw(st.sampled_from([0, 0, 1]))
        await world.look()
        world.cluster.pass_ms(data.draw(st.integers(0, 7000)))
    world.lose_command, world.answers_lost = (lambda _sent: ""), 0
    for _ in range(3):
        await world.look()

    due = range(schedule.created_ms + 5000, world.cluster.now_ms - 5, 5000)
    found = world.published()
    assert found[: len(due)] == list(due)
    assert all(record.timestamp_ms <= at_ms for at_ms, record in world.stored())
    assert world.schedule.runs == len(found)


# missed runs


@pytest.mark.parametrize("missed", ["skip", "once", "all"])
async def test_runs_that_are_a_little_late_are_all_made(missed: str) -> None:
    world = World()
    schedule = world.put(every_ms=10_000, missed=missed)
    await world.look()

    world.until(schedule.created_ms + 10_000 + LATE_MS)
    await world.look()

    assert world.published() == [schedule.created_ms + 10_000 * at for at in range(1, 8)]


@pytest.mark.parametrize(
    ("missed", "made"), [("skip", []), ("once", [60]), ("all", list(range(1, 61)))]
)
async def test_after_an_outage_the_policy_says_what_is_made(missed: str, made: list[int]) -> None:
    world = World()
    schedule = world.put(missed=missed)
    await world.look()

    world.until(schedule.created_ms + HOUR_MS + 100)
    await world.look()

    assert world.published() == [schedule.created_ms + MINUTE_MS * at for at in made]
    assert world.schedule.next_ms == schedule.created_ms + 61 * MINUTE_MS


async def test_runs_missed_before_the_first_was_planned_count_too() -> None:
    world = World()
    schedule = world.put(missed="once")

    world.until(schedule.created_ms + HOUR_MS + 100)
    await world.look()

    assert world.published() == runs_of(schedule, 60, 1)


async def test_more_missed_runs_than_the_bound_are_made_once() -> None:
    world = World()
    schedule = world.put(every_ms=1000, missed="all")
    await world.look()

    world.until(schedule.created_ms + 1000 * 1001 + 1)
    await world.look()

    assert world.published()[0] == schedule.created_ms + 1_001_000
    assert world.schedule.runs == 1


async def test_as_many_missed_runs_as_the_bound_are_all_made() -> None:
    world = World()
    schedule = world.put(every_ms=10_000, missed="all")
    await world.look()

    world.until(schedule.created_ms + 10_000 * 1000 + 1)
    await world.look()

    assert world.published() == [schedule.created_ms + 10_000 * at for at in range(1, 1001)]


async def test_what_was_missed_while_paused_is_skipped() -> None:
    world = World()
    schedule = world.put(missed="all")
    await world.look()
    world.cluster.do(PauseSchedule("tick", schedule.id))
    world.cluster.pass_ms(HOUR_MS)
    await world.look()
    assert world.published() == []

    world.cluster.do(PauseSchedule("tick", schedule.id, paused=False))
    await world.look()

    assert world.published() == []
    assert world.cluster.now_ms < world.schedule.next_ms <= world.cluster.now_ms + MINUTE_MS
    world.until(world.schedule.next_ms)
    await world.look()
    assert world.published() == [schedule.created_ms + 61 * MINUTE_MS]


# topics and partitions that are not there


async def test_a_topic_that_is_gone_is_waited_for() -> None:
    world = World()
    schedule = world.put()
    await world.look()
    world.cluster.do(DeleteTopic("jobs"))
    world.until(schedule.created_ms + MINUTE_MS)
    await world.look()
    assert world.schedule.begun_ms == 0

    world.cluster.do(CreateTopic("jobs", {"partitions": 1}))
    world.partitions.clear()
    await world.look()

    assert world.published() == runs_of(schedule, 1, 1)
    assert world.schedule.partition == 0


async def test_a_run_begun_for_a_topic_that_is_made_again_reaches_the_new_one() -> None:
    world = World()
    schedule = world.put(key=b"b")
    assert schedule.partition == 1
    for due_ms in runs_of(schedule, 1, 3):
        world.until(due_ms)
        await world.look()
    world.append_errors = [NotLeader()]
    world.until(schedule.created_ms + 4 * MINUTE_MS)
    await world.look()
    world.cluster.do(DeleteTopic("jobs"))
    world.cluster.do(CreateTopic("jobs", {"partitions": 1}))
    world.partitions.clear()
    assert world.schedule.begun_ms != 0

    await world.look()

    assert world.published() == runs_of(schedule, 4, 1)
    assert world.schedule.runs == 4


async def test_a_partition_that_forgot_the_schedule_is_given_a_new_identity() -> None:
    world = World()
    schedule = world.put()
    for due_ms in runs_of(schedule, 1, 2):
        world.until(due_ms)
        await world.look()
    for log in world.partitions.values():
        log.forget_producers()

    world.until(schedule.created_ms + 3 * MINUTE_MS)
    await world.look()

    assert world.published() == runs_of(schedule, 1, 3)
    assert world.schedule.producer_id > schedule.producer_id


async def test_a_run_a_month_is_published_though_partitions_forget_producers_in_a_week() -> None:
    world = World()
    schedule = world.put(every_ms=30 * DAY_MS)
    for at in (1, 2):
        for log in world.partitions.values():
            log.forget_producers()
        world.until(schedule.created_ms + 30 * DAY_MS * at)
        await world.look()

    assert world.schedule.runs == 2
    assert len(world.published()) == 2


async def test_a_partition_without_leader_delays_the_run_and_loses_none() -> None:
    world = World()
    schedule = world.put()
    world.until(schedule.created_ms + MINUTE_MS)
    world.append_errors = [NotLeader(), NotLeader()]
    await world.look()
    assert world.published() == []

    for _ in range(2):
        await world.look()

    assert world.published() == runs_of(schedule, 1, 1)


@pytest.mark.parametrize("error", [PayloadTooLarge(), BadRequest("not so")])
async def test_a_message_that_is_refused_for_good_is_given_up_and_shown(
    error: GoQueueError,
) -> None:
    world = World()
    schedule = world.put()
    world.until(schedule.created_ms + MINUTE_MS)
    world.append_errors = [error]
    await world.look()

    assert world.schedule.error == error.message
    assert world.schedule.next_ms == schedule.created_ms + 2 * MINUTE_MS
    world.until(world.schedule.next_ms)
    await world.look()
    assert world.published() == runs_of(schedule, 2, 1)
    assert world.schedule.error == ""


async def test_a_run_in_doubt_for_longer_than_partitions_remember_is_not_repeated() -> None:
    world = World()
    schedule = world.put(missed="skip")
    world.until(schedule.created_ms + MINUTE_MS)
    world.lose_command = lambda sent: "before" if isinstance(sent, EndRun) else ""
    await world.look()
    world.lose_command = lambda _sent: ""

    world.cluster.pass_ms(7 * DAY_MS)
    await world.look()

    assert world.published() == runs_of(schedule, 1, 1)
    assert "not known" in world.schedule.error


async def test_a_deleted_schedule_publishes_nothing_more() -> None:
    world = World()
    schedule = world.put()
    await world.look()
    world.cluster.do(DeleteSchedule("tick"))

    world.until(schedule.created_ms + HOUR_MS)
    await world.look()

    assert world.published() == []


async def test_one_schedule_in_trouble_does_not_delay_the_others() -> None:
    world = World()
    schedule = world.put()
    world.cluster.do(PutSchedule("broken", "jobs", b"", cron="0 0 0 30 2 *"))

    world.until(schedule.created_ms + MINUTE_MS)
    await world.look()

    assert world.published() == runs_of(schedule, 1, 1)


async def test_a_runner_is_stopped_whatever_it_does() -> None:
    world = World()
    world.put()
    runner = ScheduleRunner(world, world)
    await runner.start()

    await runner.stop()
    await runner.stop()
