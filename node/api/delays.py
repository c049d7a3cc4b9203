"""What the HTTP front asks of the node about what comes later: `Delays` and `Schedules`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, cast

from goqueue.wire.batch import Headers
from goqueue.wire.types import Offset
from node.api.auth.principal import OutOfScope
from node.api.rules.rule import scoped, topic
from node.api.rules.scope import Scope


@dataclass(frozen=True, slots=True)
class DelayedView:
    """A delayed message; `state` is pending, delivered (due), cancelled or expired."""

    topic: str
    partition: int
    offset: Offset
    deliver_at_ms: int
    remaining_ms: int
    state: str
    lane: int
    key: bytes | None = None
    message_id: str | None = None


@dataclass(frozen=True, slots=True)
class ScheduleView:
    """A recurring schedule. `state` is active or paused."""

    name: str
    topic: str
    cron: str | None
    every_ms: int | None
    timezone: str
    missed: str  # skip | once | all
    state: str
    next_ms: int
    last_ms: int
    runs: int
    value: bytes
    key: bytes | None
    headers: Headers
    lane: int
    created_ms: int
    error: str = ""


def _put(scope: Scope, method: Any) -> Any:
    """Also what it takes the place of must be within the prefixes."""

    async def checked(schedule: Mapping[str, object]) -> ScheduleView:
        scope.principal.require(str(schedule.get("topic")))
        for one in await scope.broker.scheduling.schedules():
            if one.name == schedule.get("name"):
                _require(scope, one)
        scope.broker.shares.schedule(scope.principal.prefixes, schedule)
        return cast(ScheduleView, await method(schedule))

    return checked


def _listed(scope: Scope, method: Any) -> Any:
    async def seen() -> list[ScheduleView]:
        return [one for one in await method() if scope.principal.covers(one.topic)]

    return seen


def _named(scope: Scope, method: Any) -> Any:
    async def checked(name: str, **named: Any) -> Any:
        _require(scope, await scope.broker.scheduling.schedule(name))
        return await method(name, **named)

    return checked


def _require(scope: Scope, schedule: ScheduleView) -> None:
    """Not told by its topic: the key knows the schedule's name only."""
    if not scope.principal.covers(schedule.topic):
        raise OutOfScope(scope.principal, f"schedule {schedule.name[:200]}")


class Delays(Protocol):
    """Messages that are not due yet."""

    @scoped(topic)
    async def delayed(self, topic: str, *, limit: int, skip: int) -> tuple[list[DelayedView], int]:
        """Soonest first, and how many there are in all."""
        ...

    @scoped(topic)
    async def find_delayed(self, topic: str, partition: int | None, offset: int) -> DelayedView:
        """Raises `NotFound` for a message that never had a delay."""
        ...

    @scoped(topic)
    async def cancel_delayed(self, topic: str, partition: int, offset: int) -> DelayedView:
        """Also one that was cancelled before. Raises `NotFound`, `AlreadyDue` (409)."""
        ...


class Schedules(Protocol):
    """Messages that are published again and again."""

    @scoped(_put)
    async def put_schedule(self, schedule: Mapping[str, object]) -> ScheduleView:
        """Create or replace by name. The fields are `ScheduleView`'s own: name, topic, cron,
        every_ms, timezone, missed, value, key, headers, lane; the first two are legal names, and
        one of cron and every_ms is None. Raises `BadRequest` with every problem, `UnknownTopic`."""
        ...

    @scoped(_listed)
    async def schedules(self) -> list[ScheduleView]: ...

    @scoped(_named)
    async def schedule(self, name: str) -> ScheduleView: ...

    @scoped(_named)
    async def pause_schedule(self, name: str, *, paused: bool) -> ScheduleView: ...

    @scoped(_named)
    async def delete_schedule(self, name: str) -> None: ...
