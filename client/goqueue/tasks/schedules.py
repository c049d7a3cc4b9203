"""Tasks that are called again and again: schedules, which the cluster keeps."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import msgspec

from goqueue.api.client import AsyncClient
from goqueue.models.times import Duration, duration_ms, duration_text
from goqueue.queue.schedules import Schedule
from goqueue.tasks.options import EveryOptions
from goqueue.tasks.steps import Rest, Step, headers_of
from goqueue.wire.errors import NotFound


@dataclass(frozen=True, slots=True)
class Every:
    """One schedule as the program has it: by `cron`, or every so many milliseconds."""

    name: str
    step: Step
    cron: str | None
    every_ms: int | None
    timezone: str
    missed: str

    @staticmethod
    def of(name: str, group: str, when: Duration, step: Step, options: EveryOptions) -> Every:
        """Raises BadRequest on what is no duration. Cron is text with blanks in it; the cluster
        checks it. In the cluster it has the name of the group before its own."""
        is_cron = isinstance(when, str) and " " in when.strip()
        return Every(
            f"{group}.{name}",
            step,
            str(when).strip() if is_cron else None,
            None if is_cron else duration_ms(when, "every"),
            options.get("timezone", "UTC"),
            options.get("missed", "once"),
        )

    def is_kept(self, there: Schedule) -> bool:
        """Whether the cluster's one of this name is the same."""
        every_ms = None if there.every is None else duration_ms(there.every, "every")
        when = (self.cron, self.every_ms, self.timezone, self.missed)
        what = (self.step.queue, self._value(), self._headers(), self.step.priority)
        return when == (there.cron, every_ms, there.timezone, there.missed) and what == (
            there.topic,
            there.value,
            there.headers or {},
            there.priority,
        )

    async def put(self, client: AsyncClient) -> None:
        """Have the cluster keep it. Raises what is wrong with its times."""
        every: Any = {}
        if self.every_ms is not None:
            every = {"every": duration_text(self.every_ms / 1000, "every")}
        await client.create_schedule(
            self.name,
            self.step.queue,
            self._value(),
            cron=self.cron,
            timezone=self.timezone,
            headers=self._headers(),
            priority=self.step.priority,
            missed=self.missed,
            **every,
        )

    def _value(self) -> str:
        return msgspec.json.encode(self.step.args).decode()

    def _headers(self) -> dict[str, str]:
        headers = headers_of(self.step, Rest())
        return {n: v.decode() if isinstance(v, bytes) else v for n, v in headers.items()}


async def put_schedules(client: AsyncClient, wanted: Iterable[Every]) -> None:
    """Create what is missing, and replace what is another one. One that is the same is left alone,
    so that `every` counts on over restarts of those who ask for it."""
    for one in wanted:
        try:
            there = await client.schedule(one.name)
        except NotFound:
            await one.put(client)
        else:
            if not one.is_kept(there):
                await one.put(client)
