"""What the Go system got wrong, and must not come back (docs/internals/faults.md, G)."""

from __future__ import annotations

import random

import pytest

from delivery.config import DAY_MS, GroupConfig, QueueConfig
from delivery.entries import ops
from goqueue.wire.errors import TooManyInFlight
from tests.unit.faults.partition import START_MS, VISIBILITY_MS, Partition, Received, offsets

CRITICAL, HIGH, NORMAL, LOW, BACKGROUND = range(5)


def drained(partition: Partition, limit: int = 7) -> list[int]:
    """Offsets in the order in which they come while each is acked at once."""
    found: list[int] = []
    while messages := partition.receive(limit):
        partition.ack(*messages)
        found += offsets(messages)
    return found


# -- lanes


def test_five_normal_and_one_critical_are_received_as_six() -> None:
    partition = Partition()
    partition.open()
    normal = partition.publish(5)
    critical = partition.publish(1, lanes=CRITICAL)

    assert drained(partition, limit=1) == critical + normal


def test_lanes_are_received_highest_first_and_in_order_within() -> None:
    partition = Partition()
    partition.open()
    partition.publish(10, lanes=[4, 3, 2, 1, 0, 4, 3, 2, 1, 0])

    assert drained(partition) == [4, 9, 3, 8, 2, 7, 1, 6, 0, 5]


@pytest.mark.parametrize("seed", range(10))
def test_nothing_is_skipped_whatever_the_mix(seed: int) -> None:
    chance = random.Random(seed)
    partition = Partition()
    partition.open(config=GroupConfig(max_attempts=0))
    held: list[Received] = []
    acked: list[int] = []

    for _ in range(60):
        partition.publish(chance.randint(1, 9), lanes=chance.randrange(5))
        held += partition.receive(chance.randint(1, 12))
        chance.shuffle(held)
        cut = chance.randint(0, len(held))
        leaving, held = held[:cut], held[cut:]
        for message in leaving:
            if chance.random() < 0.3:
                partition.nack(message, to_back=chance.random() < 0.5)
            elif partition.ack(message)[0].code == ops.OK:
                acked.append(message.offset)
        partition.pass_ms(chance.randrange(5000))
    partition.pass_ms(VISIBILITY_MS)
    acked += drained(partition)

    assert sorted(acked) == list(range(partition.state.next_offset))


