"""What an answer says became of settles, one by one."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from goqueue.models.settles import Settled, SettleResult
from goqueue.models.times import datetime_ms
from goqueue.transport.channel import Answer
from goqueue.wire.errors import GoQueueError, NotInFlight, ServerError
from goqueue.wire.unreadable import UNREADABLE


class _Body(msgspec.Struct):
    receipt: str
    action: str
    state: str
    topic: str
    partition: int
    offset: int
    attempts: int = 0
    visible_at: datetime | None = None
    committed_offset: int = 0
    in_flight: int = 0


class _Results(msgspec.Struct):
    results: list[dict[str, Any]]


def decode_settles(answer: Answer, expected: int) -> list[SettleResult]:
    """One result for each of the `expected` receipts, in their order. Raises ServerError."""
    try:
        results = msgspec.json.decode(answer.body, type=_Results).results
    except UNREADABLE as error:
        raise ServerError(f"an answer that is not understood: {error}") from None
    if len(results) != expected:
        raise ServerError(f"{len(results)} results where {expected} were due")
    return [_result(told, is_repeat=answer.is_repeat) for told in results]


def decode_rows(results: list[dict[str, Any]]) -> list[SettleResult]:
    """What stands beside something else, row by row. Raises ServerError."""
    return [_result(told, is_repeat=False) for told in results]


def _result(told: dict[str, Any], *, is_repeat: bool) -> SettleResult:
    if told.get("error"):
        error = GoQueueError.from_body(told)
        if is_repeat and isinstance(error, NotInFlight):
            error.outcome = "unknown"
        return error
    try:
        body = msgspec.convert(told, _Body)
    except msgspec.ValidationError as error:
        raise ServerError(f"a result that is not understood: {error}") from None
    return Settled(
        body.receipt,
        body.action,
        body.state,
        body.topic,
        body.partition,
        body.offset,
        body.attempts,
        None if body.visible_at is None else datetime_ms(body.visible_at),
        body.committed_offset,
        body.in_flight,
    )
