"""Recurring schedules: a message published by the cluster itself, by cron or every so often."""

from __future__ import annotations

from typing import Any

import msgspec
from aiohttp import web
from msgspec import UNSET, Raw, Struct, UnsetType

from goqueue.wire.batch import LANE_NORMAL, LANES
from goqueue.wire.errors import BadName, BadRequest, GoQueueError
from goqueue.wire.ids import is_name, validate_topic_name
from node.api.delays import ScheduleView
from node.api.times import Duration, duration_ms, format_duration, format_time
from node.http.messages.fields import Message, headers_of, key_of, lane_of, value_of
from node.http.messages.render import text_or_base64
from node.http.request.call import Call, answer
from node.http.text.known_fields import Body

MISSED = ("skip", "once", "all")
EVERY_PREFIX = "@every "


class ScheduleBody(Body):
    """When: `cron` (second minute hour day month weekday, or without the second, or `@every 10s`)
    in `timezone`, or `every`. What: a message as a publish has it. `missed` says what becomes of
    runs that the cluster slept through: skip, once (the default) or all."""

    name: str
    topic: str
    value: Raw | UnsetType = UNSET
    cron: str | None = None
    every: Duration | None = None
    timezone: str | None = None
    missed: str | None = None
    value_encoding: str | None = None
    key: str | None = None
    key_encoding: str | None = None
    headers: dict[str, str] | None = None
    priority: str | int | None = None


class ScheduleAnswer(Struct):
    """A schedule; `state` is active or paused, `next_at` absent while no run is planned."""

    name: str
    topic: str
    cron: str | None
    every: str | None
    timezone: str
    missed: str
    state: str
    next_at: str | None
    last_at: str | None
    runs: int
    value: str
    priority: str
    created_at: str
    error: str | None = None
    key: str | None = None
    headers: dict[str, str] | None = None
    value_encoding: str | None = None
    key_encoding: str | None = None
    header_encodings: dict[str, str] | None = None


class SchedulesAnswer(Struct):
    schedules: list[ScheduleAnswer]


class ScheduleDeleted(Struct):
    deleted: bool
    name: str


_BODY = msgspec.json.Decoder(ScheduleBody)


async def create(call: Call) -> web.Response:
    """Create a schedule, or replace the one of that name."""
    wanted = await call.document(_BODY)
    return answer(_schedule(await call.broker.scheduling.put_schedule(parse_schedule(wanted))), 201)


async def list_schedules(call: Call) -> web.Response:
    views = await call.broker.scheduling.schedules()
    return answer(SchedulesAnswer(list(map(_schedule, views))))


async def describe(call: Call) -> web.Response:
    return answer(_schedule(await call.broker.scheduling.schedule(_name(call.params["schedule"]))))


async def pause(call: Call) -> web.Response:
    name = _name(call.params["schedule"])
    return answer(_schedule(await call.broker.scheduling.pause_schedule(name, paused=True)))


async def resume(call: Call) -> web.Response:
    name = _name(call.params["schedule"])
    return answer(_schedule(await call.broker.scheduling.pause_schedule(name, paused=False)))


async def delete(call: Call) -> web.Response:
    name = _name(call.params["schedule"])
    await call.broker.scheduling.delete_schedule(name)
    return answer(ScheduleDeleted(True, name))


def parse_schedule(wanted: ScheduleBody) -> dict[str, object]:
    """The fields of `ScheduleView` that say what is wanted. Raises BadRequest with every problem,
    BadName if a name is the only one."""
    problems: list[GoQueueError] = []

    def checked(check: Any, *arguments: Any) -> Any:
        try:
            return check(*arguments)
        except GoQueueError as error:
            problems.append(error)

    message = Message(
        value=wanted.value,
        value_encoding=wanted.value_encoding,
        key=wanted.key,
        key_encoding=wanted.key_encoding,
        headers=wanted.headers,
        priority=wanted.priority,
    )
    cron, every = _timing(wanted)
    lane = checked(lane_of, wanted.priority)
    missed = wanted.missed or "once"
    if missed not in MISSED:
        problems.append(BadRequest(f"missed: {missed[:40]!r} is none of {', '.join(MISSED)}"))
    if (cron is None) == (every is None):
        problems.append(BadRequest("give cron or every, one of them"))
    found: dict[str, object] = {
        "name": checked(_name, wanted.name),
        "topic": checked(validate_topic_name, wanted.topic),
        "cron": cron,
        "every_ms": checked(duration_ms, every, "every"),
        "timezone": wanted.timezone or "UTC",
        "missed": missed,
        "value": checked(value_of, message, False),
        "key": checked(key_of, message),
        "headers": checked(headers_of, message),
        "lane": LANE_NORMAL if lane is None else lane,
    }
    if len(problems) == 1:
        raise problems[0]
    if problems:
        raise BadRequest("; ".join(problem.message for problem in problems))
    return found


def _timing(wanted: ScheduleBody) -> tuple[str | None, Duration | None]:
    cron = (wanted.cron or "").strip() or None
    every = None if wanted.every == "" else wanted.every
    if cron is not None and every is None and cron.startswith(EVERY_PREFIX):
        return None, cron.removeprefix(EVERY_PREFIX).strip()
    return cron, every


def _name(text: str) -> str:
    if not is_name(text):
        raise BadName(
            f"bad schedule name {text[:64]!r}: names match [A-Za-z0-9][A-Za-z0-9._-]{{0,248}}",
            name=text[:64],
        )
    return text


def _schedule(view: ScheduleView) -> ScheduleAnswer:
    value, value_encoding = text_or_base64(view.value)
    key, key_encoding = (None, None) if view.key is None else text_or_base64(view.key)
    headers = {name: text_or_base64(blob) for name, blob in view.headers}
    encodings = {name: encoding for name, (_, encoding) in headers.items() if encoding}
    return ScheduleAnswer(
        name=view.name,
        topic=view.topic,
        cron=view.cron,
        every=None if view.every_ms is None else format_duration(view.every_ms),
        timezone=view.timezone,
        missed=view.missed,
        state=view.state,
        next_at=format_time(view.next_ms) if view.next_ms else None,
        last_at=format_time(view.last_ms) if view.last_ms else None,
        runs=view.runs,
        value=value,
        priority=LANES[view.lane],
        created_at=format_time(view.created_ms),
        error=view.error or None,
        key=key,
        headers={name: text for name, (text, _) in headers.items()} or None,
        value_encoding=value_encoding,
        key_encoding=key_encoding,
        header_encodings=encodings or None,
    )
