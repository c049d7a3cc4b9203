"""Publishing in JSON: rows are given partitions, appended a batch a partition, and answered.

Results stand in the order of the messages, each with its own error. A request fails as a whole
only if its body is unusable, or if nothing in it could be appended for a reason of the cluster's.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from aiohttp import web
from msgspec import UNSET, Struct, UnsetType

from goqueue.wire.batch import LANE_NORMAL, encode_columns
from goqueue.wire.errors import (
    BadRequest,
    GoQueueError,
    ServerError,
    UnknownPartition,
)
from goqueue.wire.partitioner import partition_for
from node.http import batches, json
from node.http.broker import AppendResult, Broker
from node.http.call import Call, answer, answer_bytes
from node.http.errors import encode_error, error_answer, result_of
from node.http.messages import Rows, check_sizes, decode_rows, lane_name
from node.http.times import format_time

log = logging.getLogger(__name__)

T = TypeVar("T")


class Result(Struct):
    """One message's place, or `offset` -1 and what every error holds."""

    partition: int
    offset: int
    count: int | UnsetType = UNSET
    duplicate: bool | UnsetType = UNSET
    priority: str | UnsetType = UNSET
    timestamp_ms: int | UnsetType = UNSET
    durability: str | UnsetType = UNSET
    error: str | UnsetType = UNSET
    status: int | UnsetType = UNSET
    code: str | UnsetType = UNSET
    retriable: bool | UnsetType = UNSET
    outcome: str | UnsetType = UNSET


class PublishAnswer(Struct):
    """Results in the order of the messages (or batches); for one message its fields as well."""

    results: list[Result]
    topic: str | UnsetType = UNSET
    id: str | UnsetType = UNSET
    partition: int | UnsetType = UNSET
    offset: int | UnsetType = UNSET
    timestamp: str | UnsetType = UNSET
    duplicate: bool | UnsetType = UNSET
    priority: str | UnsetType = UNSET
    durability: str | UnsetType = UNSET


@dataclass(slots=True)
class _Group:
    """The rows of one partition; `rows` None means all of them, in order."""

    partition: int
    rows: Sequence[int] | None
    outcome: AppendResult | GoQueueError | None = None


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
    async with call.body() as body:
        rows = decode_rows(body, base64_values=base64_values, messages_max=call.limits.messages_max)
        count = await call.partition_count(topic)
        check_sizes(rows, call.broker.max_message_bytes(topic))
        groups = _route(rows, topic, count, call)
        if rows.producer_id and rows.errors:
            error = BadRequest(
                "with a producer_id all messages must be valid; nothing was appended"
            )
            return error_answer(error, {"results": _render_errors(rows)})
        await _append_all(call, topic, rows, groups)
    return _answer(topic, rows, groups)


def _route(rows: Rows, topic: str, count: int, call: Call) -> list[_Group]:
    """Rows by partition: the one asked for, else by key, else by message id, else by turn."""
    keys, asked, ids, errors = rows.keys, rows.partitions, rows.message_ids, rows.errors
    turn = call.shared.next_turn() % count
    if keys is None and asked is None and ids is None and not errors:
        return [_Group(turn, None)]
    by_partition: dict[int, list[int]] = {}
    for row in range(len(rows)):
        if row in errors:
            continue
        partition = asked[row] if asked else None
        if partition is None:
            key = keys[row] if keys else None
            message_id = ids[row] if ids else None
            if key is not None:
                partition = partition_for(key, count)
            elif message_id is not None:
                partition = partition_for(message_id.encode(), count)
            else:
                partition = turn
        elif not 0 <= partition < count:
            errors[row] = UnknownPartition(topic, partition)
            continue
        by_partition.setdefault(partition, []).append(row)
    return [_Group(partition, picked) for partition, picked in by_partition.items()]


async def _append_all(call: Call, topic: str, rows: Rows, groups: list[_Group]) -> None:
    now_ms = time.time_ns() // 1_000_000
    encoded = [_encode(rows, group, now_ms, len(groups)) for group in groups]
    deadline_s = call.limits.append_deadline_s
    appends = [
        _append(call.broker, topic, group, batch, deadline_s)
        for group, batch in zip(groups, encoded, strict=True)
    ]
    if len(appends) == 1:
        await appends[0]
    else:
        await asyncio.gather(*appends)


async def _append(
    broker: Broker, topic: str, group: _Group, batch: bytes, deadline_s: float
) -> None:
    try:
        group.outcome = await broker.append(
            topic, group.partition, batch, deadline_s=deadline_s, validated=True
        )
    except GoQueueError as error:
        group.outcome = error
    except Exception:
        log.exception("append failed", extra={"topic": topic, "partition": group.partition})
        group.outcome = ServerError()


