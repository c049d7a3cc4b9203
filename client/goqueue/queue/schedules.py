"""Messages that come later: delayed ones, and schedules that publish again and again."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from datetime import datetime

import msgspec

from goqueue.models.options import Priority
from goqueue.models.times import Duration, duration_text
from goqueue.publish.outgoing import Text, to_bytes, to_lane
from goqueue.transport.calls import Calls, decode, given
from goqueue.transport.http import join
from goqueue.wire.layout import LANES


class Delayed(msgspec.Struct, frozen=True):
    """A delayed message; `state` is pending, delivered (it is due), cancelled or expired."""

    topic: str
    partition: int
    offset: int
    deliver_at: datetime
    state: str = "pending"
    key: str | None = None
    message_id: str | None = None
    priority: str = "normal"

    @property
    def id(self) -> str:
        """`topic:partition:offset`"""
        return f"{self.topic}:{self.partition}:{self.offset}"


class Schedule(msgspec.Struct, frozen=True):
    """A recurring publish of `value`; `state` is active or paused, `runs` counts what it has
    published. Bytes that are no text are base64, as `value_encoding` says then."""

    name: str
    topic: str
    cron: str | None = None
    every: str | None = None
    timezone: str = "UTC"
    missed: str = "once"
    state: str = "active"
    next_at: datetime | None = None
    last_at: datetime | None = None
    runs: int = 0
    error: str | None = None
    value: str = ""
    value_encoding: str | None = None
    headers: dict[str, str] | None = None
    priority: str = "normal"


class Schedules:
    """The part of the client that knows what comes later."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    async def delayed(self, topic: str, *, limit: int = 100, skip: int = 0) -> list[Delayed]:
        """Messages that are not due yet, soonest first."""
        params = {"limit": str(limit), "skip": str(skip)}
        path = join("topics", topic, "delayed")
        return (await self._calls.get(path, _DelayedList, params)).messages

    async def delayed_message(self, topic: str, partition: int, offset: int) -> Delayed:
        """One delayed message, also after it became due. Raises `NotFound`."""
        return await self._calls.get(join("topics", topic, "delayed", partition, offset), Delayed)

    async def cancel_delayed(self, topic: str, partition: int, offset: int) -> None:
        """Never deliver a delayed message; one that was cancelled before stays so. Raises
        `NotFound`, or `AlreadyDue`: too late."""
        path = join("topics", topic, "delayed", partition, offset)
        await self._calls.transport.request("DELETE", path, repeatable=True)

    async def create_schedule(
        self,
        name: str,
        topic: str,
        value: Text,
        *,
        cron: str | None = None,
        every: Duration | None = None,
        timezone: str = "UTC",
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
        priority: Priority | int = "normal",
        missed: str | None = None,
    ) -> Schedule:
        """Create or replace a schedule that publishes `value` whenever `cron` says (second minute
        hour day month weekday, in `timezone`; the second may be left out), or `every` so often.

        `missed` says what happens to times that passed while the cluster was down: skip, once
        (the default) or all.
        """
        body = given(
            {
                "name": name,
                "topic": topic,
                "cron": cron,
                "every": None if every is None else duration_text(every, "every"),
                "timezone": timezone,
                "key": key,
                "headers": None if headers is None else dict(headers),
                "priority": LANES[to_lane(priority)],
                "missed": missed,
                **_value(to_bytes(value)),
            }
        )
        return await self._calls.send("POST", join("schedules"), body, Schedule, repeatable=True)

    async def schedules(self) -> list[Schedule]:
        """All schedules by name."""
        return (await self._calls.get(join("schedules"), _ScheduleList)).schedules

    async def schedule(self, name: str) -> Schedule:
        """Raises `NotFound`."""
        return await self._calls.get(join("schedules", name), Schedule)

    async def pause_schedule(self, name: str) -> Schedule:
        """Publish nothing until it is resumed."""
        return await self._turn(name, "pause")

    async def resume_schedule(self, name: str) -> Schedule:
        """Go on; what was missed while it was paused is not made up for."""
        return await self._turn(name, "resume")

    async def delete_schedule(self, name: str) -> None:
        """Raises `NotFound`. What it published stays."""
        await self._calls.transport.request("DELETE", join("schedules", name), repeatable=False)

    async def _turn(self, name: str, verb: str) -> Schedule:
        path = join("schedules", name, verb)
        answer = await self._calls.transport.request("POST", path, repeatable=True)
        return decode(answer.body, Schedule)


class _DelayedList(msgspec.Struct):
    messages: list[Delayed]


class _ScheduleList(msgspec.Struct):
    schedules: list[Schedule]


def _value(value: bytes) -> dict[str, str]:
    try:
        return {"value": value.decode()}
    except UnicodeDecodeError:
        return {"value": base64.b64encode(value).decode("ascii"), "value_encoding": "base64"}
