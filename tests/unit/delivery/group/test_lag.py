"""How far a group has come: its lag in messages and in time, and what a seek would change."""

from __future__ import annotations

import pytest

from delivery.config import GroupConfig
from delivery.entries.ops import (
    NACK,
    Committed,
    OpenGroup,
    Own,
    Parked,
    Sought,
    SoughtResult,
    Unparked,
)
from delivery.group.lag import delayed_count, lag_count, lag_ms, would_seek
from tests.steps import peak_bytes, steps
from tests.unit.delivery.desk import Desk, all_of

RELEASED = 1_000_000
ASKED_STEPS_MAX = 500
"""Whatever the number of messages; 65 today."""
ASKED_BYTES_MAX = 10_000


@pytest.fixture
def desk() -> Desk:
    found = Desk()
    found.open(1)
    return found


def test_lag_counts_what_is_ready_in_flight_or_waits_for_its_backoff(desk: Desk) -> None:
    desk.publish(5)
    desk.ack(desk.receive(1))
    desk.settle(NACK, all_of(desk.receive(1)), delay_ms=60_000)
    desk.reject(desk.receive(1))
    desk.receive(1)

    assert lag_count(desk.group()) == 3
    desk.restart()
    assert lag_count(desk.group()) == 3


def test_lag_leaves_out_what_is_not_due_cancelled_or_expired(desk: Desk) -> None:
    desk.publish(3, deliver_at_ms=[60_000, 60_000, None])
    desk.publish(1, expires_at_ms=[1000])
    desk.cancel(0)

    assert (lag_count(desk.group()), delayed_count(desk.group())) == (2, 1)
    desk.wait(1000)
    assert (lag_count(desk.group()), delayed_count(desk.group())) == (1, 1)
    desk.wait(60_000)
    assert (lag_count(desk.group()), delayed_count(desk.group())) == (2, 0)


@pytest.mark.parametrize("delay", [None, 100])
def test_a_leased_message_that_expires_is_no_lag(desk: Desk, delay: int | None) -> None:
    desk.publish(1, deliver_at_ms=[delay], expires_at_ms=[1000])
    desk.wait(100)
    desk.receive()

    desk.wait(1000)

    assert lag_count(desk.group()) == 0
    assert lag_ms(desk.group(), desk.now_ms) == 0


def test_the_oldest_counts_from_its_storing_however_often_it_failed(desk: Desk) -> None:
    desk.publish(1)
    desk.wait(5000)
    desk.publish(1)
    desk.nack(desk.receive(1))
    desk.now_ms += 1000
    desk.nack(desk.receive(1), to_back=True)
    desk.now_ms += 1000

    assert lag_ms(desk.group(), desk.now_ms) == 7000
    desk.ack(desk.receive())
    assert lag_ms(desk.group(), desk.now_ms) == 0


def test_a_delayed_message_counts_from_when_it_was_due_while_its_key_was_parked() -> None:
    desk = Desk()
    desk.open(1, ordering="key")
    desk.do(Parked(1, b"k"))
    desk.publish(1, keys=[b"k"], deliver_at_ms=[1000])
    desk.wait(5000)

    desk.do(Unparked(1, b"k"))

    assert lag_ms(desk.group(), desk.now_ms) == 4000
    desk.ack(desk.receive())
    assert lag_ms(desk.group(), desk.now_ms) == 0


def test_a_delayed_message_counts_from_when_it_is_due_however_often_it_failed(desk: Desk) -> None:
    desk.publish(1, deliver_at_ms=[60_000])
    desk.wait(61_000)
    assert lag_ms(desk.group(), desk.now_ms) == 1000

    desk.nack(desk.receive())
    desk.wait(1000)
    desk.restart()
    assert lag_ms(desk.group(), desk.now_ms) == 2000
    granted = desk.receive()
    assert lag_ms(desk.group(), desk.now_ms) == 2000

    desk.ack(granted)
    assert lag_ms(desk.group(), desk.now_ms) == 0


def test_a_redriven_message_counts_from_its_redrive(desk: Desk) -> None:
    desk.publish(1)
    desk.reject(desk.receive())
    desk.wait(60_000)
    assert (lag_count(desk.group()), lag_ms(desk.group(), desk.now_ms)) == (0, 0)

    desk.redrive(0)
    desk.wait(500)

    assert (lag_count(desk.group()), lag_ms(desk.group(), desk.now_ms)) == (1, 500)


def test_nothing_is_older_than_the_group_or_its_last_seek(desk: Desk) -> None:
    desk.publish(1)
    desk.wait(60_000)
    late = desk.open(2)
    desk.now_ms += 1000
    assert lag_ms(late, desk.now_ms) == 1000

    desk.seek(0, group=2)
    desk.now_ms += 200

    assert lag_ms(late, desk.now_ms) == 200
    assert lag_ms(desk.group(), desk.now_ms) == 61_200


