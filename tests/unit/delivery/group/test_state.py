"""Leases and settles of a group: what comes again, with which attempt, and what never does."""

from __future__ import annotations

import pytest

from delivery.entries.ops import (
    ACK,
    EXTEND,
    LEASE_EXPIRED,
    NACK,
    NOT_FOUND,
    OK,
    REJECT,
    RELEASE,
    CountResult,
    DropGroup,
    Halted,
    OpenGroup,
    Purged,
    Redriven,
    Resumed,
    Sought,
    SoughtResult,
    UnknownGroup,
)
from delivery.group.rules import TIMED_OUT
from tests.unit.delivery.desk import Desk, all_of


@pytest.fixture
def desk() -> Desk:
    found = Desk()
    found.open(1)
    return found


def test_every_delivery_tells_its_attempt_and_why_the_last_one_failed(desk: Desk) -> None:
    desk.publish(1)

    first = desk.receive()
    desk.nack(first, "disk full")
    second = desk.receive()
    desk.now_ms += 30_000
    desk.expire()
    third = desk.receive()

    told = [(g.attempt, g.reason) for granted in (first, second, third) for g in granted.grants]
    assert told == [(1, ""), (2, "disk full"), (3, TIMED_OUT)]


def test_a_released_message_does_not_count_as_an_attempt(desk: Desk) -> None:
    desk.publish(1)

    for _ in range(5):
        granted = desk.receive()
        assert granted.grants[0].attempt == 1
        desk.settle(RELEASE, all_of(granted))

    assert desk.group().counters.delivered == 0


def test_a_lease_that_ran_out_is_redelivered_once(desk: Desk) -> None:
    desk.publish(3)
    desk.receive()
    desk.now_ms += 29_999
    assert desk.expire() == 0

    desk.now_ms += 1

    assert desk.expire() == 3
    assert desk.expire() == 0
    assert desk.offsets() == [0, 1, 2]
    assert desk.offsets() == []


def test_a_lease_keeps_its_remaining_time_over_a_restart(desk: Desk) -> None:
    desk.publish(1)
    desk.receive()
    desk.now_ms += 20_000
    desk.restart()

    assert desk.group().next_deadline_ms() == desk.now_ms + 10_000
    assert desk.expire() == 0
    desk.now_ms += 10_000
    assert desk.expire() == 1


@pytest.mark.parametrize("action", [ACK, NACK, REJECT, EXTEND, RELEASE])
def test_a_settle_of_a_lease_that_ran_out_changes_nothing(desk: Desk, action: int) -> None:
    desk.publish(2)
    late = desk.receive()
    desk.now_ms += 30_000
    desk.expire()
    current = desk.receive(1)
    before = desk.state.queue.groups[1].leases.dump(), list(desk.group().ready.heads())

    told = desk.settle(action, all_of(late), reason="late", visibility_ms=5)

    assert [settle.code for settle in told.settles] == [LEASE_EXPIRED, LEASE_EXPIRED]
    assert (desk.group().leases.dump(), desk.group().ready.heads()) == before
    assert desk.ack(current).settles[0].attempts == 2


@pytest.mark.parametrize("action", [ACK, NACK, REJECT, EXTEND, RELEASE])
def test_a_foreign_receipt_changes_nothing(desk: Desk, action: int) -> None:
    desk.open(2)
    desk.publish(1)
    granted = desk.receive(group=1)

    told = desk.settle(action, [(granted.delivery, [0]), (77, [0]), (1, [5])], 2)

    assert all(settle.code in (NOT_FOUND, LEASE_EXPIRED) for settle in told.settles)
    assert desk.offsets(group=2) == [0]
    assert desk.ack(granted).settles[0].code == OK


def test_a_receipt_that_was_settled_is_not_found_again(desk: Desk) -> None:
    desk.publish(1)
    granted = desk.receive()

    told = desk.settle(ACK, [(granted.delivery, [0, 0])])

    assert [settle.code for settle in told.settles] == [OK, NOT_FOUND]
    assert desk.ack(granted).settles[0].code == NOT_FOUND
    assert desk.group().counters.acked == 1


def test_acks_out_of_order_raise_the_floor_when_they_meet(desk: Desk) -> None:
    desk.publish(5)
    granted = desk.receive()

    floors = [
        desk.settle(ACK, [(granted.delivery, [offset])]).committed_offset
        for offset in (4, 1, 3, 0, 2)
    ]

    assert floors == [0, 0, 0, 2, 5]


def test_committing_an_offset_settles_all_below_it_leased_or_not(desk: Desk) -> None:
    desk.publish(6)
    granted = desk.receive(2)

    assert desk.commit(4) == 4

    assert desk.group().committed_offset == 4
    assert desk.ack(granted).settles[0].code == NOT_FOUND
    assert desk.offsets() == [4, 5]


