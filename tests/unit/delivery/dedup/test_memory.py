"""What is remembered against duplicates ends by log time and by bytes, alike on all replicas."""

from __future__ import annotations

import tracemalloc
import zlib
from base64 import b85decode

import pytest

from delivery.config import QueueConfig
from delivery.dedup import producers, requests
from delivery.dedup.producers import BATCH_BYTES, PRODUCER_BYTES, Producers, StoredSequence
from delivery.dedup.requests import REQUEST_BYTES, Requests
from delivery.entries.ops import Configure
from delivery.leader.appender import Duplicate
from delivery.state.partition import PartitionState
from goqueue.wire.batch import RecordBatch, encode_columns
from goqueue.wire.errors import GoQueueError, OutOfOrder
from goqueue.wire.types import Offset
from tests.unit.delivery.batches import START_MS, Leader, batch
from tests.unit.delivery.desk import Desk

FULL_PRODUCER_BYTES = PRODUCER_BYTES + producers.BATCHES_REMEMBERED * BATCH_BYTES
SNAPSHOT_OF_0_1_0 = (
    "c-noBKMsO06vn>-wU`)jHLSY38xz9h;tf0i2Qe-<^iOKk$)hkZmkT(sa1WuuN(}M6^u71}ntp8`9<2b9S51bHKxzi3"
    "rGgLTdp`8kb5tl0N|iW>iI9$x@<`B%cGW6C7fBjf{Tq&DO_h^x4+s0}JLZ?z+p(U#u((mPnw<b!4aoUv5UAQ9N)xkRh"
    "6r`}vA|%8hi}+!tUt4tFpM1-clkT15?yj>E7!e|{Sq&(yk(peZ#}R=i2"
)
"""Of a partition with two batches of producer 7, one of producer 9 in epoch 2, request 77 and a
message id."""


def store(known: Producers, producer: int, sequence: int = 0, *, time_ms: int = START_MS) -> None:
    known.stored(producer, 0, StoredSequence(sequence, 1, Offset(sequence)), time_ms)
    known.forget(time_ms)


def test_a_request_id_is_remembered_for_ten_minutes_of_log_time() -> None:
    leader = Leader()
    leader.store(batch(), 77)

    leader.time_ms += requests.REMEMBERED_MS
    leader.store(batch(), 78)
    assert isinstance(leader.appender.admit(batch(), 77), Duplicate)

    leader.time_ms += 1
    leader.store(batch(), 79)
    assert leader.admit(batch(), 77) == 3


def test_request_ids_are_bounded_and_the_oldest_go_first() -> None:
    known = Requests(10 * REQUEST_BYTES)

    for at in range(0, 30, 3):
        known.stored([(at + 1, Offset(at)), (at + 2, Offset(at)), (at + 3, Offset(at))], START_MS)
        known.forget(START_MS)

    assert len(known) == 10
    assert known.offset_of(20) is None
    assert [known.offset_of(at) for at in range(21, 31)] == [18, *[21] * 3, *[24] * 3, *[27] * 3]
    assert (known.bytes, known.evicted) == (10 * REQUEST_BYTES, 20)


def test_a_request_that_nobody_repeats_any_more_is_not_counted_as_evicted() -> None:
    known = Requests(REQUEST_BYTES)
    for at in range(3):
        known.stored([(at + 1, Offset(at))], START_MS + at * (requests.REPEATED_MS + 1))
        known.forget(START_MS + at * (requests.REPEATED_MS + 1))

    assert (len(known), known.evicted) == (1, 0)


def test_the_default_covers_the_rate_that_the_settings_document_for_a_requests_deadline() -> None:
    known, rate, deadline_s = Requests(), 8_300, 15

    for second in range(2 * deadline_s):
        now_ms = START_MS + second * 1000
        known.stored([(second * rate + at + 1, Offset(at)) for at in range(rate)], now_ms)
        known.forget(now_ms)

    assert known.offset_of(deadline_s * rate + 1) is not None, "as old as the deadline"


def test_a_request_id_keeps_its_first_offset() -> None:
    known = Requests()
    known.stored([(1, Offset(5))], START_MS)
    known.stored([(1, Offset(9)), (2, Offset(10))], START_MS + requests.RUN_MS)

    assert known.offset_of(1) == 5
    known.forget(START_MS + requests.RUN_MS + requests.REMEMBERED_MS)
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


def test_producers_are_bounded_and_the_most_silent_goes() -> None:
    known = Producers(3 * PRODUCER_BYTES + 4 * BATCH_BYTES)

    for at, producer in enumerate((1, 2, 3, 1, 4)):
        store(known, producer, at, time_ms=START_MS + at)

    assert [known.history(producer) is not None for producer in (1, 2, 3, 4)] == [
        True,
        False,
        True,
        True,
    ]

    assert known.evicted == 1


def test_silence_for_seven_days_is_no_eviction() -> None:
    known = Producers()
    store(known, 1)
    store(known, 2, time_ms=START_MS + producers.REMEMBERED_MS + 1)

    assert (len(known), known.evicted) == (1, 0)


