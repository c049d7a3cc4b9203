"""Recurring schedules: what is published when, and how far each has come.

A run is begun by a command before its message is published and ended by another one after, so
that whoever leads next knows which message may be stored already, and publishes it again with the
same identity: its partition then answers with the stored one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from dataclasses import dataclass

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
from coordinator.jobs.schedule_times import CRON_CHARACTERS_MAX, Times
from goqueue.wire.errors import BadName
from goqueue.wire.ids import is_name
from goqueue.wire.partitioner import partition_for
from goqueue.wire.types import Index, TopicId

SCHEDULES_MAX = 10_000
BYTES_MAX = 64 << 10
"""Of one schedule's message: every node keeps all of them in memory and in its snapshots."""
BYTES_TOTAL_MAX = 16 << 20
NAME_CHARACTERS_MAX = 200
"""Its messages' ids hold the name, and are bounded."""
EVERY_MS_MIN = 1000
EVERY_MS_MAX = 366 * 24 * 3600 * 1000
LANES = 5
MISSED = ("skip", "once", "all")
HEADERS_MAX = 64
TIMEZONE_CHARACTERS_MAX = 64
ERROR_CHARACTERS_MAX = 256
IDENTITY_MS = 24 * 3600 * 1000
"""A partition remembers producers for 7 days: well before, a schedule takes a new identity."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """A schedule; times are log time of the cluster group, 0 for none."""

    name: str
    id: int
    """Index of its creating command."""
    topic: str
    topic_id: TopicId
    """The very topic that the producer's sequence counts in."""
    partition: int
    cron: str
    every_ms: int
    timezone: str
    missed: str
    value: bytes
    key: bytes | None
    headers: tuple[tuple[str, bytes], ...]
    lane: int
    created_ms: int
    planned_ms: int
    """Runs after this moment count: its creation, the last run, or when it went on again."""
    producer_id: int
    sequence: int = 0
    """Of the run that is begun, or of the next one."""
    next_ms: int = 0
    """0 until the leader has planned it."""
    begun_ms: int = 0
    """The run whose message may or may not be stored yet."""
    begun_at_ms: int = 0
    """When a run was begun last."""
    last_ms: int = 0
    runs: int = 0
    paused: bool = False
    error: str = ""

    @property
    def times(self) -> Times:
        """When it runs."""
        return Times(self.cron, self.timezone, self.every_ms, self.created_ms)

    @property
    def size_bytes(self) -> int:
        return message_bytes(self.value, self.key, self.headers)


