"""What is remembered against duplicates ends by log time and by count, alike on all replicas."""

from __future__ import annotations

import pytest

from delivery import producers, requests
from delivery.appender import Duplicate
from delivery.producers import Producers, StoredSequence
from delivery.requests import Requests
from goqueue.wire.types import Offset
from tests.unit.delivery.entries import START_MS, Leader, batch


def test_a_request_id_is_remembered_for_ten_minutes_of_log_time() -> None:
    leader = Leader()
    leader.store(batch(), 77)

    leader.time_ms += requests.REMEMBERED_MS
    leader.store(batch(), 78)
    assert isinstance(leader.appender.admit(batch(), 77), Duplicate)

    leader.time_ms += 1
    leader.store(batch(), 79)
    assert leader.admit(batch(), 77) == 3


def test_request_ids_are_bounded_and_the_oldest_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "REQUESTS_MAX", 10)
    known = Requests()

    for at in range(0, 30, 3):
        known.stored([(at + 1, Offset(at)), (at + 2, Offset(at)), (at + 3, Offset(at))], START_MS)
        known.forget(START_MS)

    assert len(known) == 10
    assert known.offset_of(20) is None
    assert [known.offset_of(at) for at in range(21, 31)] == [18, *[21] * 3, *[24] * 3, *[27] * 3]


def test_a_request_id_keeps_its_first_offset() -> None:
    known = Requests()
    known.stored([(1, Offset(5))], START_MS)
    known.stored([(1, Offset(9)), (2, Offset(10))], START_MS + 1)

    assert known.offset_of(1) == 5
    known.forget(START_MS + 1 + requests.REMEMBERED_MS)
    assert (known.offset_of(1), known.offset_of(2)) == (None, 10)


def test_a_producer_is_forgotten_after_seven_days_of_silence() -> None:
    leader = Leader()
    leader.store(batch(producer=1))

    leader.time_ms += producers.REMEMBERED_MS
    leader.store(batch(producer=2))
    assert leader.state.producers.history(1) is not None

    leader.time_ms += 1
    leader.store(batch(producer=2, sequence=1))
    assert leader.state.producers.history(1) is None
    assert leader.state.producers.history(2) is not None


def test_producers_are_bounded_and_the_most_silent_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producers, "PRODUCERS_MAX", 3)
    known = Producers()

    for at, producer in enumerate((1, 2, 3, 1, 4)):
        known.stored(producer, 0, StoredSequence(at, 1, Offset(at)), START_MS + at)
        known.forget(START_MS + at)

    assert [known.history(producer) is not None for producer in (1, 2, 3, 4)] == [
        True,
        False,
        True,
        True,
    ]


def test_memory_is_the_same_after_a_snapshot() -> None:
    known, restored = Requests(), Requests()
    known.stored([(1, Offset(0)), (2, Offset(1))], START_MS)
    known.stored([(3, Offset(2))], START_MS + 9)

    restored.load(known.dump())
    for each in (known, restored):
        each.forget(START_MS + requests.REMEMBERED_MS + 5)

    assert restored.dump() == known.dump()
    assert restored.offset_of(3) == 2
    assert restored.offset_of(2) is None
