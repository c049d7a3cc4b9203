"""Delays, expiry and cancelling: never early, never twice, and bounded in what they keep."""

from __future__ import annotations

import pytest

from delivery.entries.ops import NOT_FOUND, OK, TOO_LATE, Tick
from delivery.offsets.due import DueTimes
from delivery.state.queue import RUNS_SPARE
from tests.steps import steps
from tests.unit.delivery.batches import START_MS
from tests.unit.delivery.desk import Desk

RELEASE_STEPS_MAX = 60
"""Of one message that is due; 39 today."""


@pytest.fixture
def desk() -> Desk:
    found = Desk()
    found.open(1)
    return found


def test_runs_come_in_the_order_of_time_then_of_offset_near_or_far() -> None:
    due = DueTimes()
    runs = [(5, 9, 1), (70_000, 1, 2), (5, 3, 1), (69_999, 8, 1), (10_000, 4, 1)]
    for run in runs:
        due.add(*run)

    assert due.next_ms() == 5
    assert due.pop(5) == [(5, 3, 1), (5, 9, 1)]
    due.add(6, 2)
    assert due.pop(80_000) == [(6, 2, 1), (10_000, 4, 1), (69_999, 8, 1), (70_000, 1, 2)]
    assert (len(due), due.next_ms()) == (0, None)


def test_times_beyond_two_to_the_32_and_a_dump_keep_their_order() -> None:
    due = DueTimes()
    for offset in (2**40, 2**33, 7):
        due.add(2**45 + offset % 3, offset)

    again = DueTimes()
    again.load(due.dump())

    assert list(again.runs()) == list(due.runs())
    assert again.dump() == due.dump()


def test_a_delayed_message_is_never_delivered_early(desk: Desk) -> None:
    desk.publish(2, deliver_at_ms=[1000, None])

    desk.wait(999)
    assert desk.offsets() == [1]
    desk.wait(1)

    assert desk.offsets() == [0]


def test_log_time_that_stands_still_delivers_nothing_early(desk: Desk) -> None:
    desk.publish(1, deliver_at_ms=[1])

    for _ in range(50):
        desk.do(Tick())
        assert desk.offsets() == []


def test_a_message_whose_time_has_passed_is_delivered_at_once(desk: Desk) -> None:
    desk.publish(1, deliver_at_ms=[START_MS - 1])

    assert desk.offsets() == [0]
    assert desk.state.queue.state_of(0) == "plain"


def test_what_is_delayed_holds_back_the_floor_and_nothing_else(desk: Desk) -> None:
    desk.publish(3, deliver_at_ms=[None, 1000, None])

    desk.ack(desk.receive())

    assert desk.group().committed_offset == 1
    desk.wait(1000)
    assert desk.ack(desk.receive()).committed_offset == 3


def test_ten_thousand_due_in_one_second_are_released_in_one_entry(desk: Desk) -> None:
    for _ in range(10):
        desk.publish(1000, deliver_at_ms=[60_000 + row for row in range(1000)])
    desk.wait(59_999)
    assert desk.group().ready_count() == 0

    taken = steps(lambda: desk.wait(1000))

    assert desk.group().ready_count() == 10_000
    assert desk.state.queue.released == 10_000
    assert taken < 10_000 * RELEASE_STEPS_MAX


def test_a_message_is_either_cancelled_or_delivered(desk: Desk) -> None:
    desk.publish(3, deliver_at_ms=[1000, 2000, None])

    assert desk.cancel(1, 2) == [OK, NOT_FOUND]
    desk.now_ms += 1000
    assert desk.cancel(0, 1) == [TOO_LATE, OK]
    desk.wait(5000)

    assert desk.offsets() == [0, 2]
    assert desk.state.queue.state_of(1) == "cancelled"
    assert desk.state.queue.cancelled_count == 1


def test_cancelling_at_the_moment_it_is_due_is_too_late(desk: Desk) -> None:
    desk.publish(1, deliver_at_ms=[1000])
    desk.now_ms += 1000

    assert desk.cancel(0) == [TOO_LATE]
    assert desk.offsets() == [0]


