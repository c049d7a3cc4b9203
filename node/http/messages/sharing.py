"""Small publishes that come in one turn of the loop share a batch, one of each partition.

It is encoded, sent on to the leader and put into an entry once, and each request is told its own
part of the outcome. Requests with different keys share nothing: a batch is sent in one name. What
the log judges by message ids or by a producer's sequence goes by itself, and so does what is
delayed, as it may be refused for how many there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from goqueue.wire.errors import GoQueueError
from goqueue.wire.types import Offset
from node.api.records import AppendResult
from node.http.budget.slices import SLICE_BYTES
from node.http.messages.columns import Rows

Outcome = AppendResult | GoQueueError


def may_share(rows: Rows, body_bytes: int) -> bool:
    """Whether these messages may be in one batch with those of others."""
    return (
        body_bytes <= SLICE_BYTES
        and not rows.producer_id
        and not rows.errors
        and rows.message_ids is None
        and rows.deliver_at is None
        and rows.sequences is None
    )


def together(parts: Sequence[Rows]) -> Rows:
    """All messages in their order; the parts stay as they are."""
    if len(parts) == 1:
        return parts[0]
    rows = Rows([])
    for part in parts:
        rows.extend(part)
    return rows


def apart(outcome: Outcome, parts: Sequence[Rows]) -> list[Outcome]:
    """What each part is told of what became of all. Errors are their own: raising changes them."""
    if len(parts) == 1:
        return [outcome]
    found: list[Outcome] = []
    at = 0
    for part in parts:
        found.append(_share_of(outcome, at, len(part)))
        at += len(part)
    return found


def _share_of(outcome: Outcome, at: int, count: int) -> Outcome:
    if isinstance(outcome, GoQueueError):
        own = GoQueueError.from_body(outcome.to_body())
        own.__cause__ = outcome.__cause__
        return own
    return replace(outcome, base_offset=Offset(outcome.base_offset + at), count=count)
