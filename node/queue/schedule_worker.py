"""Makes the runs of schedules, on whichever node leads the cluster group.

A run is begun in the cluster's state, published, then ended there. Whoever leads next finds a run
that is begun and publishes it again: with the same producer identity and sequence, so that its
partition answers with the message that it has. Nothing is published before its time, which is the
log time of the cluster group.
"""

from __future__ import annotations

import asyncio
import math
from typing import Protocol

from coordinator.cluster.state import ClusterState
from coordinator.commands.codec import Command, Result
from coordinator.commands.queue import BeginRun, EndRun
from coordinator.errors import BadConfig, Overtaken, UnknownSchedule
from coordinator.jobs.schedule_runs import Publish, ScheduleRuns, Step, Wait
from coordinator.jobs.schedules import Schedule
from goqueue.background import TaskSet
from goqueue.wire.batch import encode_columns
from goqueue.wire.errors import (
    GoQueueError,
    OutOfOrder,
    UnknownPartition,
    UnknownTopic,
)
from node.api.records import AppendResult
from node.runtime.logger import get_logger
from node.runtime.periodic import Periodic

POLL_S = 0.25
"""How soon a new leader, or a new schedule, is noticed."""
PAUSE_S = 0.02
"""Between two looks at all schedules."""
COMMAND_DEADLINE_S = 5.0
PUBLISH_DEADLINE_S = 5.0
RETRY_S = 1.0
"""After a run that could not be published, a command that nobody took, or without its topic."""
RUNS_AT_ONCE_MAX = 64
STEPS_MAX = 2500
"""Of one schedule without a look at the others: more than there are in catching up."""
HEADER = "goqueue-schedule"

_log = get_logger("schedules")


class ScheduleCluster(Protocol):
    """What is asked of the cluster group; `node.cluster.host.ClusterHost` is one."""

    @property
    def state(self) -> ClusterState: ...

    def led_time_ms(self) -> int | None:
        """Log time now, where this node leads the cluster group."""
        ...

    async def command(self, command: Command, deadline_s: float) -> Result: ...


class Publisher(Protocol):
    """What is asked of the node; `node.broker.records.NodeRecords` is one."""

    async def append(
        self, topic: str, partition: int, batch: bytes, *, deadline_s: float
    ) -> AppendResult: ...


