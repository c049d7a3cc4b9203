"""Schedules as the front asks for them: made, listed, paused and deleted in the cluster group."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from coordinator.commands.queue import DeleteSchedule, PauseSchedule, PutSchedule
from coordinator.errors import BadConfig, UnknownSchedule
from coordinator.jobs.schedule_times import Times, check_times, next_run
from coordinator.jobs.schedules import Schedule, check_schedule
from goqueue.wire.errors import Unavailable
from node.api.delays import ScheduleView
from node.cluster.host import ClusterHost

COMMAND_DEADLINE_S = 15.0
SCHEDULES_PLANNED_MAX = 100
"""How many views of one answer may need their next run computed: each takes a fraction of a ms."""


class SchedulesBroker:
    """Implements `node.api.delays.Schedules`. `wall_ms` only judges that they run."""

    def __init__(self, cluster: ClusterHost, wall_ms: Callable[[], int]) -> None:
        self._cluster = cluster
        self._wall_ms = wall_ms

    async def put_schedule(self, schedule: Mapping[str, object]) -> ScheduleView:
        """Create or replace by name; fields are those of `ScheduleView` that say what is wanted.

        Raises BadName, BadConfig with every problem, UnknownTopic.
        """
        command = _command(schedule)
        problems = _problems(lambda: check_schedule(command))
        times = Times(command.cron, command.timezone, command.every_ms)
        problems += _problems(lambda: check_times(times, self._wall_ms()))
        if problems:
            raise BadConfig(list(dict.fromkeys(problems)))
        await self._cluster.command(command, COMMAND_DEADLINE_S)
        return await self.schedule(command.name)

    async def schedules(self) -> list[ScheduleView]:
        """All of them by name."""
        await self._cluster.refresh()
        found = self._cluster.state.schedules
        unplanned = SCHEDULES_PLANNED_MAX
        views = []
        for name in sorted(found):
            unplanned -= found[name].next_ms == 0
            views.append(self._view(found[name], plan=unplanned >= 0))
        return views

    async def schedule(self, name: str) -> ScheduleView:
        """As of now. Raises UnknownSchedule, or Unavailable where nobody can say."""
        return self._view(await self._find(name))

    async def pause_schedule(self, name: str, *, paused: bool) -> ScheduleView:
        """Raises UnknownSchedule."""
        found = await self._find(name)
        await self._cluster.command(PauseSchedule(name, found.id, paused), COMMAND_DEADLINE_S)
        return await self.schedule(name)

    async def delete_schedule(self, name: str) -> None:
        """Raises UnknownSchedule. A run that is being published may still appear."""
        found = await self._find(name)
        try:
            await self._cluster.command(DeleteSchedule(name, found.id), COMMAND_DEADLINE_S)
        except UnknownSchedule as error:
            if error.outcome == "none":  # else this very call may have deleted it, earlier
                raise

    # private

    async def _find(self, name: str) -> Schedule:
        is_current = await self._cluster.refresh()
        found = self._cluster.state.schedules.get(name)
        if found is not None:
            return found
        if is_current:
            raise UnknownSchedule(name[:249])
        problem = self._cluster.not_ready() or "the cluster group's leader does not answer"
        raise Unavailable(f"schedule {name[:64]} is not known here: {problem}")

    def _view(self, schedule: Schedule, *, plan: bool = True) -> ScheduleView:
        next_ms, error = schedule.next_ms, schedule.error
        if not next_ms and plan and not schedule.paused:
            try:
                next_ms = next_run(schedule.times, schedule.planned_ms)
            except BadConfig as problem:
                error = problem.message
        if schedule.topic not in self._cluster.state.topics:
            error = f"topic not found: {schedule.topic}"
        return ScheduleView(
            name=schedule.name,
            topic=schedule.topic,
            cron=schedule.cron or None,
            every_ms=schedule.every_ms or None,
            timezone=schedule.timezone,
            missed=schedule.missed,
            state="paused" if schedule.paused else "active",
            next_ms=0 if schedule.paused else next_ms,
            last_ms=schedule.last_ms,
            runs=schedule.runs,
            value=schedule.value,
            key=schedule.key,
            headers=schedule.headers,
            lane=schedule.lane,
            created_ms=schedule.created_ms,
            error=error,
        )


def _command(schedule: Mapping[str, object]) -> PutSchedule:
    """Fields that are None take their defaults. Raises BadConfig for one that is none, or of
    another type."""
    unknown = sorted(set(schedule) - set(PutSchedule.__struct_fields__))
    if unknown:
        raise BadConfig([f"{name[:80]}: unknown setting" for name in unknown])
    given = {name: value for name, value in schedule.items() if value is not None}
    try:
        return msgspec.convert(given, PutSchedule)
    except msgspec.ValidationError as error:
        raise BadConfig([str(error)]) from None


def _problems(check: Callable[[], None]) -> list[str]:
    """Of a check that raises BadConfig with all of them; other errors pass."""
    try:
        check()
    except BadConfig as error:
        found = error.data["problems"]
        return [str(problem) for problem in found] if isinstance(found, list) else [error.message]
    return []
