"""One message's timeline, read from its partition's log.

PUBLISHED is the entry itself; REPLICATED's nodes come from what later entries' frames say every
voter had matched, or, at the log's tail, from the live leader; RETAINED follows from the topic.
When a message was replicated is remembered for the newest entries. For another, the next entry's
time is the latest it can have been; `time` says so where it came much later. What the queue did
with it follows: see `node.queue_events`. A message that outlives the log before it is told of from
the entry that carries it.
"""

from __future__ import annotations

from goqueue.wire.batch import LANES, RecordBatch, resolve_ms
from goqueue.wire.errors import NotFound
from goqueue.wire.types import Index, Offset
from log.entry import Entry
from node import rpc
from node.http.broker import MessageTrace, TraceEvent
from node.partition import PartitionHost
from node.partition_reader import stored_batches
from node.queue_events import Attributes, Event, queue_events

NOTABLE_MS = 1000
"""A later entry's time is told as it stands when it came sooner than this after the message."""
LATER_ENTRIES_MAX = 256
"""Frames after the message's that are looked at for who had it; the leader knows the rest."""


async def trace_message(host: PartitionHost, offset: Offset) -> rpc.TraceAnswer:
    """What the log says of one applied message. Raises `NotFound`."""
    entry = host.reader.entry_at(offset)
    found = None if entry is None else _row(entry, offset)
    if entry is None or found is None:
        carried = host.state.queue.held_in(offset)
        if carried is not None:
            return await _trace_carried(host, offset, Index(carried))
        raise NotFound(
            f"no message at offset {offset}", topic=host.topic, partition=host.id.partition
        )
    batch, row = found
    replicated = _replicated(host, entry)
    expiry: Attributes = {"expires": "never"}
    if host.config.retention_ms >= 0:
        expiry = {"expires_ms": entry.time_ms + host.config.retention_ms}
    retained = (replicated[0], "RETAINED", expiry)
    due_ms = resolve_ms(batch.deliver_at()[row], entry.time_ms)
    expires_ms = resolve_ms(batch.expires_at()[row], entry.time_ms)
    if expires_ms is None:
        expires_ms = _topic_expiry(host, entry.time_ms)
    events = [_published(entry, batch, row), replicated, retained]
    events += _times(host, offset, entry.time_ms, due_ms, expires_ms)
    events += await queue_events(host, offset, entry.index, due_ms, expires_ms)
    return rpc.TraceAnswer(batch.message_ids()[row], _in_order(events))


async def _trace_carried(host: PartitionHost, offset: Offset, index: Index) -> rpc.TraceAnswer:
    row = host.messages.rows([offset], 1)[0]
    if row is None:
        raise NotFound(f"message {offset} can't be read now", topic=host.topic, offset=offset)
    what: Attributes = {"lane": LANES[row.lane]}
    if row.key is not None:
        what["key"] = row.key.decode("utf-8", "backslashreplace")
    events: list[Event] = [(row.time_ms, "PUBLISHED", what)]
    expires_ms = row.expires_at_ms or _topic_expiry(host, row.time_ms)
    events += _times(host, offset, row.time_ms, row.deliver_at_ms, expires_ms)
    carrier = host.log.entry(index)
    events.append((carrier.time_ms, "CARRIED", {"log_start": host.state.log_start_offset}))
    events += await queue_events(host, offset, index, row.deliver_at_ms, expires_ms)
    return rpc.TraceAnswer(row.message_id, _in_order(events))


def _times(
    host: PartitionHost, offset: Offset, time_ms: int, due_ms: int | None, expires_ms: int | None
) -> list[Event]:
    """What was to happen to the message at some time: its delay, and its expiry once it is over."""
    events: list[Event] = []
    if due_ms is not None and due_ms > time_ms:
        events.append((time_ms, "DELAYED", {"deliver_at_ms": due_ms}))
    if expires_ms is not None and host.state.queue.state_of(offset) == "expired":
        events.append((expires_ms, "EXPIRED", {}))
    return events


def _topic_expiry(host: PartitionHost, time_ms: int) -> int | None:
    ttl_ms = host.state.queue.config.ttl_ms
    return time_ms + ttl_ms if ttl_ms else None


def _in_order(events: list[Event]) -> list[Event]:
    return sorted(events, key=lambda event: event[0])


def trace_from_answer(
    topic: str, partition: int, offset: Offset, answer: rpc.TraceAnswer
) -> MessageTrace:
    """The view that the HTTP front shows."""
    events = tuple(TraceEvent(time_ms, type_, what) for time_ms, type_, what in answer.events)
    attempts = sum(event.type == "DELIVERED" for event in events)
    return MessageTrace(topic, partition, offset, answer.message_id, events, attempts)


def _row(entry: Entry, offset: Offset) -> tuple[RecordBatch, int] | None:
    for base, count, batch in stored_batches(entry):
        if base <= offset < base + count:
            return RecordBatch.parse(batch), offset - base
    return None


def _published(entry: Entry, batch: RecordBatch, row: int) -> Event:
    what: Attributes = {}
    if batch.producer_id:
        what["producer"] = batch.producer_id
        what["sequence"] = batch.base_sequence + row
    what["lane"] = LANES[batch.lanes()[row]]
    key = batch.keys()[row]
    if key is not None:
        what["key"] = key.decode("utf-8", "backslashreplace")
    what["produced_at_ms"] = batch.timestamps_ms()[row]
    return entry.time_ms, "PUBLISHED", what


def _replicated(host: PartitionHost, entry: Entry) -> Event:
    """The first later frame by which a majority had the entry, or what the leader sees now."""
    voters = [voter.node for voter in host.voters]
    majority = len(voters) // 2 + 1
    last = min(host.applied_index, entry.index + LATER_ENTRIES_MAX)
    index = Index(entry.index + 1)
    while index <= last:
        later = host.log.entries(index, max_bytes=1 << 20, max_count=LATER_ENTRIES_MAX)
        for frame in later:
            other_voters = frame.index <= host.group.configuration.index
            if frame.index > last or other_voters or len(frame.matches) != len(voters):
                continue
            nodes: list[str] = [
                node
                for node, match in zip(voters, frame.matches, strict=True)
                if match >= entry.index
            ]
            if len(nodes) >= majority:
                return _when(host, entry, frame.time_ms, nodes)
        index = Index(later[-1].index + 1)
    now: list[str] = [node for node, match in host.matches().items() if match >= entry.index]
    return _when(host, entry, None, now)


def _when(host: PartitionHost, entry: Entry, latest_ms: int | None, nodes: list[str]) -> Event:
    """REPLICATED at the time remembered, else at the latest possible one."""
    applied_ms = host.applied_ms(entry.index)
    if applied_ms:
        return max(entry.time_ms, applied_ms), "REPLICATED", {"nodes": nodes}
    if latest_ms is None:
        return entry.time_ms, "REPLICATED", {"nodes": nodes, "time": "not_recorded"}
    if latest_ms - entry.time_ms < NOTABLE_MS:
        return latest_ms, "REPLICATED", {"nodes": nodes}
    return latest_ms, "REPLICATED", {"nodes": nodes, "time": "at_latest"}
