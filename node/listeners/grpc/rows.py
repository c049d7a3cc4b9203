"""A message as a client publishes it, made ready to be stored with others in one batch."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from goqueue.wire.batch import DEFAULT, LANE_NORMAL, LANES, Headers, encode_columns
from goqueue.wire.compression import Codec
from goqueue.wire.errors import (
    DelayTooLong,
    KeyRequired,
    PayloadTooLarge,
    UnknownPartition,
)
from goqueue.wire.ids import validate_topic_name
from goqueue.wire.layout import RELATIVE_BELOW
from goqueue.wire.partitioner import partition_for
from node.api.broker import Broker
from node.api.records import AppendResult
from node.api.spans import TRACEPARENT, Carried
from node.http.budget.slices import in_thread
from node.http.messages.trace_context import as_headers
from node.http.text.errors import BadMessage
from node.listeners.grpc.call import Rpc
from node.listeners.grpc.names import InvalidPartition
from node.listeners.grpc.protocol import goqueue_pb2 as pb
from node.listeners.grpc.times import duration_ms, time_ms

ROW_BYTES = 256
"""What the objects of one message come to beside its bytes."""
HEADER_FRAME_BYTES = 6
COMPRESSED_APART_BYTES = 16 * 1024
"""From so many bytes on a thread compresses them."""

Published = pb.PublishRequest | pb.PublishStreamRequest


@dataclass(slots=True)
class Producer:
    """Whose message it is, and which of that producer's: 0 is nobody's."""

    id: int = 0
    epoch: int = 0
    sequence: int = 0


@dataclass(slots=True)
class Row:
    """One message, checked as far as the topic need not be known. `partition` None is any."""

    topic: str
    partition: int | None
    key: bytes | None
    value: bytes
    headers: Headers
    lane: int
    deliver_at: int | None
    producer: Producer

    @property
    def size_bytes(self) -> int:
        framed = sum(
            HEADER_FRAME_BYTES + len(name.encode()) + len(text) for name, text in self.headers
        )
        return len(self.value) + len(self.key or b"") + framed


def row_of(given: Published, headers_max: int, carried: Carried | None) -> Row:
    """Raises BadMessage, BadName, InvalidPartition. A message without a trace context of its own
    gets the call's."""
    if len(given.headers) > headers_max:
        raise BadMessage(f"{len(given.headers)} headers: at most {headers_max}")
    if "" in given.headers:
        raise BadMessage("a header without a name")
    headers: Headers = tuple((name, text.encode()) for name, text in given.headers.items())
    if carried is not None and TRACEPARENT not in given.headers:
        headers = (*headers, *as_headers(carried))
    lane = given.priority if given.HasField("priority") else LANE_NORMAL
    if not 0 <= lane < len(LANES):
        raise BadMessage(f"priority {lane}: 0 ({LANES[0]}) to {len(LANES) - 1} ({LANES[-1]})")
    if given.partition < 0:
        raise InvalidPartition(f"partition {given.partition}: 0, for any, or a partition's number")
    if given.producer_id < 0 or given.producer_epoch < 0 or given.sequence < 0:
        raise BadMessage("producer_id, producer_epoch and sequence are from 0 on")
    return Row(
        validate_topic_name(given.topic),
        given.partition or None,
        given.key or None,
        given.value,
        headers,
        lane,
        _deliver_at(given),
        Producer(given.producer_id, given.producer_epoch, given.sequence),
    )


def place_of(broker: Broker, row: Row, now_ms: int) -> int:
    """The partition that the row goes to: the one that it names, else by its key, else the one
    whose turn it is. Raises what the topic has against it: UnknownTopic, UnknownPartition,
    KeyRequired, DelayTooLong, PayloadTooLarge."""
    topics, topic = broker.topics, row.topic
    count = topics.partition_count(topic)
    if row.key is None and topics.is_compacted(topic):
        raise KeyRequired
    if row.deliver_at is not None:
        most_ms, cell = topics.delay_ms_max(topic), row.deliver_at
        delay_ms = cell if cell < RELATIVE_BELOW else cell - now_ms
        if delay_ms > most_ms:
            text = f"a delay of {delay_ms} ms: the topic takes at most {most_ms}"
            raise DelayTooLong(text, limit_ms=most_ms)
    _check_size(row, min(topics.max_message_bytes(topic), DEFAULT.value_bytes_max))
    if row.partition is not None:
        if row.partition >= count:
            raise UnknownPartition(topic, row.partition)
        return row.partition
    if row.key is not None:
        return partition_for(row.key, count)
    return broker.records.pick_partition(topic, 1)


async def append(rpc: Rpc, topic: str, partition: int, rows: Sequence[Row]) -> AppendResult:
    """Store them in one batch; a row of a producer's is by itself. Raises what `Records.append`
    does."""
    codec = Codec.named(rpc.broker.topics.compression(topic))
    encode = partial(_encoded, rows, codec, now_ms())
    size = sum(len(row.value) for row in rows)
    is_long = codec is not Codec.NONE and size > COMPRESSED_APART_BYTES
    batch = await in_thread(encode) if is_long else encode()
    deadline_s = rpc.deadline_s(rpc.desk.parts.limits.append_deadline_s)
    return await rpc.desk.requests.append(rpc.caller, topic, partition, batch, deadline_s)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def _encoded(rows: Sequence[Row], codec: Codec, stored_ms: int) -> bytes:
    keys = [row.key for row in rows]
    headers = [row.headers for row in rows]
    times = [row.deliver_at for row in rows]
    producer = rows[0].producer
    return encode_columns(
        [row.value for row in rows],
        keys if any(key is not None for key in keys) else None,
        timestamps_ms=stored_ms,
        lanes=[row.lane for row in rows],
        headers=headers if any(headers) else None,
        deliver_at_ms=times if any(at is not None for at in times) else None,
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        base_sequence=producer.sequence if producer.id else 0,
        codec=codec,
    )


def _deliver_at(given: Published) -> int | None:
    """A delay as it is, to be counted from log time, or a moment; None for at once."""
    delay = duration_ms(given.delay, "delay") if given.HasField("delay") else None
    if isinstance(given, pb.PublishStreamRequest) or not given.HasField("deliver_at"):
        return delay or None
    if delay is not None:
        raise BadMessage("delay and deliver_at exclude each other")
    moment = time_ms(given.deliver_at, "deliver_at")
    return moment if moment >= RELATIVE_BELOW else None


def _check_size(row: Row, bytes_max: int) -> None:
    if len(row.key or b"") > DEFAULT.key_bytes_max:
        raise PayloadTooLarge(f"key over {DEFAULT.key_bytes_max} bytes")
    size = row.size_bytes
    if size > bytes_max:
        raise PayloadTooLarge(f"message of {size} bytes: at most {bytes_max}", limit=bytes_max)
    framed = size - len(row.value) - len(row.key or b"")
    if framed > DEFAULT.headers_bytes_max:
        raise PayloadTooLarge(f"headers over {DEFAULT.headers_bytes_max} bytes")
