"""Publishing in JSON: rows are given partitions, appended a batch a partition, and answered.

Results stand in the order of the messages, each with its own error. A request fails as a whole
only if its body is unusable, or if nothing in it could be appended for a reason of the cluster's.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from operator import itemgetter
from typing import TypeVar

from aiohttp import web

from goqueue.wire.batch import LANE_NORMAL, encode_columns
from goqueue.wire.compression import Codec
from goqueue.wire.errors import (
    BadRequest,
    GoQueueError,
    ServerError,
    UnknownPartition,
)
from goqueue.wire.partitioner import partition_for
from node.api.broker import Broker
from node.http.budget.memory import Kind, Reserved
from node.http.messages import batches
from node.http.messages.any_object import as_message
from node.http.messages.columns import Rows, check_delays, check_keys, check_sizes, identify_single
from node.http.messages.request_spans import traced_request
from node.http.messages.results import PartitionRows, publish_answer, refused_results
from node.http.messages.rows import read_rows, rows_bytes
from node.http.messages.sharing import Outcome, apart, may_share, together
from node.http.messages.trace_context import of_request, stamp
from node.http.request.answers import RESULT_BYTES, reserve
from node.http.request.body import off_loop
from node.http.request.call import Call
from node.http.text import json
from node.http.text.errors import error_answer

log = logging.getLogger(__name__)

T = TypeVar("T")

COMPRESSING = 16
"""What compressing a byte takes, in bytes of other work: from 16 KiB on a thread does it."""


async def publish(call: Call) -> web.Response:
    """POST /topics/{topic}/messages: `{"messages": [...]}`, one message, or record batches."""
    if batches.is_batch(call.request):
        return await batches.publish_to_query(call)
    return await _publish(call, base64_values=False)


async def publish_base64(call: Call) -> web.Response:
    """POST /topics/{topic}/publish: as above, but values are base64 unless they say otherwise."""
    return await _publish(call, base64_values=True)


async def _publish(call: Call, *, base64_values: bool) -> web.Response:
    topic = call.topic()
    json.require_json(call.request)
    async with call.body() as whole:
        body = as_message(call, whole)
        with await _room(call, body) as held:
            return await _published(call, topic, body, base64_values, held)


async def _room(call: Call, body: bytes) -> Reserved:
    """For the messages of a body, about. Raises OverBudget."""
    bounds = call.shared.budgets[Kind.ROWS].bounds
    about = rows_bytes(body, call.limits.messages_max)
    return Reserved(await call.room(Kind.ROWS, min(about, bounds.connection, bounds.holder)))


async def _published(
    call: Call, topic: str, body: bytes, base64_values: bool, held: Reserved
) -> web.Response:
    told = traced_request(call)
    size = len(body)
    rows = await read_rows(body, base64_values, call.limits.messages_max, held)
    held.fit()
    _identify(call, rows)
    stamp(rows, of_request(call.request.headers))
    named = [number for number in rows.partitions or () if number is not None]
    count = await call.partition_count(topic, max(named, default=-1) + 1)
    bound = call.broker.topics.max_message_bytes(topic)
    anywhere = _anywhere(rows)
    turn = call.broker.records.pick_partition(topic, anywhere) if anywhere else 0
    check_keys(rows, compacted=call.broker.topics.is_compacted(topic))
    if rows.deliver_at is not None:
        check_delays(rows, call.broker.topics.delay_ms_max(topic), _now_ms())
    parts = await off_loop(size, _group, rows, topic, count, bound, turn)
    if rows.producer_id and rows.errors:
        error = BadRequest("a producer's messages must all be valid: nothing was stored")
        return error_answer(error, {"results": refused_results(rows)})
    codec = Codec.named(call.broker.topics.compression(topic))
    await reserve(call, RESULT_BYTES * len(rows))
    if len(parts) == 1 and parts[0].rows is None and may_share(rows, size):
        with await call.room(Kind.APPENDS, size):
            await _append_shared(call, topic, parts[0], rows, size, codec)
    else:
        work = size if codec is Codec.NONE else size * COMPRESSING
        encoded = await off_loop(work, _encode_all, rows, parts, codec)
        with await call.room(Kind.APPENDS, sum(map(len, encoded))):
            await _append_all(call, topic, parts, encoded)
    if told is not None:
        told.published(topic, rows, parts)
    return await off_loop(size, publish_answer, topic, rows, parts)


def _identify(call: Call, rows: Rows) -> None:
    keys = call.request.headers.getall("Idempotency-Key", ())
    if len(keys) > 1:
        raise BadRequest("more than one Idempotency-Key")
    if keys:
        identify_single(rows, keys[0])


def _group(
    rows: Rows, topic: str, count: int, message_bytes_max: int, turn: int
) -> list[PartitionRows]:
    check_sizes(rows, message_bytes_max)
    return _route(rows, topic, count, turn)


def _route(rows: Rows, topic: str, count: int, turn: int) -> list[PartitionRows]:
    """Rows by partition: the one asked for, else by key, else by message id, else the `turn`."""
    keys, asked, ids = rows.keys, rows.partitions, rows.message_ids
    if keys is None and asked is None and ids is None and not rows.errors:
        return [PartitionRows(turn, None)]
    picked: defaultdict[int, list[int]] = defaultdict(list)
    if keys is not None and asked is None and ids is None and not rows.errors:
        for row, key in enumerate(keys):
            picked[turn if key is None else partition_for(key, count)].append(row)
    else:
        for row in range(len(rows)):
            if row not in rows.errors:
                partition = _partition(rows, row, count, turn)
                if 0 <= partition < count:
                    picked[partition].append(row)
                else:
                    rows.errors[row] = UnknownPartition(topic, partition)
    return [
        PartitionRows(partition, None if len(chosen) == len(rows) else chosen)
        for partition, chosen in sorted(picked.items())
    ]


def _partition(rows: Rows, row: int, count: int, turn: int) -> int:
    asked = rows.partitions[row] if rows.partitions else None
    if asked is not None:
        return asked
    key = rows.keys[row] if rows.keys else None
    if key is not None:
        return partition_for(key, count)
    message_id = rows.message_ids[row] if rows.message_ids else None
    return turn if message_id is None else partition_for(message_id.encode(), count)


def _encode_all(rows: Rows, parts: list[PartitionRows], codec: Codec) -> list[bytes]:
    now_ms = _now_ms()
    return [_encode(rows, part, now_ms, len(parts), codec) for part in parts]


def _anywhere(rows: Rows) -> int:
    """How many of them may go to any partition, about; 0 only where none may."""
    told = (rows.keys, rows.partitions, rows.message_ids)
    return min((column.count(None) for column in told if column is not None), default=len(rows))


async def _append_shared(
    call: Call, topic: str, part: PartitionRows, rows: Rows, size: int, codec: Codec
) -> None:
    """In one batch with what others publish to the partition in this turn of the loop."""
    broker, deadline_s = call.broker, call.limits.append_deadline_s

    async def append(parts: Sequence[Rows]) -> list[Outcome]:
        whole = PartitionRows(part.partition, None)
        shared = together(parts)
        plain_bytes = sum(map(len, shared.values))
        work = plain_bytes if codec is Codec.NONE else plain_bytes * COMPRESSING
        try:
            encoded = await off_loop(work, _encode, shared, whole, _now_ms(), 1, codec)
        except GoQueueError:
            if len(parts) == 1:
                raise
            return await _append_apart(append, parts)  # one of them can't be stored
        await _append(broker, topic, whole, encoded, deadline_s)
        assert whole.outcome is not None
        return apart(whole.outcome, parts)

    line = (topic, part.partition, call.owner.holder, codec)
    part.outcome = await call.shared.turn.join(line, rows, append, items=len(rows), size_bytes=size)


async def _append_apart(
    append: Callable[[Sequence[Rows]], Awaitable[list[Outcome]]], parts: Sequence[Rows]
) -> list[Outcome]:
    found: list[Outcome] = []
    for part in parts:
        try:
            found += await append([part])
        except GoQueueError as error:
            found.append(error)
    return found


async def _append_all(
    call: Call, topic: str, parts: list[PartitionRows], batches: list[bytes]
) -> None:
    deadline_s = call.limits.append_deadline_s
    appends = [
        _append(call.broker, topic, part, batch, deadline_s)
        for part, batch in zip(parts, batches, strict=True)
    ]
    if len(appends) == 1:
        await appends[0]
    else:
        await asyncio.gather(*appends)


async def _append(
    broker: Broker, topic: str, part: PartitionRows, batch: bytes, deadline_s: float
) -> None:
    try:
        part.outcome = await broker.records.append(
            topic, part.partition, batch, deadline_s=deadline_s, validated=True
        )
    except GoQueueError as error:
        part.outcome = error
    except Exception:
        log.exception("append failed", extra={"topic": topic, "partition": part.partition})
        part.outcome = ServerError()


def _encode(rows: Rows, part: PartitionRows, now_ms: int, groups: int, codec: Codec) -> bytes:
    sequence = _base_sequence(rows, part, groups)
    lanes: int | list[int] = LANE_NORMAL
    if rows.lanes is not None:
        picked = _pick(rows.lanes, part.rows)
        lanes = [LANE_NORMAL if lane is None else lane for lane in picked]
    return encode_columns(
        _pick(_values(rows), part.rows),
        None if rows.keys is None else _pick(rows.keys, part.rows),
        timestamps_ms=now_ms,
        lanes=lanes,
        headers=None if rows.headers is None else _pick(rows.headers, part.rows),
        deliver_at_ms=None if rows.deliver_at is None else _pick(rows.deliver_at, part.rows),
        expires_at_ms=None if rows.expires_at is None else _pick(rows.expires_at, part.rows),
        message_ids=None if rows.message_ids is None else _pick(rows.message_ids, part.rows),
        producer_id=rows.producer_id,
        producer_epoch=rows.producer_epoch,
        base_sequence=sequence,
        codec=codec,
    )


def _values(rows: Rows) -> list[bytes | None]:
    values: list[bytes | None] = rows.values  # type: ignore[assignment]
    if rows.nulls:
        values = list(values)
        for row in rows.nulls:
            values[row] = None
    return values


def _base_sequence(rows: Rows, part: PartitionRows, groups: int) -> int:
    if not rows.producer_id:
        return 0
    if rows.sequences is None or rows.single:
        if rows.sequence is None:
            raise BadRequest(
                "producer_id needs a sequence: one for the request, or one for each message"
            )
        if groups > 1:
            raise BadRequest(
                "a request's sequence covers one partition, and these messages go to several"
            )
        first = rows.sequence
    else:
        picked = _pick(rows.sequences, part.rows)
        start = picked[0]
        if start is None or picked != list(range(start, start + len(picked))):
            raise BadRequest(
                "sequences of a partition's messages must follow each other",
                partition=part.partition,
            )
        first = start
    if not 0 <= first < 2**63:
        raise BadRequest("sequence out of range")
    return first


def _pick(column: list[T], rows: Sequence[int] | None) -> list[T]:
    if rows is None:
        return column
    if len(rows) == 1:
        return [column[rows[0]]]
    return list(itemgetter(*rows)(column))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
