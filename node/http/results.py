"""What a publish is answered with: a result for each message, in the order they came."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aiohttp import web
from msgspec import UNSET, Struct, UnsetType

from goqueue.wire.errors import GoQueueError
from node.http.broker import AppendResult
from node.http.call import answer, answer_bytes
from node.http.errors import encode_error, error_answer, result_of
from node.http.fields import lane_name
from node.http.messages import Rows
from node.http.times import format_time


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
class Group:
    """The rows of one partition; `rows` None means all of them, in order."""

    partition: int
    rows: Sequence[int] | None
    outcome: AppendResult | GoQueueError | None = None


def publish_answer(topic: str, rows: Rows, groups: list[Group]) -> web.Response:
    """The whole answer; raises the error of a message that was sent alone.

    When every append failed, and only then, the status is the first failure's: a client that
    retries on 503 may then retry the request, whose results still stand message by message.
    """
    failed = [group.outcome for group in groups if isinstance(group.outcome, GoQueueError)]
    if rows.single:
        return _answer_single(topic, rows, groups)
    if failed and len(failed) == len(groups) and not rows.errors:
        return error_answer(failed[0], {"results": _results_of_failure(rows, groups)})
    texts = _render(rows, groups)
    tail = ',"durability":"relaxed"' if _relaxed(groups) else ""
    return answer_bytes(f'{{"results":[{",".join(texts)}]{tail}}}'.encode())


def _answer_single(topic: str, rows: Rows, groups: list[Group]) -> web.Response:
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


def _render(rows: Rows, groups: list[Group]) -> list[str]:
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


def _render_run(group: Group, count: int) -> list[str]:
    outcome = group.outcome
    if isinstance(outcome, GoQueueError):
        return [encode_error(result_of(outcome, group.partition)).decode()] * count
    assert outcome is not None
    head = f'{{"partition":{group.partition},"offset":'
    tail = ',"duplicate":true}' if outcome.duplicate else "}"
    base = outcome.base_offset
    return [f"{head}{offset}{tail}" for offset in range(base, base + count)]


def refused_results(rows: Rows) -> list[dict[str, object]]:
    """Where nothing was appended because some rows are unusable: their errors, in their places."""
    skipped: dict[str, object] = {"partition": -1, "offset": -1, "error": "nothing was appended"}
    return [
        result_of(rows.errors[row], -1) if row in rows.errors else skipped
        for row in range(len(rows))
    ]


def _results_of_failure(rows: Rows, groups: list[Group]) -> list[dict[str, object]]:
    found: list[dict[str, object]] = [{}] * len(rows)
    for group in groups:
        assert isinstance(group.outcome, GoQueueError)
        result = result_of(group.outcome, group.partition)
        for row in range(len(rows)) if group.rows is None else group.rows:
            found[row] = result
    return found


def _relaxed(groups: list[Group]) -> bool:
    return any(
        isinstance(group.outcome, AppendResult) and group.outcome.durability != "majority"
        for group in groups
    )
