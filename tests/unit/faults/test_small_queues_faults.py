"""What LedgerQ, dque and miniqueue got wrong, and must not come back.

Their rows are L, D and M in docs/internals/faults.md.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from delivery.entries import ops
from delivery.leader.appender import Admitted, Appender, Duplicate
from goqueue.wire.batch import RecordBatch, encode_columns
from tests.steps import steps
from tests.unit.faults.partition import VISIBILITY_MS, Partition, Received, offsets

CRITICAL, HIGH, NORMAL, LOW, BACKGROUND = range(5)
MINUTE_MS = 60_000


def named(*ids: str) -> RecordBatch:
    """A batch of messages with these ids."""
    return RecordBatch.parse(
        encode_columns([b"v"] * len(ids), timestamps_ms=0, message_ids=list(ids))
    )


def steps_of(call: Callable[[], object], repeats: int = 50) -> float:
    """The steps that one of many calls takes."""
    return sum(steps(call) for _ in range(repeats)) / repeats


# -- LedgerQ


def test_a_group_goes_on_behind_what_retention_took_and_counts_it() -> None:
    partition = Partition()
    partition.open()
    partition.publish(10)
    (held,) = partition.receive(1)
    partition.trim(6)

    assert offsets(partition.receive()) == [6, 7, 8, 9]
    group = partition.group()
    assert (group.committed_offset, group.counters.fallen) == (6, 6)
    assert [one.code for one in partition.ack(held)] == [ops.NOT_FOUND]


@pytest.mark.parametrize("by_snapshot", [False, True])
def test_lanes_are_whole_after_a_restart(by_snapshot: bool) -> None:
    partition = Partition()
    partition.open()
    low = partition.publish(5, lanes=LOW)
    (high,) = partition.publish(1, lanes=HIGH)
    (message,) = partition.receive(1)
    assert message.offset == high
    partition.ack(message)

    partition.fail_over(by_snapshot=by_snapshot)

    assert offsets(partition.receive()) == low


def test_dead_letters_need_nothing_configured() -> None:
    partition = Partition()
    partition.open()
    partition.publish(1)

    partition.settle(ops.REJECT, *partition.receive(), reason="broken")

    assert partition.group().dead_by_reason == {"broken": 1}


def test_a_receive_costs_the_same_over_a_deep_backlog() -> None:
    lanes = [row % 5 for row in range(1000)]
    shallow, deep = Partition(), Partition()
    for partition, batches in ((shallow, 5), (deep, 400)):
        partition.open()
        for _ in range(batches):
            partition.publish(1000, lanes=lanes)

    def receive_and_ack(partition: Partition) -> Callable[[], object]:
        return lambda: partition.ack(*partition.receive(10))

    assert steps_of(receive_and_ack(deep)) < 1.1 * steps_of(receive_and_ack(shallow))


def test_a_batch_of_a_hundred_takes_one_entry() -> None:
    partition = Partition()
    partition.open()
    partition.publish(100)
    before = len(partition.entries)

    messages = partition.receive(100)
    assert (len(messages), len(partition.entries)) == (100, before + 1)
    partition.ack(*messages)
    assert len(partition.entries) == before + 2


def test_a_batch_obeys_lanes_as_single_receives_do() -> None:
    chance = random.Random(3)
    lanes = [chance.randrange(5) for _ in range(200)]
    batch, singly = Partition(), Partition()
    for partition in (batch, singly):
        partition.open()
        partition.publish(len(lanes), lanes=lanes)

    one_by_one = [offsets(singly.receive(1))[0] for _ in lanes]

    assert offsets(batch.receive(len(lanes))) == one_by_one
    assert one_by_one == sorted(range(len(lanes)), key=lambda row: (lanes[row], row))


def test_dedup_costs_the_same_in_a_large_table() -> None:
    def judged(known: int) -> float:
        partition = Partition()
        for first in range(0, known, 1000):
            partition.store(named(*(f"id-{n}" for n in range(first, first + 1000))))
        appender = Appender(partition.state)
        fresh = iter(range(1_000_000))

        def admit() -> None:
            one = named(*(f"new-{next(fresh)}" for _ in range(10)))
            assert isinstance(appender.admit(one, now_ms=partition.now_ms), Admitted)
            appender.withdraw()

        return steps_of(admit)

    assert judged(100_000) < 1.1 * judged(1000)


@pytest.mark.parametrize("by_snapshot", [False, True])
def test_the_dedup_window_survives_a_failover(by_snapshot: bool) -> None:
    partition = Partition()
    partition.open()
    partition.publish(3)
    partition.store(named("order-1"))
    partition.fail_over(after_ms=4 * MINUTE_MS, by_snapshot=by_snapshot)

    verdict = Appender(partition.state).admit(named("order-1"), now_ms=partition.now_ms)

    assert isinstance(verdict, Duplicate)
    assert verdict.base_offset == 3
    partition.pass_ms(2 * MINUTE_MS)
    partition.publish(1)
    later = Appender(partition.state).admit(named("order-1"), now_ms=partition.now_ms)
    assert isinstance(later, Admitted)


# -- dque


def test_a_waiting_receive_is_answered_by_the_next_publish() -> None:
    partition = Partition()
    partition.open()
    ticket = partition.wait_for(10)
    assert partition.pass_ms(20_000) == []

    partition.publish(1)

    assert offsets(partition.answers(partition.pass_ms(0), ticket)) == [0]


def test_counts_agree_with_what_is_there_after_every_step() -> None:
    chance = random.Random(1)
    partition = Partition()
    partition.open()
    held: list[Received] = []
    acked = 0

    for _ in range(200):
        step = chance.randrange(4)
        if step == 0:
            partition.publish(chance.randint(1, 5), lanes=chance.randrange(5))
        elif step == 1:
            held += partition.receive(chance.randint(1, 5))
        elif held:
            message = held.pop(chance.randrange(len(held)))
            if step == 2 or message.attempt == 3:
                partition.ack(message)
                acked += 1
            else:
                partition.nack(message)
        group = partition.group()
        stored = partition.state.next_offset
        assert len(group.leases) == len(held)
        assert group.ready_count() == stored - acked - len(held)
        assert group.counters.acked == acked


def test_a_peek_takes_nothing_and_a_lease_is_the_lock() -> None:
    partition = Partition()
    partition.open()
    partition.publish(2)

    seen = partition.group().peek(2, partition.now_ms)

    assert seen == [0, 1] == partition.group().peek(2, partition.now_ms)
    assert offsets(partition.receive(1)) == seen[:1]
    assert offsets(partition.receive()) == seen[1:]


# -- miniqueue


@pytest.mark.parametrize("by_snapshot", [False, True])
def test_a_lease_left_by_a_dead_leader_expires_into_a_redelivery(by_snapshot: bool) -> None:
    partition = Partition()
    partition.open()
    partition.publish(1)
    partition.receive()

    partition.fail_over(after_ms=VISIBILITY_MS, by_snapshot=by_snapshot)

    (again,) = partition.receive()
    assert (again.offset, again.attempt, again.reason) == (0, 2, "visibility timeout")


def test_several_delayed_messages_come_in_order() -> None:
    partition = Partition()
    partition.open()
    published = [partition.publish(1, delays_ms=1000)[0] for _ in range(5)]

    partition.pass_ms(1000)

    assert offsets(partition.receive()) == published