def test_what_a_producer_takes_is_given_back_with_its_epochs_and_its_oldest_batches() -> None:
    known = Producers()
    for sequence in range(2 * producers.BATCHES_REMEMBERED):
        store(known, 1, sequence)
    assert known.bytes == FULL_PRODUCER_BYTES

    known.stored(1, 1, StoredSequence(0, 1, Offset(0)), START_MS)

    assert known.bytes == PRODUCER_BYTES + BATCH_BYTES


@pytest.mark.parametrize("batches", [1, producers.BATCHES_REMEMBERED])
def test_producers_take_no_more_memory_than_they_are_counted_for(batches: int) -> None:
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        known = Producers()
        for producer in range(2000):
            for at in range(batches):
                store(known, producer + (1 << 40), at * 1000, time_ms=START_MS + producer)
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()

    assert len(known) == 2000
    assert taken <= known.bytes


def test_request_ids_take_no_more_memory_than_they_are_counted_for() -> None:
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        known = Requests()
        for first in range(0, 250_000, 8):
            ids = [((n + 1) * 0x9E3779B97F4A7C15) % (1 << 64) for n in range(first, first + 8)]
            told = [(id, Offset(at + (1 << 40))) for at, id in enumerate(ids, first)]
            known.stored(told, START_MS + first // 8)
            known.forget(START_MS + first // 8)
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()

    assert known.evicted >= 60_000
    assert taken <= known.bytes


def test_a_change_of_the_bounds_is_an_entry_that_all_replicas_obey() -> None:
    desk = Desk()
    for producer in range(4):
        desk.state.producers.stored(producer, 0, StoredSequence(0, 1, Offset(0)), START_MS)
    desk.state.requests.stored([(n, Offset(0)) for n in range(1, 5)], START_MS)
    small = QueueConfig(
        dedup_producers_bytes=2 * (PRODUCER_BYTES + BATCH_BYTES),
        dedup_requests_bytes=3 * REQUEST_BYTES,
    )

    desk.do(Configure(small))
    desk.publish(1)
    assert (len(desk.state.producers), len(desk.state.requests)) == (2, 3)

    # whoever starts from the snapshot has the same bounds, and does the same from there on
    restored = PartitionState()
    restored.restore(desk.state.snapshot())
    for state in (desk.state, restored):
        state.producers.stored(9, 0, StoredSequence(0, 1, Offset(0)), START_MS)
        state.producers.forget(START_MS)
        state.requests.stored([(9, Offset(0))], START_MS)
        state.requests.forget(START_MS)
    assert restored.snapshot() == desk.state.snapshot()
    assert (len(restored.producers), len(restored.requests)) == (2, 3)


def test_whoever_was_evicted_is_told_that_it_is_not_known() -> None:
    leader = Leader()
    leader.state.producers.configure(PRODUCER_BYTES + BATCH_BYTES)
    leader.store(batch(producer=1))
    with pytest.raises(OutOfOrder) as gap:
        leader.appender.admit(batch(producer=1, sequence=7))
    leader.store(batch(producer=2))

    with pytest.raises(OutOfOrder) as unknown:
        leader.appender.admit(batch(producer=1, sequence=1))

    assert "unknown_producer" not in gap.value.data
    told = GoQueueError.from_body(unknown.value.to_body())
    assert isinstance(told, OutOfOrder)
    assert (told.data["unknown_producer"], told.data["expected"]) == (True, 0)
    assert leader.state.evicted() == {"producer": 1, "request": 0, "message_id": 0, "result": 0}


def test_message_ids_that_go_before_their_window_is_over_are_counted() -> None:
    leader = Leader()
    leader.state.message_ids.configure(60_000, 2)
    for name in ("a", "b", "c"):
        leader.store(RecordBatch.parse(encode_columns([b"v"], message_ids=[name])))
    assert leader.state.evicted()["message_id"] == 1

    leader.time_ms += 200_000
    leader.store(batch())

    assert len(leader.state.message_ids) == 0
    assert leader.state.evicted()["message_id"] == 1


def test_a_snapshot_of_0_1_0_is_taken_over_with_the_default_bounds() -> None:
    state = PartitionState()
    state.restore(zlib.decompress(b85decode(SNAPSHOT_OF_0_1_0)))

    assert state.queue.config == QueueConfig()
    seven = state.producers.history(7)
    assert seven is not None
    assert [(one.base_sequence, one.count, one.base_offset) for one in seven.batches()] == [
        (0, 3, 0),
        (3, 2, 3),
    ]
    assert state.producers.bytes == 2 * PRODUCER_BYTES + 3 * BATCH_BYTES
    assert state.requests.offset_of(77) == 6
    leader = Leader(state)
    assert isinstance(leader.appender.admit(batch(2, producer=7, sequence=3)), Duplicate)
    assert leader.admit(batch(producer=9, epoch=2, sequence=1)) == 8


def test_memory_is_the_same_after_a_snapshot() -> None:
    known, restored = Requests(), Requests()
    known.stored([(1, Offset(0)), (2, Offset(1))], START_MS)
    known.stored([(3, Offset(2))], START_MS + 900)

    restored.load(known.dump())
    for each in (known, restored):
        each.forget(START_MS + requests.REMEMBERED_MS + 5)

    assert restored.dump() == known.dump()
    assert restored.offset_of(3) == 2
    assert restored.offset_of(2) is None
