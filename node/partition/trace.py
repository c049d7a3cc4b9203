"""One message's timeline as nodes tell each other, and as the HTTP front shows it."""

from __future__ import annotations

from delivery.timeline.groups import GroupStory, TimelineEvent
from delivery.timeline.message import Timeline
from goqueue.wire.types import Offset
from node.api.traces import GroupTrace, MessageTrace, TraceEvent
from node.partition.host import PartitionHost
from node.partition.timeline_lookup import look_up
from node.rpc import partitions as rpc


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
