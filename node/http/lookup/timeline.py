"""One message's timeline: what happened to it, and how it stands."""

from __future__ import annotations

from typing import Any

from aiohttp import web
from msgspec import UNSET, Struct, UnsetType

from node.api.times import format_time
from node.api.traces import GroupTrace
from node.http.lookup.message_ref import find_message
from node.http.request.call import Call, answer


class TimelineEvent(Struct):
    """One event; `attributes` says who and why."""

    timestamp: str
    event_type: str
    attributes: dict[str, Any]


class GroupState(Struct):
    """How the message stands in one group: `state` is delayed, ready, in_flight, retrying, acked,
    dead, cancelled or expired.

    `attempts` are the deliveries that were not given back. In flight, it is at `consumer` until
    `visible_until`; retrying, it comes again at `retry_at`. `reason`: why the last attempt failed.
    """

    group: str
    state: str
    attempts: int
    consumer: str | UnsetType = UNSET
    visible_until: str | UnsetType = UNSET
    retry_at: str | UnsetType = UNSET
    reason: str | UnsetType = UNSET


class TimelineAnswer(Struct):
    """A message's life so far. `message_id` is the producer's own id, if it gave one; `alike` are
    the older messages of the same id, where that is how it was asked for.

    `status` is in_progress, completed, failed, retrying, delayed, cancelled or expired; `exact` is
    false where the log does not tell all of its past any more; `stale` is true where no leader
    answered in time and more may have happened since.
    """

    id: str
    message_id: str | None
    topic: str
    partition: int
    offset: int
    events: list[TimelineEvent]
    delivery_attempts: int
    status: str
    states: list[GroupState]
    exact: bool
    stale: bool
    alike: list[str] | UnsetType = UNSET


async def timeline(call: Call) -> web.Response:
    """GET /messages/{id}/timeline: what happened to one message, oldest event first."""
    wanted, alike = await find_message(call)
    trace = await call.broker.traces.message_trace(wanted.topic, wanted.partition, wanted.offset)
    events = [
        TimelineEvent(format_time(event.time_ms), event.type, dict(event.attributes))
        for event in trace.events
    ]
    return answer(
        TimelineAnswer(
            id=str(wanted),
            message_id=trace.message_id,
            topic=trace.topic,
            partition=trace.partition,
            offset=trace.offset,
            events=events,
            delivery_attempts=trace.delivery_attempts,
            status=trace.status,
            states=[_state(group) for group in trace.groups],
            exact=trace.exact,
            stale=trace.stale,
            alike=alike or UNSET,
        )
    )


def _state(group: GroupTrace) -> GroupState:
    return GroupState(
        group.group,
        group.state,
        group.attempts,
        group.consumer or UNSET,
        format_time(group.visible_until_ms) if group.visible_until_ms else UNSET,
        format_time(group.retry_at_ms) if group.retry_at_ms else UNSET,
        group.reason or UNSET,
    )
