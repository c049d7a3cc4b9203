"""One message's timeline as nodes tell each other, and as the HTTP front shows it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from delivery.timeline.groups import GroupStory, TimelineEvent
from delivery.timeline.message import Timeline
from goqueue.wire.errors import NotFound
from goqueue.wire.types import Offset
from node.api.traces import GroupTrace, MessageTrace, TraceEvent
from node.partition.host import PartitionHost
from node.partition.timeline_lookup import look_up
from node.rpc import partitions as rpc


@dataclass(frozen=True, slots=True)
class Summary:
    """A timeline in one line; `states` of each group by its name."""

    offset: Offset
    message_id: str | None
    status: str
    states: dict[str, str]
    attempts: int
    first_ms: int
    last_ms: int
    last_type: str


async def trace_message(host: PartitionHost, offset: Offset) -> rpc.TraceAnswer:
    """What the log says of one applied message. Raises as `look_up`."""
    found = await look_up(host, offset)
    groups = [_group(found, name, group) for name, group in found.groups.items()]
    events, config = found.events, host.config
    if config.is_compacted and not config.is_deleted:
        events = [*map(_lasting, events)]
    return rpc.TraceAnswer(
        found.message_id, events, groups, found.status, found.attempts, found.exact
    )


async def summaries(host: PartitionHost, offsets: Sequence[int]) -> list[Summary | None]:
    """Of each message a line, None for one that is not there; about a millisecond each.

    Raises as `look_up`, but NotFound.
    """
    found: list[Summary | None] = []
    for offset in offsets:
        try:
            found.append(_summary(await look_up(host, Offset(offset))))
        except NotFound:
            found.append(None)
        await asyncio.sleep(0)
    return found


def trace_from_answer(
    topic: str, partition: int, offset: Offset, answer: rpc.TraceAnswer
) -> MessageTrace:
    """The view that the HTTP front shows."""
    events = tuple(TraceEvent(time_ms, type_, what) for time_ms, type_, what in answer.events)
    groups = tuple(GroupTrace(*group) for group in answer.groups)
    return MessageTrace(
        topic,
        partition,
        offset,
        answer.message_id,
        events,
        answer.attempts,
        answer.status,
        groups,
        answer.exact,
    )


def _lasting(event: TimelineEvent) -> TimelineEvent:
    """Of a topic that is compacted only: age takes nothing, a later message of the key does."""
    time_ms, type_, _what = event
    return (time_ms, type_, {"expires": "when_superseded"}) if type_ == "RETAINED" else event


def _group(found: Timeline, name: str, group: GroupStory) -> rpc.GroupTraced:
    state = found.states[name]
    return (
        name,
        state,
        group.attempts,
        group.consumer,
        group.deadline_ms,
        group.retry_at_ms if state == "retrying" else 0,
        group.reason,
    )


def _summary(found: Timeline) -> Summary:
    last_ms, last_type, _what = next(
        event for event in reversed(found.events) if event[1] != "RETAINED"
    )
    return Summary(
        Offset(found.offset),
        found.message_id,
        found.status,
        found.states,
        found.attempts,
        found.events[0][0],
        last_ms,
        last_type,
    )
