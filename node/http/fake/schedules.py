"""Recurring schedules of the fake broker: kept, listed and paused; nothing fires."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from coordinator.jobs.schedule_times import Times, check_times, next_run
from goqueue.wire.errors import NotFound
from node.api.delays import ScheduleView


class FakeSchedules:
    """The schedules' part of `FakeBroker`."""

    def __init__(self, clock_ms: Callable[[], int]) -> None:
        self._clock_ms = clock_ms
        self._schedules: dict[str, ScheduleView] = {}

    def partition_count(self, topic: str) -> int:
        raise NotImplementedError

    async def put_schedule(self, schedule: Mapping[str, object]) -> ScheduleView:
        wanted: dict[str, Any] = dict(schedule)
        self.partition_count(wanted["topic"])
        now_ms = self._clock_ms()
        times = Times(wanted["cron"] or "", wanted["timezone"], wanted["every_ms"] or 0, now_ms)
        check_times(times, now_ms)
        view = ScheduleView(
            **wanted,
            state="active",
            next_ms=next_run(times, now_ms),
            last_ms=0,
            runs=0,
            created_ms=now_ms,
        )
        self._schedules[view.name] = view
        return view

    async def schedules(self) -> list[ScheduleView]:
        return [self._schedules[name] for name in sorted(self._schedules)]

    async def schedule(self, name: str) -> ScheduleView:
        if name not in self._schedules:
            raise NotFound(f"no schedule {name}", schedule=name)
        return self._schedules[name]

    async def pause_schedule(self, name: str, *, paused: bool) -> ScheduleView:
        view = replace(await self.schedule(name), state="paused" if paused else "active")
        self._schedules[name] = view
        return view

    async def delete_schedule(self, name: str) -> None:
        await self.schedule(name)
        del self._schedules[name]
