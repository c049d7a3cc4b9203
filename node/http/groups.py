"""Groups: create, change, list, describe and delete them.

A setting reads and writes under the same name and in the same form, so an answer's `settings` can
be sent back. Groups that receive have no members to speak of: their first receive makes them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from aiohttp import web
from msgspec import Struct

from delivery.config import VISIBILITY_MS_MAX
from goqueue.wire.errors import BadRequest, UnknownGroup
from goqueue.wire.ids import validate_topic_name
from node.http.call import Call, answer
from node.http.queue_broker import GroupPartitionView, GroupView
from node.http.render import text_or_base64
from node.http.times import Duration, duration_ms, format_duration, format_time

COUNT_MAX = 2**31 - 1
STATE = "empty"
"""What GoQueue says of a group without members."""


class GroupSettings(Struct):
    """Null and missing leave the present value, or the default."""

    visibility_timeout: Duration | None = None
    max_attempts: int | None = None
    maxRetries: int | None = None
    ordering: str | None = None
    start: str | None = None
    lane_max_wait: Duration | None = None
    lane_share: int | None = None
    backoff: Duration | None = None
    backoff_max: Duration | None = None
    on_poison: str | None = None
    halt_percent: int | None = None
    halt_window: int | None = None
    redrives_max: int | None = None
    in_flight_max: int | None = None
    dead_max: int | None = None


class ParkedView(Struct, omit_defaults=True):
    """A parked key and how many messages wait behind it."""

    key: str
    waiting: int
    key_encoding: str | None = None


class GroupPartition(Struct):
    """The group in one partition. Everything below `committed_offset` is settled; `lag` counts what
    is ready, in flight or waiting for its backoff; `halted` says why, empty while it is not. Lists
    are by lane, critical first."""

    topic: str
    partition: int
    committed_offset: int
    end_offset: int
    lag: int
    ready: int
    in_flight: int
    waiting: int
    dead: int
    delivered: int
    redelivered: int
    acked: int
    nacked: int
    rejected: int
    expired: int
    fallen: int
    halted: str
    lane_pending: list[int]
    lane_wait_ms: list[int]
    lane_wait_ms_max: list[int]
    parked: list[ParkedView]


class GroupDetail(Struct):
    """A group in a list."""

    id: str
    group_id: str
    name: str
    state: str
    members: int
    generation: int
    settings: dict[str, Any]
    created_at: str


class GroupsAnswer(Struct):
    groups: list[str]
    details: list[GroupDetail]


class GroupAnswer(Struct):
    """One group, with GoQueue's fields and its place in every partition that it has seen."""

    id: str
    group_id: str
    name: str
    state: str
    generation: int
    protocol: str
    members: list[dict[str, Any]]
    topics: list[str]
    settings: dict[str, Any]
    created_at: str
    partitions: list[GroupPartition]


class GroupDeleted(Struct):
    deleted: bool
    group: str


def _whole(low: int, high: int = COUNT_MAX) -> Callable[[str, Any], int]:
    def parse(name: str, given: Any) -> int:
        if not isinstance(given, int) or isinstance(given, bool) or not low <= given <= high:
            raise BadRequest(f"{name}: want a whole number from {low} to {high}")
        return given

    return parse


def _one_of(*known: str) -> Callable[[str, Any], str]:
    def parse(name: str, given: Any) -> str:
        if given not in known:
            raise BadRequest(f"{name}: want one of {', '.join(known)}")
        return str(given)

    return parse


def _span(ms_max: int) -> Callable[[str, Any], int]:
    def parse(name: str, given: Any) -> int:
        if isinstance(given, bool) or not isinstance(given, str | int | float):
            raise BadRequest(f"{name}: want a duration such as 30s, or milliseconds")
        found = duration_ms(given, name) or 0
        if found > ms_max:
            raise BadRequest(f"{name}: longer than {format_duration(ms_max)}")
        return found

    return parse


WEEK_MS = 7 * 24 * 3600 * 1000
_SETTINGS: dict[str, tuple[str, Callable[[str, Any], object]]] = {
    "visibility_timeout": ("visibility_ms", _span(VISIBILITY_MS_MAX)),
    "max_attempts": ("max_attempts", _whole(0)),
    "maxRetries": ("max_attempts", _whole(0)),
    "ordering": ("ordering", _one_of("none", "key")),
    "start": ("start", _one_of("earliest", "latest")),
    "lane_max_wait": ("lane_max_wait_ms", _span(WEEK_MS)),
    "lane_share": ("lane_share", _whole(1)),
    "backoff": ("backoff_ms", _span(WEEK_MS)),
    "backoff_max": ("backoff_ms_max", _span(WEEK_MS)),
    "on_poison": ("on_poison", _one_of("dead", "park")),
    "halt_percent": ("halt_percent", _whole(0, 100)),
    "halt_window": ("halt_window", _whole(1, 100_000)),
    "redrives_max": ("redrives_max", _whole(0)),
    "in_flight_max": ("in_flight_max", _whole(1, 1_000_000)),
    "dead_max": ("dead_max", _whole(1)),
}
_SHOWN = {stored: name for name, (stored, _) in _SETTINGS.items() if name != "maxRetries"}
_BODY = msgspec.json.Decoder(dict[str, Any])


