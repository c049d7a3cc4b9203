"""What a schedule does now: wait, plan its next run, begin it, publish it, or give it up.

Runs that are at most LATE_MS late are all made, so that a change of leaders loses none. Where the
first run that is due is later than that, the cluster was down, and `missed` says what becomes of
all that is due: `skip` leaves it, `once` makes the last one, `all` makes each, the first first; of
more than MISSED_MAX, `all` makes only the last, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

from coordinator.commands.queue import BeginRun, EndRun, PlanRun
from coordinator.jobs.schedule_times import last_run, next_run, runs_after
from coordinator.jobs.schedules import Schedule
from goqueue.wire.types import TopicId

LATE_MS = 60_000
MISSED_MAX = 1000
IN_DOUBT_MS_MAX = 6 * 24 * 3600 * 1000
"""After 7 days a partition may have forgotten whether it has the message."""
IN_DOUBT = "not known whether it was published: its partition could not be reached for 6 days"


@dataclass(frozen=True, slots=True)
class Publish:
    """Publish the message of this run, as often as it takes; then end it with `next_ms`."""

    run_ms: int
    next_ms: int


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing before this moment; None where only a change can bring something to do."""

    until_ms: int | None


Step = Wait | PlanRun | BeginRun | Publish | EndRun


class ScheduleRuns:
    """The steps of all schedules, at the one leader; it remembers what it has counted."""

    def __init__(self) -> None:
        self._catching_up: dict[int, int] = {}
        """By schedule id: runs up to this moment were missed, and are few enough to be made."""

    def step(self, schedule: Schedule, topic_id: TopicId | None, now_ms: int) -> Step:
        """What to do at this log time; `topic_id` is the topic's of this name, if there is one.

        Raises BadConfig where this node does not understand when it runs.
        """
        if topic_id is None:
            return Wait(None)
        if schedule.begun_ms:
            return self._finish(schedule, topic_id, now_ms)
        if schedule.paused:
            return Wait(None)
        due_ms = schedule.next_ms or next_run(schedule.times, schedule.planned_ms)
        if due_ms > now_ms:
            if not schedule.next_ms:
                return PlanRun(schedule.name, schedule.id, due_ms)
            self._catching_up.pop(schedule.id, None)
            return Wait(due_ms)
        return self._due(schedule, due_ms, now_ms)

    def _finish(self, schedule: Schedule, topic_id: TopicId, now_ms: int) -> Step:
        run_ms = schedule.begun_ms
        if topic_id != schedule.topic_id:  # another one of the name: it can't have the message
            return BeginRun(schedule.name, schedule.id, run_ms)
        next_ms = next_run(schedule.times, run_ms)
        if now_ms - schedule.begun_at_ms > IN_DOUBT_MS_MAX:
            return EndRun(schedule.name, schedule.id, run_ms, next_ms, IN_DOUBT)
        return Publish(run_ms, next_ms)

    def _due(self, schedule: Schedule, due_ms: int, now_ms: int) -> Step:
        begin = BeginRun(schedule.name, schedule.id, due_ms)
        if now_ms - due_ms <= LATE_MS or due_ms <= self._catching_up.get(schedule.id, 0):
            return begin
        if schedule.missed == "skip":
            return PlanRun(schedule.name, schedule.id, next_run(schedule.times, now_ms))
        if schedule.missed == "all" and self._are_few(schedule, due_ms, now_ms):
            self._catching_up[schedule.id] = now_ms
            return begin
        last_ms = last_run(schedule.times, due_ms, now_ms) or due_ms
        return BeginRun(schedule.name, schedule.id, last_ms)

    @staticmethod
    def _are_few(schedule: Schedule, due_ms: int, now_ms: int) -> bool:
        after = next(islice(runs_after(schedule.times, due_ms), MISSED_MAX - 1, None))
        return after > now_ms
