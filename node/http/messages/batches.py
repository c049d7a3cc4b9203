"""Record batches on the wire as they are stored: the fast road in and out for libraries."""

from __future__ import annotations

import asyncio

from aiohttp import web

from goqueue.wire.batch import BATCH_MEDIA_TYPE, RecordBatch, split_batches
from goqueue.wire.errors import (
    BadRequest,
    GoQueueError,
    PayloadTooLarge,
    UnknownPartition,
    UnsupportedMediaType,
)
from goqueue.wire.ids import PARTITIONS_MAX
from goqueue.wire.stream import (
    END_OFFSET_HEADER,
    LOG_START_HEADER,
    NEXT_OFFSET_HEADER,
    STALE_HEADER,
    TOPIC_ID_HEADER,
    frame_header,
)
from node.api.records import AppendResult, Slice
from node.http.budget.limits import MIB
from node.http.budget.memory import Kind
from node.http.messages.request_spans import traced_request
from node.http.messages.results import RowResult
from node.http.request.answers import Part, in_parts
from node.http.request.body import off_loop
from node.http.request.call import Call, answer
from node.http.text.errors import parts_failed_answer, result_of

BATCHES_MAX = 1024
PLAIN_BYTES_MAX = 64 * MIB
"""Of one request: four times the largest body, so that compression pays but bombs do not."""


def is_batch(request: web.BaseRequest) -> bool:
    """Whether the body says that it is record batches."""
    told = request.headers.get("Content-Type", "")
    return told.partition(";")[0].strip().lower() == BATCH_MEDIA_TYPE


async def publish_to_partition(call: Call) -> web.Response:
    """POST /topics/{topic}/partitions/{partition}/messages with one or more record batches."""
    if not is_batch(call.request):
        told = call.request.headers.get("Content-Type", "")
        raise UnsupportedMediaType(f"Content-Type {told[:80]!r} is not {BATCH_MEDIA_TYPE}")
    return await _publish(call, call.partition())


async def publish_to_query(call: Call) -> web.Response:
    """POST /topics/{topic}/messages?partition= with record batches."""
    text = call.query.get("partition", "")
    if not (text.isascii() and text.isdigit() and len(text) <= 10):
        raise BadRequest(f"{BATCH_MEDIA_TYPE} needs ?partition=, a number from 0")
    return await _publish(call, min(int(text), PARTITIONS_MAX))


def slice_answer(call: Call, found: Slice) -> web.Response:
    """Stored batches as frames; the headers say where reading goes on. Raises OverBudget."""
    parts: list[Part] = []
    size = 0
    for stored in found.batches:
        head = frame_header(stored.base_offset, stored.time_ms, len(stored.batch))
        parts += (head, stored.batch)
        size += len(head) + len(stored.batch)
    headers = {
        "Content-Type": BATCH_MEDIA_TYPE,
        NEXT_OFFSET_HEADER: str(found.next_offset),
        LOG_START_HEADER: str(found.log_start),
        END_OFFSET_HEADER: str(found.end_offset),
    }
    if found.topic_id is not None:
        headers[TOPIC_ID_HEADER] = str(found.topic_id)
    if found.stale:
        headers[STALE_HEADER] = "true"
    return in_parts(call, parts, headers, size, call.hold(Kind.ANSWERS, size))


async def _publish(call: Call, partition: int) -> web.Response:
    topic = call.topic()
    told = traced_request(call)
    if "Idempotency-Key" in call.request.headers:
        raise BadRequest(
            "Idempotency-Key is for a single message in JSON: batches hold message ids"
        )
    async with call.body() as body:
        batches = await _checked(call, body)
        if partition >= await call.partition_count(topic, partition + 1):
            raise UnknownPartition(topic, partition)
        _check_sizes(batches, call.broker.topics.max_message_bytes(topic))
        with await call.room(Kind.APPENDS, sum(len(batch.buffer) for batch in batches)):
            outcomes = await _append_all(call, topic, partition, batches)
    if told is not None:
        told.published_batches(topic, batches)
    return call.tell_leader(_answer(partition, batches, outcomes), topic, partition)


async def _append_all(
    call: Call, topic: str, partition: int, batches: list[RecordBatch]
) -> list[AppendResult | BaseException]:
    return await asyncio.gather(
        *(
            call.broker.records.append(
                topic,
                partition,
                batch.buffer,
                deadline_s=call.limits.append_deadline_s,
                validated=True,
            )
            for batch in batches
        ),
        return_exceptions=True,
    )


async def _checked(call: Call, body: bytes) -> list[RecordBatch]:
    """The batches, every column checked; bounded in what they decompress to all together."""
    batches = await off_loop(len(body), _split, body)
    plain_bytes = sum(batch.header.values_plain_bytes for batch in batches)
    if plain_bytes > PLAIN_BYTES_MAX:
        raise PayloadTooLarge(
            f"batches of {plain_bytes} bytes decompressed: at most {PLAIN_BYTES_MAX}",
            limit=PLAIN_BYTES_MAX,
        )
    with await call.room(Kind.ROWS, plain_bytes):
        await off_loop(plain_bytes, _validate, batches)
    return batches


def _split(body: bytes) -> list[RecordBatch]:
    batches: list[RecordBatch] = []
    for view in split_batches(body):
        if len(batches) == BATCHES_MAX:
            raise PayloadTooLarge(f"more than {BATCHES_MAX} batches", limit=BATCHES_MAX)
        try:
            batches.append(RecordBatch.parse(view))
        except GoQueueError as error:
            error.data["batch"] = len(batches)
            raise
    if not batches:
        raise BadRequest("the body holds no batch")
    return batches


def _validate(batches: list[RecordBatch]) -> None:
    for number, batch in enumerate(batches):
        try:
            batch.validate()
        except GoQueueError as error:
            error.data["batch"] = number
            raise


def _check_sizes(batches: list[RecordBatch], message_bytes_max: int) -> None:
    for number, batch in enumerate(batches):
        if max(batch.value_lengths()) > message_bytes_max:
            raise PayloadTooLarge(
                f"a value over the topic's {message_bytes_max} bytes",
                limit=message_bytes_max,
                batch=number,
            )


def _answer(
    partition: int,
    batches: list[RecordBatch],
    outcomes: list[AppendResult | BaseException],
) -> web.Response:
    results: list[dict[str, object]] = []
    failed: list[GoQueueError] = []
    for batch, outcome in zip(batches, outcomes, strict=True):
        if isinstance(outcome, AppendResult):
            result: dict[str, object] = {
                "partition": partition,
                "offset": outcome.base_offset,
                "count": outcome.count,
                "duplicate": outcome.duplicate,
                "timestamp_ms": outcome.time_ms,
                "durability": outcome.durability,
            }
            if outcome.rows is not None:
                result["rows"] = [RowResult(offset, known) for offset, known in outcome.rows]
        elif isinstance(outcome, GoQueueError):
            failed.append(outcome)
            result = {**result_of(outcome, partition), "count": batch.count}
        else:
            raise outcome
        results.append(result)
    if len(failed) == len(results):
        return parts_failed_answer(failed, {"results": results})
    return answer({"results": results})