async def list_groups(call: Call) -> web.Response:
    views = await call.broker.list_groups()
    details = [
        GroupDetail(
            view.name,
            view.name,
            view.name,
            STATE,
            0,
            0,
            shown_settings(view.settings),
            format_time(view.created_ms),
        )
        for view in views
    ]
    return answer(GroupsAnswer([view.name for view in views], details))


async def describe(call: Call) -> web.Response:
    group = call.group()
    topic = call.query.get("topic") or None
    if topic is not None:
        validate_topic_name(topic)
    return answer(_group_answer(await call.broker.group(group, topic)))


async def put(call: Call) -> web.Response:
    """Create the group, or change the settings that are given."""
    group = call.group()
    given = await call.document(_BODY, empty=b"{}")
    settings = parse_settings(given)
    return answer(_group_answer(await call.broker.put_group(group, settings)))


async def change(call: Call) -> web.Response:
    """As `put`, of a group that is there."""
    group = call.group()
    given = await call.document(_BODY, empty=b"{}")
    settings = parse_settings(given)
    if not settings:
        raise BadRequest("nothing to change")
    if all(view.name != group for view in await call.broker.list_groups()):
        raise UnknownGroup(group)
    return answer(_group_answer(await call.broker.put_group(group, settings)))


async def delete(call: Call) -> web.Response:
    group = call.group()
    await call.broker.delete_group(group)
    return answer(GroupDeleted(True, group))


def parse_settings(given: Mapping[str, Any]) -> dict[str, object]:
    """The settings under the names that are stored. Raises BadRequest with every problem."""
    found: dict[str, object] = {}
    problems: list[str] = []
    for name, value in given.items():
        if name not in _SETTINGS:
            problems.append(f"unknown setting {name[:80]!r}")
        elif value is not None:
            stored, parse = _SETTINGS[name]
            try:
                parsed = parse(name, value)
            except BadRequest as error:
                problems.append(error.message)
                continue
            if found.setdefault(stored, parsed) != parsed:
                problems.append(f"{stored} is given twice, with different values")
    if problems:
        raise BadRequest("; ".join(problems[:20]), problems=problems[:20])
    return found


def shown_settings(settings: Mapping[str, object]) -> dict[str, Any]:
    """Under the names and in the forms that `parse_settings` takes."""
    shown: dict[str, Any] = {}
    for stored, name in _SHOWN.items():
        value = settings.get(stored)
        if "_ms" in stored and isinstance(value, int):
            value = format_duration(value)
        if value is not None:
            shown[name] = value
    return shown


def _group_answer(view: GroupView) -> GroupAnswer:
    return GroupAnswer(
        id=view.name,
        group_id=view.name,
        name=view.name,
        state=STATE,
        generation=0,
        protocol="",
        members=[],
        topics=sorted({place.topic for place in view.partitions}),
        settings=shown_settings(view.settings),
        created_at=format_time(view.created_ms),
        partitions=list(map(_partition, view.partitions)),
    )


def _partition(place: GroupPartitionView) -> GroupPartition:
    return GroupPartition(
        topic=place.topic,
        partition=place.partition,
        committed_offset=place.floor,
        end_offset=place.end,
        lag=place.ready + place.in_flight + place.waiting,
        ready=place.ready,
        in_flight=place.in_flight,
        waiting=place.waiting,
        dead=place.dead,
        delivered=place.delivered,
        redelivered=place.redelivered,
        acked=place.acked,
        nacked=place.nacked,
        rejected=place.rejected,
        expired=place.expired,
        fallen=place.fallen,
        halted=place.halted,
        lane_pending=list(place.lane_pending),
        lane_wait_ms=list(place.lane_wait_ms),
        lane_wait_ms_max=list(place.lane_wait_ms_max),
        parked=[
            ParkedView(text, waiting, encoding)
            for key, waiting in place.parked
            for text, encoding in [text_or_base64(key)]
        ],
    )
