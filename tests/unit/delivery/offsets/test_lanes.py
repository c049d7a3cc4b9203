"""Lanes: higher first, FIFO inside, and a bound on waiting that is a formula."""

from __future__ import annotations

import pytest

from delivery.entries.ops import ACK, NACK
from tests.unit.delivery.desk import Desk, all_of

CRITICAL, HIGH, NORMAL, LOW, BACKGROUND = range(5)
MAX_WAIT_MS, SHARE = 30_000, 5


@pytest.fixture
def desk() -> Desk:
    found = Desk()
    found.open(1)
    return found


def test_five_normal_and_one_critical_read_back_as_six(desk: Desk) -> None:
    desk.publish(5)
    desk.publish(1, lanes=CRITICAL)

    assert desk.offsets() == [5, 0, 1, 2, 3, 4]


def test_higher_lanes_come_first_and_each_lane_in_the_order_of_publishing(desk: Desk) -> None:
    desk.publish(20, lanes=[offset % 5 for offset in range(20)])

    assert desk.offsets() == [offset for lane in range(5) for offset in range(lane, 20, 5)]


def test_whatever_the_mix_and_the_limit_no_message_is_skipped(desk: Desk) -> None:
    desk.publish(97, lanes=[(offset * 7) % 5 for offset in range(97)])

    found = []
    for limit in range(1, 20):
        found += desk.offsets(limit)

    assert sorted(found) == list(range(97))


def test_three_lanes_fold_critical_and_background_into_their_neighbours() -> None:
    desk = Desk(lanes=3)
    desk.open(1)
    desk.publish(5, lanes=[BACKGROUND, LOW, NORMAL, HIGH, CRITICAL])

    assert desk.offsets() == [3, 4, 2, 0, 1]
    assert desk.state.queue.stored_by_lane == [0, 2, 1, 2, 0]


def test_a_retry_keeps_its_lane_and_comes_first_in_it(desk: Desk) -> None:
    desk.publish(4, lanes=[HIGH, NORMAL, NORMAL, HIGH])
    desk.nack(desk.receive(3))

    assert desk.offsets() == [0, 3, 1, 2]


def test_what_is_given_back_to_the_back_comes_after_all_that_was_stored_by_then(
    desk: Desk,
) -> None:
    desk.publish(3)
    desk.nack(desk.receive(1), to_back=True)
    desk.publish(2)

    assert desk.offsets() == [1, 2, 0, 3, 4]


def test_the_order_behind_survives_messages_that_leave_it_and_a_restart(desk: Desk) -> None:
    desk.publish(200)
    granted = desk.receive()
    desk.nack(granted, to_back=True)
    desk.deliver(list(range(0, 200, 2)))
    desk.nack(desk.deliver([1]), to_back=True)
    desk.restart()

    assert desk.offsets() == [*range(3, 200, 2), 1]


def test_a_lower_lane_that_waited_too_long_gets_its_share_and_no_more(desk: Desk) -> None:
    desk.publish(10, lanes=BACKGROUND)
    desk.publish(100, lanes=CRITICAL)
    desk.wait(MAX_WAIT_MS - 1)
    assert set(desk.state.queue.lanes[CRITICAL]) >= set(desk.offsets(20))

    desk.wait(1)

    found = desk.offsets(50)
    assert [offset for offset in found if offset < 10] == list(range(10))
    assert all(offset < 10 for offset in found[4::5])


def longest_wait_ms(desk: Desk, older: int, *, failing: bool) -> int:
    """The longest wait of `older` background messages while critical is saturated for ten minutes
    of 10 deliveries a second."""
    published_ms = desk.now_ms
    background = desk.publish(older, lanes=BACKGROUND)
    longest_ms = 0
    for _ in range(600):
        desk.now_ms += 1000
        desk.publish(20, lanes=CRITICAL)
        granted = desk.receive(10)
        for grant in granted.grants:
            if grant.offset in background and grant.attempt == 1:
                longest_ms = max(longest_ms, desk.now_ms - published_ms)
            fails = failing and grant.offset in background and grant.attempt < 3
            receipts = [(granted.delivery, [grant.offset])]
            desk.settle(NACK if fails else ACK, receipts, reason="bad")
    return longest_ms


def test_no_background_message_waits_longer_than_the_formula_says(desk: Desk) -> None:
    older = 1000

    longest_ms = longest_wait_ms(desk, older, failing=False)

    assert desk.group().ready.counts()[BACKGROUND] == 0
    assert MAX_WAIT_MS < longest_ms <= MAX_WAIT_MS + SHARE * (older + 1) * 1000 / 10


def test_failing_messages_at_the_head_of_a_lane_do_not_make_the_others_wait_longer(
    desk: Desk,
) -> None:
    older = 300

    longest_ms = longest_wait_ms(desk, older, failing=True)

    deliveries = 3 * older
    assert desk.group().ready.counts()[BACKGROUND] == 0
    assert longest_ms <= MAX_WAIT_MS + SHARE * (deliveries + 1) * 1000 / 10


def test_a_delayed_message_at_the_head_does_not_hide_how_long_its_lane_has_waited(
    desk: Desk,
) -> None:
    desk.publish(2, lanes=LOW, deliver_at_ms=[29_000, None])
    desk.publish(10, lanes=CRITICAL)
    desk.wait(29_000)

    desk.now_ms += 1000

    assert [offset for offset in desk.offsets(10) if offset < 2] == [0, 1]


def test_what_was_delayed_begins_to_wait_when_it_is_due(desk: Desk) -> None:
    desk.publish(1, lanes=LOW, deliver_at_ms=[40_000])
    desk.wait(40_000)
    desk.publish(10, lanes=CRITICAL)

    assert 0 not in desk.offsets(10)
    assert desk.group().lane_heads(desk.now_ms + 7)[LOW] == 7


def test_receipts_of_every_lane_settle_alike(desk: Desk) -> None:
    desk.publish(5, lanes=[0, 1, 2, 3, 4])

    assert desk.settle(ACK, all_of(desk.receive())).committed_offset == 5
