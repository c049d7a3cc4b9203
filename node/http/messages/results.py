"""What a publish is answered with: a result for each message, in the order they came."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aiohttp import web
from msgspec import UNSET, Struct, UnsetType

from goqueue.wire.batch import resolve_ms
from goqueue.wire.errors import GoQueueError
from node.api.records import MAJORITY, RELAXED, AppendResult
from node.api.times import format_time
from node.http.messages.columns import Rows
from node.http.messages.fields import lane_name
from node.http.request.call import answer, answer_bytes
from node.http.text.errors import encode_error, parts_failed_answer, result_of

_DUPLICATE = ',"duplicate":true}'


class RowResult(Struct, omit_defaults=True):
    """One row of a record batch, of which some rows were stored already."""

    offset: int
    duplicate: bool = False


class Result(Struct):
    """One message's place, or `offset` -1 and what every error holds."""

    partition: int
    offset: int
    count: int | UnsetType = UNSET
    duplicate: bool | UnsetType = UNSET
    priority: str | UnsetType = UNSET
    delayed: bool | UnsetType = UNSET
    deliverAt: str | UnsetType = UNSET
    rows: list[RowResult] | UnsetType = UNSET
    timestamp_ms: int | UnsetType = UNSET
    durability: str | UnsetType = UNSET
    error: str | UnsetType = UNSET
    status: int | UnsetType = UNSET
    code: str | UnsetType = UNSET
    retriable: bool | UnsetType = UNSET
    outcome: str | UnsetType = UNSET


class PublishAnswer(Struct):
    """Results in the order of the messages (or batches); for one message its fields as well.

    `durability` is what everything that was stored had at least: `majority` (fsynced by a majority)
    or `relaxed`. For batches each result has its own.
    """

    results: list[Result]
    topic: str | UnsetType = UNSET
    id: str | UnsetType = UNSET
    partition: int | UnsetType = UNSET
    offset: int | UnsetType = UNSET
    timestamp: str | UnsetType = UNSET
    duplicate: bool | UnsetType = UNSET
    priority: str | UnsetType = UNSET
    delayed: bool | UnsetType = UNSET
    deliverAt: str | UnsetType = UNSET
    durability: str | UnsetType = UNSET


@dataclass(slots=True)
class PartitionRows:
    """The rows of one partition; `rows` None means all of them, in order."""

    partition: int
    rows: Sequence[int] | None
    outcome: AppendResult | GoQueueError | None = None


def publish_answer(topic: str, rows: Rows, parts: list[PartitionRows]) -> web.Response:
    """The whole answer; raises the error of a message that was sent alone.

    When every append failed, and only then, the status is the first failure's: a client that
    retries on 503 may then retry the request, whose results still stand message by message.
    """
    if rows.single:
        return _answer_single(topic, rows, parts)
    failed = [part.outcome for part in parts if isinstance(part.outcome, GoQueueError)]
    if failed and len(failed) == len(parts) and not rows.errors:
        return parts_failed_answer(failed, {"results": _results_of_failure(rows, parts)})
    texts = _render(rows, parts)
    stored = [part.outcome for part in parts if isinstance(part.outcome, AppendResult)]
    tail = f',"durability":"{_weakest(stored)}"' if stored else ""
    return answer_bytes(f'{{"results":[{",".join(texts)}]{tail}}}'.encode())


def _answer_single(topic: str, rows: Rows, parts: list[PartitionRows]) -> web.Response:
    if rows.errors:
        raise rows.errors.pop(0)  # its frames hold the rows: they may not hold it, too
    outcome = parts[0].outcome
    if isinstance(outcome, GoQueueError):
        parts.clear()
        try:
            raise outcome
        finally:
            del outcome  # its frames hold this one
    assert outcome is not None
    partition, offset = parts[0].partition, outcome.base_offset
    result = Result(partition, offset, duplicate=outcome.duplicate)
    if rows.lanes is not None:
        result.priority = lane_name(rows.lanes[0])
    due_ms = _due_ms(rows, 0, outcome, 0)
    if due_ms is not None:
        result.delayed, result.deliverAt = True, format_time(due_ms)
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
            delayed=result.delayed,
            deliverAt=result.deliverAt,
            durability=outcome.durability,
        )
    )


def _render(rows: Rows, parts: list[PartitionRows]) -> list[str]:
    """One JSON object a message, in order."""
    plain = rows.lanes is None and rows.deliver_at is None
    if plain and len(parts) == 1 and parts[0].rows is None:
        return _render_run(parts[0], len(rows))
    texts = [""] * len(rows)
    for row, error in rows.errors.items():
        partition = rows.partitions[row] if rows.partitions else None
        texts[row] = encode_error(result_of(error, -1 if partition is None else partition)).decode()
    for part in parts:
        picked = range(len(rows)) if part.rows is None else part.rows
        for at, text in enumerate(_render_run(part, len(picked))):
            row = picked[at]
            due_ms = _due_ms(rows, row, part.outcome, at)
            if due_ms is not None:
                text = f'{text[:-1]},"delayed":true,"deliverAt":"{format_time(due_ms)}"}}'
            texts[row] = text
    if rows.lanes is not None:
        for row, lane in enumerate(rows.lanes):
            if lane is not None and row not in rows.errors:
                texts[row] = f'{texts[row][:-1]},"priority":"{lane_name(lane)}"}}'
    return texts


def _render_run(part: PartitionRows, count: int) -> list[str]:
    outcome = part.outcome
    if isinstance(outcome, GoQueueError):
        return [encode_error(result_of(outcome, part.partition)).decode()] * count
    assert outcome is not None
    head = f'{{"partition":{part.partition},"offset":'
    if outcome.rows is not None:
        return [f"{head}{offset}{_DUPLICATE if known else '}'}" for offset, known in outcome.rows]
    tail = _DUPLICATE if outcome.duplicate else "}"
    base = outcome.base_offset
    return [f"{head}{offset}{tail}" for offset in range(base, base + count)]


def _due_ms(
    rows: Rows, row: int, outcome: AppendResult | GoQueueError | None, at: int
) -> int | None:
    """When a delayed message is due that was stored as row `at` of its append; None for others.

    A message that had the same id before has its own time, which this request doesn't know.
    """
    cell = rows.deliver_at[row] if rows.deliver_at else None
    if cell is None or not isinstance(outcome, AppendResult):
        return None
    if outcome.rows is not None and outcome.rows[at][1]:
        return None
    due_ms = resolve_ms(cell, outcome.time_ms)
    return due_ms if due_ms is not None and due_ms > outcome.time_ms else None


def refused_results(rows: Rows) -> list[dict[str, object]]:
    """Where nothing was appended because some rows are unusable: their errors, in their places."""
    skipped: dict[str, object] = {"partition": -1, "offset": -1, "error": "nothing was appended"}
    return [
        result_of(rows.errors[row], -1) if row in rows.errors else skipped
        for row in range(len(rows))
    ]


def _results_of_failure(rows: Rows, parts: list[PartitionRows]) -> list[dict[str, object]]:
    found: list[dict[str, object]] = [{}] * len(rows)
    for part in parts:
        assert isinstance(part.outcome, GoQueueError)
        result = result_of(part.outcome, part.partition)
        for row in range(len(rows)) if part.rows is None else part.rows:
            found[row] = result
    return found


def _weakest(stored: Sequence[AppendResult]) -> str:
    return RELAXED if any(one.durability == RELAXED for one in stored) else MAJORITY