def test_committing_beyond_the_end_skips_nothing_that_comes_later(desk: Desk) -> None:
    desk.publish(2)

    desk.commit(1000)
    desk.publish(2)

    assert desk.offsets() == [2, 3]


def test_seeking_while_leases_fly_delivers_again_with_attempts_from_one(desk: Desk) -> None:
    desk.publish(4)
    flying = desk.receive()
    desk.nack(flying)

    assert desk.seek(1) == SoughtResult(0, 1, 0, 1)

    again = desk.receive()
    assert [(g.offset, g.attempt) for g in again.grants] == [(1, 1), (2, 1), (3, 1)]
    assert desk.ack(flying).settles[1].code == LEASE_EXPIRED
    assert desk.ack(again).committed_offset == 4


def test_the_lease_of_one_group_hides_nothing_from_another(desk: Desk) -> None:
    desk.open(2)
    desk.publish(3)

    desk.receive(group=1)

    assert desk.offsets(group=2) == [0, 1, 2]


def test_one_message_in_flight_does_not_hold_back_the_next(desk: Desk) -> None:
    desk.publish(3)

    assert [desk.offsets(1) for _ in range(3)] == [[0], [1], [2]]


def test_visibility_zero_is_over_at_once_and_can_still_be_acked_before_it_is_noted(
    desk: Desk,
) -> None:
    desk.publish(2)
    granted = desk.receive(visibility_ms=0)

    desk.settle(ACK, [(granted.delivery, [0])])

    assert desk.expire() == 1
    assert desk.offsets() == [1]


def test_extending_a_lease_moves_its_end_and_keeps_its_receipt(desk: Desk) -> None:
    desk.publish(1)
    granted = desk.receive()
    desk.now_ms += 20_000

    told = desk.settle(EXTEND, all_of(granted), visibility_ms=60_000)

    assert told.settles[0].visible_at_ms == desk.now_ms + 60_000
    desk.now_ms += 59_999
    assert desk.expire() == 0
    assert desk.ack(granted).settles[0].code == OK


def test_no_more_is_in_flight_than_the_group_allows(desk: Desk) -> None:
    desk.open(2, in_flight_max=3)
    desk.publish(10)

    granted = desk.deliver(list(range(10)), 2)

    assert len(granted.grants) == 3
    assert desk.offsets(group=2) == []
    desk.ack(granted, 2)
    assert desk.offsets(group=2) == [3, 4, 5]


def test_a_message_is_dead_once_after_max_attempts_with_its_history(desk: Desk) -> None:
    desk.publish(1)
    times = []

    for attempt in (1, 2, 3):
        desk.now_ms += 10
        times.append(desk.now_ms)
        desk.nack(desk.receive(), f"reason {attempt}")

    letter = desk.group().dead[0]
    assert (letter.attempts, letter.reason, letter.redrives) == (3, "reason 3", 0)
    reasons = ["reason 1", "reason 2", "reason 3"]
    assert list(letter.history) == list(zip(times, reasons, strict=True))
    assert desk.offsets() == []
    assert desk.group().committed_offset == 1
    assert desk.group().counters.dead == 1


def test_a_rejected_message_is_dead_at_once_for_its_group_only(desk: Desk) -> None:
    desk.open(2)
    desk.publish(1)

    told = desk.reject(desk.receive(), "no such user")

    assert told.settles[0].outcome == "dead"
    assert desk.group().dead_by_reason == {"no such user": 1}
    assert desk.offsets(group=2) == [0]


def test_a_redriven_message_comes_again_to_its_group_only_with_attempts_from_one(
    desk: Desk,
) -> None:
    desk.open(2)
    desk.publish(3)
    desk.ack(desk.receive(group=2), 2)
    desk.reject(desk.receive())

    assert desk.redrive(1).count == 1
    assert desk.redrive(1).count == 0

    (grant,) = desk.receive().grants
    assert (grant.offset, grant.attempt, grant.redrives) == (1, 1, 1)
    assert desk.offsets(group=2) == []
    assert desk.group().committed_offset == 3


def test_a_message_that_dies_after_each_redrive_is_redriven_only_by_force(desk: Desk) -> None:
    desk.configure(1, redrives_max=2)
    desk.publish(1)
    desk.reject(desk.receive())
    for _ in range(2):
        assert desk.redrive(0).count == 1
        desk.reject(desk.receive())

    refused = desk.redrive(0)

    assert (refused.count, refused.refused) == (0, 1)
    assert desk.group().dead[0].redrives == 2
    assert desk.redrive(0, force=True).count == 1
    assert desk.receive().grants[0].redrives == 3


def test_purged_dead_letters_never_come_again(desk: Desk) -> None:
    desk.publish(3)
    desk.reject(desk.receive())

    assert desk.count(Purged(1, [0, 0, 1, 9])) == 2

    assert list(desk.group().dead) == [2]
    assert desk.redrive(0, 1).count == 0
    assert desk.offsets() == []