class ScheduleRunner:
    """A service. Loop thread only."""

    def __init__(self, cluster: ScheduleCluster, publisher: Publisher) -> None:
        self._cluster = cluster
        self._publisher = publisher
        self._runs = ScheduleRuns()
        self._under_way: set[int] = set()
        """Schedule ids."""
        self._tasks = TaskSet("schedules", "run_failed")
        self._not_before_s: dict[int, float] = {}
        """By schedule id: when to try again what has failed."""
        self._not_understood: set[int] = set()
        self._looks = Periodic(
            "schedules", self._round, POLL_S, _log, "schedules_failed", first_s=0.0
        )

    async def start(self) -> None:
        await self._looks.start()

    async def stop(self) -> None:
        await self._looks.stop()
        await self._tasks.stop()

    def look(self) -> float:
        """Begin what is due, without waiting for it; in how many seconds to look again."""
        now_ms = self._cluster.led_time_ms()
        if now_ms is None:
            self._runs = ScheduleRuns()
            self._not_before_s.clear()
            return POLL_S
        now_s = asyncio.get_running_loop().time()
        wait_s = POLL_S
        for schedule in self._cluster.state.schedules.values():
            if schedule.id in self._under_way or now_s < self._not_before_s.get(schedule.id, 0.0):
                continue
            if not schedule.begun_ms and (schedule.paused or schedule.next_ms > now_ms):
                if not schedule.paused:
                    wait_s = min(wait_s, (schedule.next_ms - now_ms) / 1000)
            elif len(self._under_way) < RUNS_AT_ONCE_MAX:
                self._set_out(schedule)
            else:
                wait_s = PAUSE_S
                break
        return max(PAUSE_S, wait_s)

    def wake(self) -> None:
        """Look now."""
        self._looks.wake()

    def next_ms(self) -> int | None:
        """The log time at which there is something to do next, as far as is known."""
        now_ms = self._cluster.led_time_ms()
        if now_ms is None:
            return None
        now_s = asyncio.get_running_loop().time()
        found: list[int] = []
        for schedule in self._cluster.state.schedules.values():
            if schedule.id in self._under_way or (schedule.paused and not schedule.begun_ms):
                continue
            due_ms = now_ms if schedule.begun_ms else schedule.next_ms
            wait_s = max(0.0, self._not_before_s.get(schedule.id, 0.0) - now_s)
            found.append(max(due_ms, now_ms + math.ceil(wait_s * 1000)))
        return min(found, default=None)

    async def settled(self) -> None:
        """Wait until nothing is under way."""
        await self._tasks.settled()

    # private

    async def _round(self) -> float:
        return self.look()

    def _step(self, schedule: Schedule, now_ms: int) -> Step:
        topic = self._cluster.state.topics.get(schedule.topic)
        try:
            return self._runs.step(schedule, None if topic is None else topic.id, now_ms)
        except BadConfig as error:  # another version of the time zones, or of cron
            if schedule.id not in self._not_understood:
                self._not_understood.add(schedule.id)
                _log.warning("schedule_unclear", schedule=schedule.name, problem=error.message)
            return Wait(None)

    def _set_out(self, schedule: Schedule) -> None:
        self._not_before_s.pop(schedule.id, None)
        self._under_way.add(schedule.id)
        task = self._tasks.begin(self._go_on(schedule.name, schedule.id))
        task.add_done_callback(lambda _task: self._under_way.discard(schedule.id))

    async def _go_on(self, name: str, id: int) -> None:
        """Take one step of a schedule after the other, until it has to wait."""
        try:
            for _ in range(STEPS_MAX):
                schedule = self._cluster.state.schedules.get(name)
                now_ms = self._cluster.led_time_ms()
                if schedule is None or schedule.id != id or now_ms is None:
                    return
                step = self._step(schedule, now_ms)
                if isinstance(step, Wait):
                    if step.until_ms is None:
                        self._rest(id)
                    return
                if isinstance(step, Publish):
                    step = await self._publish(schedule, step)
                await self._cluster.command(step, COMMAND_DEADLINE_S)
        except (Overtaken, UnknownSchedule):
            return  # somebody else has gone on with it
        except GoQueueError as error:
            self._rest(id)
            _log.info("run_delayed", schedule=name, problem=error.message)
        except Exception:  # noqa: BLE001 - the task's outermost guard
            self._rest(id)
            _log.exception("run_failed", schedule=name)

    def _rest(self, id: int) -> None:
        self._not_before_s[id] = asyncio.get_running_loop().time() + RETRY_S

    async def _publish(self, schedule: Schedule, run: Publish) -> BeginRun | EndRun:
        """What the attempt leads to. Raises GoQueueError where it must be made again."""
        ended = EndRun(schedule.name, schedule.id, run.run_ms, run.next_ms)
        try:
            await self._publisher.append(
                schedule.topic,
                schedule.partition,
                run_batch(schedule, run.run_ms),
                deadline_s=PUBLISH_DEADLINE_S,
            )
        except OutOfOrder:  # the partition has forgotten the producer
            _log.warning("schedule_identity_renewed", schedule=schedule.name)
            return BeginRun(schedule.name, schedule.id, run.run_ms, renew=True)
        except (UnknownTopic, UnknownPartition):
            raise
        except GoQueueError as error:
            if error.retriable or error.outcome != "none" or error.http_status >= 500:
                raise
            _log.warning("run_given_up", schedule=schedule.name, problem=error.message)
            return EndRun(
                schedule.name, schedule.id, run.run_ms, run.next_ms, error.message or error.code
            )
        return ended


def run_batch(schedule: Schedule, run_ms: int) -> bytes:
    """The message of one run, the same bytes whoever publishes it."""
    return encode_columns(
        [schedule.value],
        [schedule.key],
        timestamps_ms=run_ms,
        lanes=schedule.lane,
        headers=[(*schedule.headers, (HEADER, schedule.name.encode()))],
        message_ids=[f"schedule:{schedule.name}:{schedule.id}:{run_ms}"],
        producer_id=schedule.producer_id,
        base_sequence=schedule.sequence,
    )