def test_who_knows_when_a_message_was_stored_makes_its_age_exact(desk: Desk) -> None:
    desk.publish(1)
    desk.now_ms += 700
    stored_ms = desk.now_ms
    desk.publish(1)
    desk.commit(1)
    desk.now_ms += 100

    assert lag_ms(desk.group(), desk.now_ms) == 800
    assert lag_ms(desk.group(), desk.now_ms, lambda _offset: stored_ms) == 100
    assert lag_ms(desk.group(), desk.now_ms, lambda _offset: None) == 800


def test_what_outlived_the_log_keeps_its_age(desk: Desk) -> None:
    desk.publish(3, deliver_at_ms=[1000, None, None])
    desk.wait(1000)
    late = desk.open(2)
    desk.wait(5000)

    desk.retain(3)

    assert [lag_count(desk.group(group)) for group in (1, 2)] == [1, 1]
    assert lag_ms(desk.group(), desk.now_ms) == 5000
    assert lag_ms(late, desk.now_ms) == 5000


@pytest.mark.parametrize(
    ("offset", "told"),
    [
        (0, SoughtResult(2, 0, 2, 0)),
        (1, SoughtResult(2, 1, 1, 0)),
        (4, SoughtResult(2, 4, 0, 2)),
        (5, SoughtResult(2, 5, 0, 3)),
        (99, SoughtResult(2, 6, 0, 4)),
    ],
)
def test_a_seek_tells_what_comes_again_and_what_does_not_come_any_more(
    desk: Desk, offset: int, told: SoughtResult
) -> None:
    desk.publish(6, deliver_at_ms=[None, None, None, None, 60_000, None])
    desk.ack(desk.receive(2))
    desk.receive(1)

    would = would_seek(desk.group(), offset)

    assert desk.seek(offset) == told
    assert (would.before, would.after, would.replayed, would.skipped) == (
        told.before,
        told.after,
        told.replayed,
        told.skipped,
    )


def test_a_seek_over_dead_letters_neither_replays_nor_skips_them(desk: Desk) -> None:
    desk.publish(3)
    desk.reject(desk.receive(2))

    assert desk.seek(0) == SoughtResult(2, 2, 0, 0)
    assert desk.seek(3) == SoughtResult(2, 3, 0, 1)


def test_a_seek_to_the_beginning_brings_what_the_log_has_to_a_group_that_began_at_its_end(
    desk: Desk,
) -> None:
    desk.publish(4)
    desk.open(2, offset=4, start="latest")
    desk.publish(1)

    assert desk.seek(0, group=2) == SoughtResult(4, 0, 4, 0)


def test_a_group_that_is_not_open_is_told_where_it_would_begin_and_stays_closed(
    desk: Desk,
) -> None:
    desk.publish(4, deliver_at_ms=[None, None, 60_000, None])

    first = desk.queue.begun(OpenGroup(7, "g7", 1, GroupConfig()), desk.now_ms)
    last = desk.queue.begun(OpenGroup(8, "g8", 1, GroupConfig(start="latest"), 4), desk.now_ms)

    assert (first.committed_offset, lag_count(first), delayed_count(first)) == (0, 3, 1)
    assert (last.committed_offset, lag_count(last), delayed_count(last)) == (4, 0, 0)
    assert set(desk.queue.groups) == {1}


def test_a_seek_without_a_claim_changes_nothing_in_a_partition_with_an_owner(desk: Desk) -> None:
    desk.publish(2)
    desk.do(Own(1, "m", 3))
    desk.do(Committed(1, 2, "m", 3))

    (told,) = desk.do(Sought(1, 0))

    assert not isinstance(told, SoughtResult)
    assert lag_count(desk.group()) == 0


def test_the_sum_of_delays_outlives_restarts() -> None:
    desk = Desk()
    desk.publish(3, deliver_at_ms=[1000, None, 2000])
    desk.restart()
    desk.publish(1, deliver_at_ms=[500])
    desk.wait(5000)

    assert (desk.queue.scheduled, desk.queue.delay_ms_sum) == (3, 3500)


def test_asking_costs_little_with_a_million_messages_that_were_delayed_or_not(desk: Desk) -> None:
    for _ in range(100):
        desk.publish(RELEASED // 200, deliver_at_ms=[1000] * (RELEASED // 200))
        desk.publish(RELEASED // 200)
    desk.wait(1000)
    group = desk.group()

    def ask() -> tuple[int, int]:
        return lag_count(group), lag_ms(group, desk.now_ms)

    assert ask() == (RELEASED, 1000)
    assert steps(ask) < ASKED_STEPS_MAX
    assert peak_bytes(ask) < ASKED_BYTES_MAX