def test_the_floor_passes_what_was_cancelled(desk: Desk) -> None:
    desk.publish(2, deliver_at_ms=[1000, None])
    desk.ack(desk.receive())

    desk.cancel(0)

    assert desk.group().committed_offset == 2


@pytest.mark.parametrize("ttl_ms", [0, 5_000])
def test_expired_messages_are_never_delivered(ttl_ms: int) -> None:
    desk = Desk(ttl_ms=ttl_ms)
    desk.open(1)
    desk.publish(3, expires_at_ms=[1000, None, 9000])
    desk.publish(1)

    desk.now_ms += 1000
    assert desk.offsets() == [1, 2, 3]
    desk.now_ms += 30_000
    desk.expire()

    assert desk.offsets() == ([] if ttl_ms else [1, 3])
    assert desk.state.queue.expired_count == (4 if ttl_ms else 2)
    assert desk.state.queue.state_of(0) == "expired"


def test_a_message_that_expires_in_flight_can_be_acked_and_is_not_redelivered(desk: Desk) -> None:
    desk.publish(2, expires_at_ms=[10, 10])
    granted = desk.receive()
    desk.wait(10)

    assert desk.settle(0, [(granted.delivery, [0])]).settles[0].outcome == "acked"
    told = desk.settle(1, [(granted.delivery, [1])], reason="bad")

    assert told.settles[0].outcome == "expired"
    assert told.committed_offset == 2
    assert desk.offsets() == []


def test_a_message_that_expires_while_it_is_delayed_or_waits_never_comes(desk: Desk) -> None:
    desk.publish(2, deliver_at_ms=[2000, None], expires_at_ms=[1000, 1000])
    desk.nack(desk.receive(), delay_ms=500)

    desk.wait(10_000)

    assert desk.offsets() == []
    assert desk.group().committed_offset == 2
    assert desk.state.queue.released == 1


def test_a_dead_letter_that_has_expired_is_not_redriven(desk: Desk) -> None:
    desk.publish(1, expires_at_ms=[1000])
    desk.reject(desk.receive())
    desk.wait(1000)

    assert desk.redrive(0, force=True).refused == 1
    assert list(desk.group().dead) == [0]


def test_backoff_doubles_up_to_its_bound(desk: Desk) -> None:
    desk.configure(max_attempts=0, backoff_ms=100, backoff_ms_max=500)
    desk.publish(1)
    waits = []

    for _ in range(5):
        told = desk.nack(desk.receive())
        waits.append(told.settles[0].visible_at_ms - desk.now_ms)
        desk.wait(waits[-1])

    assert waits == [100, 200, 400, 500, 500]


def test_delays_that_are_cancelled_again_and_again_leave_no_trace(desk: Desk) -> None:
    for _ in range(40):
        desk.cancel(*desk.publish(100, deliver_at_ms=[600_000] * 100))

    assert len(desk.state.queue.delays) <= RUNS_SPARE
    desk.publish(1, deliver_at_ms=[600_000])
    desk.restart()
    desk.wait(600_000)
    assert desk.offsets() == [4000]


def test_lives_of_trimmed_messages_are_forgotten(desk: Desk) -> None:
    far_ms = 2**37
    for round_ in range(60):
        offsets = desk.publish(100, expires_at_ms=[far_ms + row for row in range(100)])
        desk.retain(offsets[0])
        if round_ % 20 == 0:
            desk.restart()

    assert len(desk.state.queue.expiries) <= RUNS_SPARE + 200


def test_next_due_is_the_first_delay_or_backoff(desk: Desk) -> None:
    desk.publish(2, deliver_at_ms=[9000, None])
    assert desk.state.queue.next_due_ms() == START_MS + 9000

    desk.nack(desk.receive(), delay_ms=10)

    assert desk.state.queue.next_due_ms() == START_MS + 10
    assert desk.state.queue.pending_delays(5, 0) == [(START_MS + 9000, 0)]
