"""A leader takes no delay beyond the topic's horizon, and no more delayed messages than it may."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from delivery.config import QueueConfig
from delivery.dedup.message_ids import MessageIds
from delivery.dedup.producers import Producers
from delivery.dedup.requests import Requests
from delivery.leader.appender import Admitted, Appender, Duplicate
from goqueue.wire.batch import RecordBatch, encode_columns
from goqueue.wire.errors import DelayTooLong, TooManyDelayed
from goqueue.wire.types import Index, Offset

NOW_MS = 1_700_000_000_000


@dataclass
class Queue:
    config: QueueConfig
    hidden: set[int] = field(default_factory=set)


class State:
    """What an appender looks at, with few delays allowed."""

    def __init__(self, delay_ms_max: int = 60_000, delayed_max: int = 5) -> None:
        self.applied_index = Index(0)
        self.next_offset = Offset(0)
        self.producers = Producers()
        self.requests = Requests()
        self.message_ids = MessageIds()
        self.queue = Queue(QueueConfig(delay_ms_max=delay_ms_max, delayed_max=delayed_max))

    def appender(self) -> Appender:
        return Appender(self)  # type: ignore[arg-type]


def delayed(*deliver_at: int | None, producer: int = 0, ids: bool = False) -> RecordBatch:
    return RecordBatch.parse(
        encode_columns(
            [b"v"] * len(deliver_at),
            deliver_at_ms=deliver_at,
            producer_id=producer,
            message_ids=[f"id-{row}" for row in range(len(deliver_at))] if ids else None,
        )
    )


@pytest.mark.parametrize("deliver_at", [60_000, NOW_MS + 60_000, NOW_MS - 10**9, None, 1])
def test_a_delay_within_the_horizon_is_taken(deliver_at: int | None) -> None:
    assert State().appender().admit(delayed(deliver_at, 1), now_ms=NOW_MS) == Admitted(0, 2)  # type: ignore[arg-type]


@pytest.mark.parametrize("deliver_at", [60_001, NOW_MS + 60_001])
def test_a_delay_beyond_the_horizon_is_refused_and_changes_nothing(deliver_at: int) -> None:
    appender = State().appender()

    with pytest.raises(DelayTooLong) as refused:
        appender.admit(delayed(5, deliver_at), now_ms=NOW_MS)

    assert refused.value.data == {"limit_ms": 60_000}
    assert appender.admit(delayed(*[5] * 5), now_ms=NOW_MS) == Admitted(0, 5)  # type: ignore[arg-type]


def test_delayed_messages_are_bounded_in_what_is_stored_in_flight_and_asked_for() -> None:
    state = State()
    state.queue.hidden.update(range(2))
    appender = state.appender()
    appender.admit(delayed(5, None, 5), now_ms=NOW_MS)

    with pytest.raises(TooManyDelayed) as refused:
        appender.admit(delayed(5, 5), now_ms=NOW_MS)
    assert refused.value.data == {"limit": 5, "delayed": 4}
    assert refused.value.retriable

    assert isinstance(appender.admit(delayed(5), now_ms=NOW_MS), Admitted)
    assert isinstance(appender.admit(delayed(None, NOW_MS), now_ms=NOW_MS), Admitted)


def test_what_lands_or_is_withdrawn_is_no_longer_counted_as_in_flight() -> None:
    state = State()
    appender = state.appender()
    appender.admit(delayed(*[5] * 5), now_ms=NOW_MS)
    appender.withdraw()
    appender.admit(delayed(*[5] * 5), now_ms=NOW_MS)
    appender.proposed(Index(1))

    with pytest.raises(TooManyDelayed):
        appender.admit(delayed(5), now_ms=NOW_MS)
    state.applied_index = Index(1)  # and all of them were due at once

    assert isinstance(appender.admit(delayed(5), now_ms=NOW_MS), Admitted)


@pytest.mark.parametrize("batch", [delayed(5, 5, producer=1), delayed(5, 5, ids=True)])
def test_a_repeat_is_answered_however_many_are_delayed(batch: RecordBatch) -> None:
    appender = State(delayed_max=2).appender()
    appender.admit(batch, now_ms=NOW_MS)

    assert isinstance(appender.admit(batch, now_ms=NOW_MS), Duplicate)
