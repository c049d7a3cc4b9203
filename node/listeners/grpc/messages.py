"""Stored messages as clients are shown them."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence

from goqueue.wire.batch import Headers, Record, RecordBatch, resolve_ms
from node.api.queue import QueuedMessage
from node.api.records import Slice, StoredBatch
from node.api.spans import TRACEPARENT
from node.listeners.grpc.protocol import goqueue_pb2 as pb
from node.listeners.grpc.times import put_time

BASE64_HEADERS = "goqueue-base64-headers"
"""Names the headers whose values are no text, and so are shown in base64. It is never stored."""
_TRACE_ID = slice(3, 35)

Parsed = list[tuple[StoredBatch, RecordBatch]]


def queued(message: QueuedMessage) -> pb.Message:
    """With its receipt."""
    told = pb.Message(
        topic=message.topic,
        partition=message.partition,
        offset=message.offset,
        key=message.key or b"",
        value=message.value,
        priority=message.lane,
        retry_count=max(0, message.attempt - 1),
        receipt_handle=message.receipt,
    )
    put_time(told.timestamp, message.time_ms)
    if message.deliver_at_ms is not None:
        put_time(told.deliver_at, message.deliver_at_ms)
    _put_headers(told, message.headers)
    return told


def read_messages(
    topic: str, partition: int, found: Slice, batches: Parsed, offset: int, limit: int
) -> tuple[list[pb.Message], int]:
    """The first `limit` of them from the offset on, and where reading goes on. Raises BatchError,
    as `parsed` does."""
    told: list[pb.Message] = []
    following = max(offset, found.next_offset)
    start = max(offset, found.log_start)
    for stored, batch in batches:
        for at, record in _rows(stored, batch, start):
            if len(told) == limit:
                return told, at
            told.append(_read(topic, partition, at, record, stored.time_ms))
    return told, following


def parsed(found: Slice) -> Parsed:
    """Its batches, each parsed. Raises BatchError for damage that nobody has noticed before."""
    return [(stored, RecordBatch.parse(stored.batch)) for stored in found.batches]


def plain_bytes(batches: Parsed) -> int:
    """What they come to, stored and decompressed together."""
    return sum(len(batch.buffer) + batch.header.values_plain_bytes for _, batch in batches)


def in_answers(messages: Sequence[pb.Message], bytes_max: int) -> Iterator[list[pb.Message]]:
    """Runs of them that clients take in one message; one is always in it, however large."""
    run, size = list[pb.Message](), 0
    for message in messages:
        own = message.ByteSize() + 8
        if run and size + own > bytes_max:
            yield run
            run, size = [], 0
        run.append(message)
        size += own
    if run:
        yield run


def _rows(stored: StoredBatch, batch: RecordBatch, start: int) -> Iterator[tuple[int, Record]]:
    first = max(0, start - stored.base_offset)
    if first >= batch.count:
        return
    for number, record in enumerate(batch.records()[first:], first):
        yield stored.base_offset + number, record


def _read(topic: str, partition: int, offset: int, record: Record, stored_ms: int) -> pb.Message:
    told = pb.Message(
        topic=topic,
        partition=partition,
        offset=offset,
        key=record.key or b"",
        value=record.value or b"",
        priority=record.lane,
    )
    put_time(told.timestamp, stored_ms)
    due_ms = resolve_ms(record.deliver_at_ms, stored_ms)
    if due_ms is not None:
        put_time(told.deliver_at, due_ms)
    _put_headers(told, record.headers)
    return told


def _put_headers(told: pb.Message, headers: Headers) -> None:
    encoded: list[str] = []
    for name, value in headers:
        try:
            text = value.decode()
        except UnicodeDecodeError:
            text = base64.b64encode(value).decode()
            encoded.append(name)
        told.headers[name] = text
        if name == TRACEPARENT:
            told.trace_id = text[_TRACE_ID]
    if encoded:
        told.headers[BASE64_HEADERS] = ",".join(encoded)
