"""One message's timeline, read from its partition's log.

PUBLISHED is the entry itself; REPLICATED's nodes come from what later entries' frames say every
voter had matched, or, at the log's tail, from the live leader; RETAINED follows from the topic.
"""

from __future__ import annotations

from goqueue.wire.batch import LANES, RecordBatch
from goqueue.wire.errors import NotFound
from goqueue.wire.types import Index, Offset
from log.entry import Entry
from node import rpc
from node.http.broker import MessageTrace, TraceEvent
from node.partition import PartitionHost
from node.partition_reader import stored_batches

LATER_ENTRIES_MAX = 256
"""Frames after the message's that are looked at for who had it; the leader knows the rest."""

Attributes = dict[str, str | int | list[str]]
Event = tuple[int, str, Attributes]


def trace_message(host: PartitionHost, offset: Offset) -> rpc.TraceAnswer:
    """What the log says of one applied message. Raises `NotFound`."""
    entry = host.reader.entry_at(offset)
    found = None if entry is None else _row(entry, offset)
    if entry is None or found is None:
        raise NotFound(
            f"no message at offset {offset}", topic=host.topic, partition=host.id.partition
        )
    batch, row = found
    events = [_published(entry, batch, row), _replicated(host, entry)]
    if host.config.retention_ms >= 0:
        expires_ms = entry.time_ms + host.config.retention_ms
        events.append((entry.time_ms, "RETAINED", {"expires_ms": expires_ms}))
    else:
        events.append((entry.time_ms, "RETAINED", {"expires": "never"}))
    return rpc.TraceAnswer(batch.message_ids()[row], events)


def trace_from_answer(
    topic: str, partition: int, offset: Offset, answer: rpc.TraceAnswer
) -> MessageTrace:
    """The view that the HTTP front shows."""
    events = tuple(TraceEvent(time_ms, type_, what) for time_ms, type_, what in answer.events)
    return MessageTrace(topic, partition, offset, answer.message_id, events)


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
            if frame.index > last or len(frame.matches) != len(voters):
                continue
            nodes: list[str] = [
                node
                for node, match in zip(voters, frame.matches, strict=True)
                if match >= entry.index
            ]
            if len(nodes) >= majority:
                return frame.time_ms, "REPLICATED", {"nodes": nodes}
        index = Index(later[-1].index + 1)
    now: list[str] = [node for node, match in host.matches().items() if match >= entry.index]
    return max(entry.time_ms, host.applied_ms(entry.index)), "REPLICATED", {"nodes": now}