def test_a_group_halts_when_more_than_half_of_its_window_died(desk: Desk) -> None:
    desk.open(2, halt_percent=50, halt_window=10)
    desk.publish(20)
    for at in range(10):
        granted = desk.receive(1, group=2)
        desk.settle(REJECT if at % 2 else ACK, all_of(granted), 2, reason="bad")
    assert not desk.group(2).halted

    granted = desk.receive(1, group=2)
    told = desk.reject(granted, group=2)

    assert told.settles[0].outcome == "halted"
    assert desk.group(2).halted
    assert len(desk.group(2).dead) == 5
    assert desk.offsets(group=2) == []
    desk.do(Resumed(2))
    assert desk.receive(1, group=2).grants[0].offset == granted.grants[0].offset


def test_a_halted_group_is_delivered_nothing_and_settles_what_it_has(desk: Desk) -> None:
    desk.publish(3)
    flying = desk.receive(1)

    desk.do(Halted(1, "maintenance"))

    assert desk.deliver([1, 2]).grants == []
    assert desk.ack(flying).settles[0].code == OK
    desk.restart()
    assert desk.group().halted == "maintenance"
    desk.do(Resumed(1))
    assert desk.offsets() == [1, 2]


def test_at_the_bound_of_dead_letters_the_group_halts_and_loses_none(desk: Desk) -> None:
    desk.open(2, dead_max=2)
    desk.publish(4)

    desk.reject(desk.receive(group=2), group=2)

    assert len(desk.group(2).dead) == 2
    assert desk.group(2).ready_count() == 2


def test_a_new_group_passes_messages_that_are_never_delivered() -> None:
    desk = Desk()
    desk.publish(3, expires_at_ms=[None, 10, None])
    desk.wait(10)

    desk.open(1)

    assert desk.offsets() == [0, 2]
    assert desk.settle(ACK, [(desk.state.applied_index, [0, 2])]).committed_offset == 3


def test_how_a_group_is_ordered_stays_on_every_replica(desk: Desk) -> None:
    desk.publish(2, keys=[b"k", b"k"])

    desk.configure(ordering="key")
    desk.restart()

    assert desk.group().config.ordering == "none"
    assert desk.offsets() == [0, 1]


def test_a_group_of_the_same_name_replaces_the_older_one_and_never_the_newer(desk: Desk) -> None:
    config = desk.group().config
    desk.publish(1)
    desk.do(OpenGroup(5, "g1", 1, config), OpenGroup(4, "g1", 9, config))

    assert list(desk.state.queue.groups) == [5]
    (result,) = desk.do(DropGroup(4))
    assert result is None
    assert list(desk.state.queue.groups) == [5]


def test_operations_of_a_dropped_group_answer_that_it_is_unknown(desk: Desk) -> None:
    desk.publish(1)
    desk.receive()
    desk.do(DropGroup(1))

    (result,) = desk.do(Purged(1, [0]))

    assert result == UnknownGroup(1)


def test_waits_are_counted_from_when_a_message_could_be_delivered(desk: Desk) -> None:
    desk.publish(2)
    desk.now_ms += 5_000
    desk.nack(desk.receive(1))
    desk.now_ms += 1_000

    desk.receive(2)

    assert desk.group().counters.wait_ms_max[2] == 6_000


def test_a_seek_that_comes_twice_takes_back_nothing_that_was_settled_in_between(
    desk: Desk,
) -> None:
    desk.publish(2)
    again = Sought(1, 0, request=5)
    desk.do(again)
    desk.ack(desk.receive())

    desk.do(again)

    assert desk.offsets() == []
    desk.do(Sought(1, 0, request=6))
    assert desk.offsets() == [0, 1]


def test_a_release_with_a_delay_counts_no_attempt_and_comes_back_then() -> None:
    desk = Desk()
    desk.open(1, max_attempts=1)
    desk.publish(2)
    first = desk.receive(limit=1)

    desk.settle(RELEASE, all_of(first), delay_ms=500)

    assert desk.offsets() == [1]
    desk.wait(500)
    assert [(grant.offset, grant.attempt) for grant in desk.receive().grants] == [(0, 1)]


def test_a_purge_or_redrive_that_is_sent_again_counts_as_the_first_time() -> None:
    desk = Desk()
    desk.open(1, max_attempts=1)
    desk.publish(2)
    desk.reject(desk.receive())

    assert desk.do(Purged(1, [0], 7)) == desk.do(Purged(1, [0], 7)) == [CountResult(1)]
    assert desk.do(Redriven(1, [1], request=8)) == [CountResult(1)]
    desk.reject(desk.receive())
    assert desk.do(Redriven(1, [1], request=8)) == [CountResult(1)]
    assert list(desk.group().dead) == [1]