def test_a_background_message_waits_no_longer_than_the_formula_says() -> None:
    """Ten minutes in which there is always a critical message: 1,000 background ones wait at most
    lane_max_wait + share * (older ones + 1) / rate each."""
    partition = Partition()
    config = GroupConfig()
    partition.open(config=config)
    background = partition.publish(1000, lanes=BACKGROUND)
    turn_ms, taken = 100, 5
    rate_ms = taken / turn_ms
    waited: dict[int, int] = {}

    critical = 0
    for _ in range(600_000 // turn_ms):
        partition.publish(taken, lanes=CRITICAL)
        messages = partition.receive(taken)
        assert len(messages) == taken
        partition.ack(*messages)
        for message in messages:
            if message.offset < len(background):
                waited[message.offset] = partition.now_ms - START_MS
            else:
                critical += 1
        partition.pass_ms(turn_ms)

    assert sorted(waited) == background
    for older, offset in enumerate(background):
        bound_ms = config.lane_max_wait_ms + config.lane_share * (older + 1) / rate_ms
        assert waited[offset] <= bound_ms + turn_ms, offset
    assert critical >= 4 / 5 * 600_000 * rate_ms - 1


# -- acks and leases


def test_an_ack_advances_the_group() -> None:
    partition = Partition()
    partition.open()
    partition.publish(3)

    partition.ack(*partition.receive(3))

    assert partition.group().committed_offset == 3
    partition.pass_ms(10 * VISIBILITY_MS)
    assert partition.receive() == []


def test_acks_out_of_order_advance_the_group_once_the_gap_closes() -> None:
    partition = Partition()
    partition.open()
    partition.publish(10)
    messages = partition.receive()

    partition.ack(*reversed(messages[1:]))
    assert partition.group().committed_offset == 0
    partition.ack(messages[0])
    assert partition.group().committed_offset == 10


def test_a_commit_settles_all_below_and_nothing_of_it_dies() -> None:
    partition = Partition()
    partition.open()
    partition.publish(5)
    messages = partition.receive(3)

    partition.do(ops.Committed(1, 4))

    assert partition.group().committed_offset == 4
    assert {one.code for one in partition.ack(*messages)} == {ops.NOT_FOUND}
    partition.pass_ms(10 * VISIBILITY_MS)
    assert not partition.group().dead
    assert drained(partition) == [4]


def test_a_group_receives_what_another_one_holds() -> None:
    partition = Partition()
    partition.open("g")
    partition.open("other")
    partition.publish(4)

    held = partition.receive(group="g")
    theirs = partition.receive(group="other")

    assert offsets(held) == offsets(theirs) == [0, 1, 2, 3]
    partition.ack(*theirs)
    assert partition.group("g").committed_offset == 0
    assert partition.group("other").committed_offset == 4
    assert [one.code for one in partition.ack(*held)] == [ops.OK] * 4


def test_one_in_flight_blocks_nothing_behind_it() -> None:
    partition = Partition()
    partition.open()
    partition.publish(3)
    (first,) = partition.receive(1)

    rest = partition.receive()

    assert offsets(rest) == [1, 2]
    partition.ack(*rest)
    partition.pass_ms(VISIBILITY_MS)
    (again,) = partition.receive()
    assert (again.offset, again.attempt) == (first.offset, 2)


def test_a_nacks_delay_is_kept() -> None:
    partition = Partition()
    partition.open()
    partition.publish(1)
    (message,) = partition.receive()

    (settled,) = partition.nack(message, delay_ms=2000, reason="not yet")

    assert settled.visible_at_ms == partition.now_ms + 2000
    partition.pass_ms(1999)
    assert partition.receive() == []
    partition.pass_ms(1)
    (again,) = partition.receive()
    assert (again.attempt, again.reason) == (2, "not yet")


def test_a_groups_backoff_is_kept_and_doubles() -> None:
    partition = Partition()
    partition.open(config=GroupConfig(backoff_ms=1000, backoff_ms_max=3000, max_attempts=0))
    partition.publish(1)

    waits = []
    for _ in range(4):
        (message,) = partition.receive()
        (settled,) = partition.nack(message)
        waits.append(settled.visible_at_ms - partition.now_ms)
        partition.pass_ms(waits[-1] - 1)
        assert partition.receive() == []
        partition.pass_ms(1)

    assert waits == [1000, 2000, 3000, 3000]


def test_a_retry_that_waits_holds_up_no_other() -> None:
    partition = Partition()
    partition.open()
    partition.publish(2)
    slow, quick = partition.receive()

    partition.nack(slow, delay_ms=3_600_000)
    partition.nack(quick, delay_ms=10)
    partition.pass_ms(10)

    assert offsets(partition.receive()) == [quick.offset]


def test_no_number_of_retries_makes_a_message_dead() -> None:
    partition = Partition()
    partition.open()
    partition.publish(10_000)

    partition.nack(*partition.receive(10_000))

    group = partition.group()
    assert (len(group.dead), group.ready_count()) == (0, 10_000)
    assert {message.attempt for message in partition.receive(10_000)} == {2}


def test_ten_thousand_may_be_in_flight_and_no_message_is_lost_at_the_bound() -> None:
    partition = Partition()
    partition.open()
    partition.publish(10_001)
    held = partition.receive(20_000)
    assert len(held) == 10_000

    with pytest.raises(TooManyInFlight):
        partition.receive()

    partition.ack(held[0])
    assert offsets(partition.receive()) == [10_000]


def test_an_extended_lease_does_not_expire_at_its_first_deadline() -> None:
    partition = Partition()
    partition.open()
    partition.publish(1)
    (message,) = partition.receive(visibility_ms=1000)
    partition.pass_ms(900)

    partition.settle(ops.EXTEND, message, visibility_ms=1000)

    partition.pass_ms(999)
    assert partition.receive() == []
    partition.pass_ms(1)
    (again,) = partition.receive()
    assert again.attempt == 2
    assert [one.code for one in partition.ack(message)] == [ops.LEASE_EXPIRED]


def test_a_second_settle_changes_nothing() -> None:
    partition = Partition()
    partition.open()
    partition.publish(2)
    message, _ = partition.receive()
    partition.ack(message)
    before = partition.group().committed_offset, len(partition.group().leases)

    assert [one.code for one in partition.ack(message)] == [ops.NOT_FOUND]
    assert [one.code for one in partition.settle(ops.REJECT, message)] == [ops.NOT_FOUND]

    assert (partition.group().committed_offset, len(partition.group().leases)) == before
    assert not partition.group().dead


# -- dead letters


def test_three_failures_make_a_message_dead_with_its_history() -> None:
    partition = Partition()
    partition.open()
    partition.publish(1)

    partition.nack(*partition.receive(), reason="first")
    partition.nack(*partition.receive(), reason="second")
    partition.receive()
    partition.pass_ms(VISIBILITY_MS)

    letter = partition.group().dead[0]
    reasons = [reason for _, reason in letter.history]
    assert (letter.attempts, reasons) == (3, ["first", "second", "visibility timeout"])
    assert partition.group().dead_by_reason == {"visibility timeout": 1}


def test_a_reject_makes_a_message_dead_at_once() -> None:
    partition = Partition()
    partition.open()
    partition.publish(1)

    (settled,) = partition.settle(ops.REJECT, *partition.receive(), reason="no such customer")

    assert settled.outcome == "dead"
    letter = partition.group().dead[0]
    assert (letter.attempts, letter.reason) == (1, "no such customer")


def test_a_dead_letter_is_not_delivered_again_and_the_group_goes_on() -> None:
    partition = Partition()
    partition.open()
    partition.publish(3)
    messages = partition.receive()

    partition.settle(ops.REJECT, messages[0])
    partition.ack(*messages[1:])

    assert partition.group().committed_offset == 3
    partition.pass_ms(DAY_MS)
    assert partition.receive() == []
    assert list(partition.group().dead) == [0]


def test_a_redriven_dead_letter_is_delivered_to_its_group_only() -> None:
    partition = Partition()
    partition.open("g")
    partition.open("other")
    partition.publish(1)
    partition.ack(*partition.receive(group="other"))
    partition.settle(ops.REJECT, *partition.receive(group="g"))

    result = partition.do(ops.Redriven(1, [0]))

    assert result == ops.CountResult(1)
    (again,) = partition.receive(group="g")
    assert (again.offset, again.attempt) == (0, 1)
    assert partition.receive(group="other") == []


@pytest.mark.parametrize("by_snapshot", [False, True])
def test_dead_letters_survive_a_failover(by_snapshot: bool) -> None:
    partition = Partition()
    partition.open()
    partition.publish(3)
    partition.settle(ops.REJECT, *partition.receive(), reason="broken")
    before = partition.group().dead

    partition.fail_over(by_snapshot=by_snapshot)

    assert partition.group().dead == before
    assert partition.receive() == []


# -- delays


def test_a_delayed_message_is_received_after_later_ones_have_gone() -> None:
    partition = Partition()
    partition.open()
    (delayed,) = partition.publish(1, delays_ms=3000)
    (now,) = partition.publish(1)

    assert drained(partition) == [now]
    partition.pass_ms(3000)
    assert drained(partition) == [delayed]


def test_delayed_messages_come_in_the_order_they_fall_due() -> None:
    partition = Partition()
    partition.open()
    partition.publish(5, delays_ms=[500, 100, 400, 200, 300])
    found = []

    for _ in range(6):
        found += drained(partition)
        partition.pass_ms(100)

    assert found == [1, 3, 4, 2, 0]


def test_a_cancelled_message_is_never_delivered_and_a_due_one_not_cancelled() -> None:
    partition = Partition()
    partition.open()
    cancelled, due = partition.publish(2, delays_ms=[2000, 1000])
    partition.pass_ms(1000)

    result = partition.do(ops.Cancelled([cancelled, due]))

    assert result == ops.CodesResult([ops.OK, ops.TOO_LATE])
    partition.pass_ms(DAY_MS)
    assert drained(partition) == [due]


@pytest.mark.parametrize("by_snapshot", [False, True])
def test_what_fell_due_while_nobody_led_is_delivered_at_once(by_snapshot: bool) -> None:
    partition = Partition()
    partition.open()
    partition.publish(2, delays_ms=[1000, 3_600_000])

    partition.fail_over(after_ms=60_000, by_snapshot=by_snapshot)

    assert drained(partition) == [0]


@pytest.mark.parametrize("by_snapshot", [False, True])
def test_a_failover_delivers_nothing_early(by_snapshot: bool) -> None:
    partition = Partition()
    partition.open()
    partition.publish(1, delays_ms=10_000)
    partition.pass_ms(4000)

    partition.fail_over(after_ms=2000, by_snapshot=by_snapshot)

    partition.pass_ms(3999)
    assert partition.receive() == []
    partition.pass_ms(1)
    assert offsets(partition.receive()) == [0]


def test_a_delay_of_thirty_days_is_kept_to_the_millisecond() -> None:
    partition = Partition(QueueConfig(delay_ms_max=60 * DAY_MS))
    partition.open()
    partition.publish(1, delays_ms=30 * DAY_MS)

    partition.pass_ms(30 * DAY_MS - 1)
    assert partition.receive() == []
    partition.pass_ms(1)
    assert offsets(partition.receive()) == [0]


def test_a_message_due_in_a_millisecond_is_not_early() -> None:
    partition = Partition()
    partition.open()
    partition.publish(1, delays_ms=1)

    assert partition.receive() == []
    partition.pass_ms(1)
    assert offsets(partition.receive()) == [0]


# -- what is kept, and how much of it


@pytest.mark.parametrize("by_snapshot", [False, True])
def test_leases_attempts_and_position_survive_a_failover(by_snapshot: bool) -> None:
    partition = Partition()
    partition.open()
    partition.publish(4)
    first, second, third, _ = partition.receive()
    partition.ack(first, third)
    partition.nack(second, reason="busy")
    (second,) = partition.receive(1)
    partition.pass_ms(10_000)

    partition.fail_over(after_ms=5000, by_snapshot=by_snapshot)

    assert partition.group().committed_offset == 1
    assert partition.receive() == []
    assert [one.code for one in partition.ack(second)] == [ops.OK]
    partition.pass_ms(VISIBILITY_MS - 15_001)
    assert partition.receive() == []
    partition.pass_ms(1)
    (fourth,) = partition.receive()
    assert (fourth.offset, fourth.attempt, fourth.reason) == (3, 2, "visibility timeout")


def test_what_is_settled_leaves_nothing_behind() -> None:
    partition = Partition()
    partition.open()
    sizes = []

    for _ in range(5):
        partition.publish(2000, lanes=[row % 5 for row in range(2000)])
        assert len(drained(partition, limit=500)) == 2000
        partition.pass_ms(11 * 60_000)  # repeated requests are remembered for ten minutes
        partition.publish(1, lanes=NORMAL)
        partition.ack(*partition.receive())
        partition.trim(partition.state.next_offset)
        sizes.append(len(partition.state.snapshot()))

    assert max(sizes) < 2000
    assert sizes[-1] <= sizes[0] + 100