class Schedules:
    """All schedules by name."""

    def __init__(self, schedules: Iterable[Schedule] = ()) -> None:
        self.by_name = {schedule.name: schedule for schedule in schedules}
        self._bytes = sum(schedule.size_bytes for schedule in self.by_name.values())

    def named(self, name: str, id: int = 0) -> Schedule:
        """Raises UnknownSchedule, also where the name is another schedule's by now."""
        schedule = self.by_name.get(name)
        if schedule is None or id not in (0, schedule.id):
            raise UnknownSchedule(name[:NAME_CHARACTERS_MAX])
        return schedule

    def put(
        self,
        index: Index,
        time_ms: int,
        command: PutSchedule,
        topic_id: TopicId,
        partitions: int,
        new_producer: Callable[[], int],
    ) -> ScheduleResult:
        """Raises BadName, BadConfig, ClusterFull; then nothing has changed."""
        check_schedule(command)
        schedule = Schedule(
            command.name,
            index,
            command.topic,
            topic_id,
            _partition(command.name, command.key, partitions),
            command.cron,
            command.every_ms,
            command.timezone,
            command.missed,
            command.value,
            command.key,
            tuple(command.headers),
            command.lane,
            created_ms=time_ms,
            planned_ms=time_ms,
            producer_id=0,
        )
        before = self.by_name.get(command.name)
        total = self._bytes + schedule.size_bytes - (before.size_bytes if before else 0)
        if before is None and len(self.by_name) >= SCHEDULES_MAX:
            raise ClusterFull(f"there are {SCHEDULES_MAX} schedules already")
        if total > BYTES_TOTAL_MAX:
            raise ClusterFull(f"the messages of all schedules have {BYTES_TOTAL_MAX} bytes already")
        return self._keep(dataclasses.replace(schedule, producer_id=new_producer()))

    def pause(self, time_ms: int, command: PauseSchedule) -> ScheduleResult:
        """What falls due while it is paused is skipped; a run that is begun is still published."""
        schedule = self.named(command.name, command.id)
        if schedule.paused == command.paused:
            return ScheduleResult(schedule.name, schedule.id)
        planned_ms = max(time_ms, schedule.planned_ms)
        return self._keep(
            dataclasses.replace(schedule, paused=command.paused, planned_ms=planned_ms, next_ms=0)
        )

    def delete(self, command: DeleteSchedule) -> ScheduleResult:
        """Raises UnknownSchedule."""
        schedule = self.named(command.name, command.id)
        del self.by_name[schedule.name]
        self._bytes -= schedule.size_bytes
        return ScheduleResult(schedule.name, schedule.id)

    # runs

    def plan(self, command: PlanRun) -> ScheduleResult:
        """Raises Overtaken where a run is begun, or a later one was planned from."""
        schedule = self.named(command.name, command.id)
        if schedule.begun_ms or command.next_ms <= schedule.planned_ms:
            raise Overtaken()
        return self._keep(dataclasses.replace(schedule, next_ms=command.next_ms))

    def begin(
        self,
        time_ms: int,
        command: BeginRun,
        topic_id: TopicId,
        partitions: int,
        new_producer: Callable[[], int],
    ) -> ScheduleResult:
        """Also of a run that is begun: its identity is renewed where its topic is another one, or
        where that is asked for. Raises Overtaken."""
        schedule = self.named(command.name, command.id)
        again = schedule.begun_ms == command.run_ms
        if schedule.begun_ms and not again:
            raise Overtaken()
        is_next = schedule.planned_ms < command.run_ms <= time_ms
        if not again and (schedule.paused or not is_next):
            raise Overtaken()
        is_old = not again and 0 < schedule.begun_at_ms < time_ms - IDENTITY_MS
        renew = command.renew or is_old or topic_id != schedule.topic_id
        if renew:
            schedule = dataclasses.replace(
                schedule,
                producer_id=new_producer(),
                sequence=0,
                topic_id=topic_id,
                partition=_partition(schedule.name, schedule.key, partitions),
            )
        at_ms = schedule.begun_at_ms if again and not renew else time_ms
        return self._keep(dataclasses.replace(schedule, begun_ms=command.run_ms, begun_at_ms=at_ms))

    def end(self, command: EndRun, new_producer: Callable[[], int]) -> ScheduleResult:
        """Raises Overtaken where the run is not the one that is begun."""
        schedule = self.named(command.name, command.id)
        if schedule.begun_ms == 0 or schedule.begun_ms != command.run_ms:
            raise Overtaken()
        if command.error:  # stored or not: nobody knows where its sequence stands
            ended = dataclasses.replace(schedule, producer_id=new_producer(), sequence=0)
        else:
            ended = dataclasses.replace(
                schedule, sequence=schedule.sequence + 1, runs=schedule.runs + 1
            )
        planned_ms = max(schedule.planned_ms, command.run_ms)
        is_planned = not schedule.paused and command.next_ms > planned_ms
        return self._keep(
            dataclasses.replace(
                ended,
                begun_ms=0,
                last_ms=command.run_ms,
                planned_ms=planned_ms,
                next_ms=command.next_ms if is_planned else 0,
                error=command.error[:ERROR_CHARACTERS_MAX],
            )
        )

    def _keep(self, schedule: Schedule) -> ScheduleResult:
        before = self.by_name.get(schedule.name)
        self._bytes += schedule.size_bytes - (before.size_bytes if before else 0)
        self.by_name[schedule.name] = schedule
        return ScheduleResult(schedule.name, schedule.id)


def check_schedule(command: PutSchedule) -> None:
    """Raises BadName, or BadConfig with every problem; cron and time zone are taken as they are."""
    if not is_name(command.name) or len(command.name) > NAME_CHARACTERS_MAX:
        raise BadName(f"bad schedule name {command.name[:64]!r}", name=command.name[:64])
    problems = []
    if bool(command.cron) == bool(command.every_ms):
        problems.append("give cron or every, not both and not neither")
    if command.every_ms and not EVERY_MS_MIN <= command.every_ms <= EVERY_MS_MAX:
        problems.append(f"every: {command.every_ms} ms is out of range, which is 1 s to 366 days")
    if len(command.cron) > CRON_CHARACTERS_MAX:
        problems.append(f"cron: more than {CRON_CHARACTERS_MAX} characters")
    if not 0 < len(command.timezone) <= TIMEZONE_CHARACTERS_MAX:
        problems.append(f"timezone: not a name of 1 to {TIMEZONE_CHARACTERS_MAX} characters")
    if command.missed not in MISSED:
        problems.append(f"missed: {command.missed[:40]!r} is none of {', '.join(MISSED)}")
    if not 0 <= command.lane < LANES:
        problems.append(f"priority: {command.lane} is no lane, which are 0 to {LANES - 1}")
    if len(command.headers) > HEADERS_MAX or any(not name for name, _ in command.headers):
        problems.append(f"headers: at most {HEADERS_MAX}, each with a name")
    size = message_bytes(command.value, command.key, command.headers)
    if size > BYTES_MAX:
        problems.append(f"value: a message of {size} bytes, a schedule's has at most {BYTES_MAX}")
    if problems:
        raise BadConfig(problems)


def message_bytes(value: bytes, key: bytes | None, headers: Iterable[tuple[str, bytes]]) -> int:
    """What a schedule's message counts."""
    return len(value) + len(key or b"") + sum(len(name) + len(text) for name, text in headers)


def _partition(name: str, key: bytes | None, partitions: int) -> int:
    """A message with a key goes where all of its key go."""
    return partition_for(key or name.encode(), partitions)