def _encode(rows: Rows, group: _Group, now_ms: int, groups: int) -> bytes:
    sequence = _base_sequence(rows, group, groups)
    lanes: int | list[int] = LANE_NORMAL
    if rows.lanes is not None:
        picked = _pick(rows.lanes, group.rows)
        lanes = [LANE_NORMAL if lane is None else lane for lane in picked]
    return encode_columns(
        _pick(rows.values, group.rows),
        None if rows.keys is None else _pick(rows.keys, group.rows),
        timestamps_ms=now_ms,
        lanes=lanes,
        headers=None if rows.headers is None else _pick(rows.headers, group.rows),
        message_ids=None if rows.message_ids is None else _pick(rows.message_ids, group.rows),
        producer_id=rows.producer_id,
        producer_epoch=rows.producer_epoch,
        base_sequence=sequence,
    )


def _base_sequence(rows: Rows, group: _Group, groups: int) -> int:
    if not rows.producer_id:
        return 0
    if rows.sequences is None or rows.single:
        if rows.sequence is None:
            raise BadRequest("producer_id needs a sequence, of the request or of each message")
        if groups > 1:
            raise BadRequest("a request's sequence is of one partition: these go to several")
        first = rows.sequence
    else:
        picked = _pick(rows.sequences, group.rows)
        start = picked[0]
        if start is None or picked != list(range(start, start + len(picked))):
            raise BadRequest(
                "sequences of a partition's messages must follow each other",
                partition=group.partition,
            )
        first = start
    if not 0 <= first < 2**63:
        raise BadRequest("sequence out of range")
    return first


def _pick(column: list[T], rows: Sequence[int] | None) -> list[T]:
    return column if rows is None else [column[row] for row in rows]


def _answer(topic: str, rows: Rows, groups: list[_Group]) -> web.Response:
    failed = [group.outcome for group in groups if isinstance(group.outcome, GoQueueError)]
    if rows.single:
        return _answer_single(topic, rows, groups)
    if failed and len(failed) == len(groups) and not rows.errors:
        return error_answer(failed[0], {"results": _results_of_failure(rows, groups)})
    texts = _render(rows, groups)
    tail = ',"durability":"relaxed"' if _relaxed(groups) else ""
    return answer_bytes(f'{{"results":[{",".join(texts)}]{tail}}}'.encode())


def _answer_single(topic: str, rows: Rows, groups: list[_Group]) -> web.Response:
    if rows.errors:
        raise rows.errors[0]
    outcome = groups[0].outcome
    if isinstance(outcome, GoQueueError):
        raise outcome
    assert outcome is not None
    partition, offset = groups[0].partition, outcome.base_offset
    result = Result(partition, offset, duplicate=outcome.duplicate)
    if rows.lanes is not None:
        result.priority = lane_name(rows.lanes[0])
    return answer(
        PublishAnswer(
            [result],
            topic=topic,
            id=f"{topic}:{partition}:{offset}",
            partition=partition,
            offset=offset,
            timestamp=format_time(outcome.time_ms),
            duplicate=outcome.duplicate,
            priority=result.priority,
            durability=outcome.durability,
        )
    )


def _render(rows: Rows, groups: list[_Group]) -> list[str]:
    """One JSON object a message, in order."""
    if len(groups) == 1 and groups[0].rows is None and rows.lanes is None:
        return _render_run(groups[0], len(rows))
    texts = [""] * len(rows)
    for row, error in rows.errors.items():
        partition = rows.partitions[row] if rows.partitions else None
        texts[row] = encode_error(result_of(error, -1 if partition is None else partition)).decode()
    for group in groups:
        picked = range(len(rows)) if group.rows is None else group.rows
        for row, text in zip(picked, _render_run(group, len(picked)), strict=True):
            texts[row] = text
    if rows.lanes is not None:
        for row, lane in enumerate(rows.lanes):
            if lane is not None and row not in rows.errors:
                texts[row] = f'{texts[row][:-1]},"priority":"{lane_name(lane)}"}}'
    return texts


def _render_run(group: _Group, count: int) -> list[str]:
    outcome = group.outcome
    if isinstance(outcome, GoQueueError):
        return [encode_error(result_of(outcome, group.partition)).decode()] * count
    assert outcome is not None
    head = f'{{"partition":{group.partition},"offset":'
    tail = ',"duplicate":true}' if outcome.duplicate else "}"
    base = outcome.base_offset
    return [f"{head}{offset}{tail}" for offset in range(base, base + count)]


def _render_errors(rows: Rows) -> list[dict[str, object]]:
    skipped: dict[str, object] = {"partition": -1, "offset": -1, "error": "nothing was appended"}
    return [
        result_of(rows.errors[row], -1) if row in rows.errors else skipped
        for row in range(len(rows))
    ]


def _results_of_failure(rows: Rows, groups: list[_Group]) -> list[dict[str, object]]:
    found: list[dict[str, object]] = [{}] * len(rows)
    for group in groups:
        assert isinstance(group.outcome, GoQueueError)
        result = result_of(group.outcome, group.partition)
        for row in range(len(rows)) if group.rows is None else group.rows:
            found[row] = result
    return found


def _relaxed(groups: list[_Group]) -> bool:
    return any(
        isinstance(group.outcome, AppendResult) and group.outcome.durability != "majority"
        for group in groups
    )
