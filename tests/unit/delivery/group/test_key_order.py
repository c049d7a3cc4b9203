"""`ordering: key`: a key's next message waits for its previous one, and nothing else does."""

from __future__ import annotations

import random

import pytest

from delivery.entries.ops import ACK, NACK, REJECT, Parked, Unparked
from tests.unit.delivery.desk import Desk, all_of


@pytest.fixture
def desk() -> Desk:
    found = Desk()
    found.open(1, ordering="key", max_attempts=2)
    return found


def test_a_keys_next_message_waits_for_its_previous_one_and_other_keys_flow(desk: Desk) -> None:
    desk.publish(5, keys=[b"a", b"a", b"b", None, b""])

    first = desk.receive()
    assert [grant.offset for grant in first.grants] == [0, 2, 3, 4]
    assert desk.offsets() == []

    desk.settle(ACK, [(first.delivery, [0])])
    assert desk.offsets() == [1]


def test_a_retry_of_a_key_comes_before_its_next_message(desk: Desk) -> None:
    desk.publish(2, keys=[b"a", b"a"])

    desk.nack(desk.receive(), delay_ms=500)
    assert desk.offsets() == []
    desk.wait(500)

    assert desk.offsets() == [0]


def test_a_dead_message_lets_its_key_go_on(desk: Desk) -> None:
    desk.publish(2, keys=[b"a", b"a"])

    desk.reject(desk.receive())

    assert desk.offsets() == [1]


@pytest.mark.parametrize("seed", range(5))
def test_keys_keep_their_order_under_any_number_of_consumers(seed: int) -> None:
    choice = random.Random(seed)
    desk = Desk()
    desk.open(1, ordering="key", max_attempts=0)
    keys = [b"k%d" % choice.randrange(6) for _ in range(150)]
    desk.publish(len(keys), keys=keys, lanes=[choice.randrange(5) for _ in keys])
    flying: list[tuple[int, int]] = []
    settled: dict[bytes, list[int]] = {}

    while desk.group().committed_offset < len(keys):
        granted = desk.receive(choice.randrange(1, 5))
        flying += [(granted.delivery, grant.offset) for grant in granted.grants]
        assert len({keys[offset] for _, offset in flying}) == len(flying)
        delivery, offset = flying.pop(choice.randrange(len(flying)))
        if choice.random() < 0.3:
            to_back = choice.random() < 0.5
            desk.settle(NACK, [(delivery, [offset])], to_back=to_back)
        else:
            desk.settle(ACK, [(delivery, [offset])])
            settled.setdefault(keys[offset], []).append(offset)

    assert all(offsets == sorted(offsets) for offsets in settled.values())


def test_a_delayed_message_does_not_block_its_key(desk: Desk) -> None:
    desk.publish(2, keys=[b"a", b"a"], deliver_at_ms=[1000, None])

    flying = desk.receive()
    assert [grant.offset for grant in flying.grants] == [1]
    desk.wait(1000)
    assert desk.offsets() == []

    desk.ack(flying)
    assert desk.offsets() == [0]


def test_a_delayed_message_that_comes_due_goes_behind_the_one_of_its_key_that_is_ready_by_then(
    desk: Desk,
) -> None:
    desk.publish(4, keys=[b"a"] * 4, deliver_at_ms=[1000, None, None, None])

    desk.wait(1000)

    order: list[int] = []
    while (granted := desk.receive()).grants:
        order += [grant.offset for grant in granted.grants]
        desk.ack(granted)
    assert order == [1, 0, 2, 3]


def test_a_parked_key_waits_alone_until_it_is_released(desk: Desk) -> None:
    desk.publish(4, keys=[b"a", b"a", b"b", b"a"])

    assert desk.count(Parked(1, b"a")) == 3

    assert desk.offsets() == [2]
    assert desk.group().parked() == [(b"a", 3, 0)]
    desk.restart()
    assert desk.count(Unparked(1, b"a")) == 3
    assert desk.offsets() == [0]


def test_parking_no_key_at_all_withholds_nothing(desk: Desk) -> None:
    desk.publish(2, keys=[None, b""])

    desk.do(Parked(1, b""))

    desk.nack(desk.receive())
    assert desk.offsets() == [0, 1]


def test_what_is_in_flight_of_a_key_that_is_parked_stays_so_and_is_withheld_after(
    desk: Desk,
) -> None:
    desk.publish(2, keys=[b"a", b"a"])
    flying = desk.receive()
    desk.do(Parked(1, b"a"))

    desk.nack(flying)

    assert desk.offsets() == []
    desk.do(Unparked(1, b"a"))
    assert [grant.attempt for grant in desk.receive().grants] == [2]


@pytest.fixture
def poisoned() -> Desk:
    """Key `a` is parked by its first message."""
    desk = Desk()
    desk.open(1, ordering="key", max_attempts=1, on_poison="park")
    desk.publish(3, keys=[b"a", b"a", b"b"], expires_at_ms=[60_000, 90_000, None])
    granted = desk.receive()
    told = desk.settle(REJECT, [(granted.delivery, [0])], reason="poison")
    assert told.settles[0].outcome == "parked"
    desk.settle(ACK, [(granted.delivery, [2])])
    return desk


def test_a_poisoned_key_is_parked_alone_listed_and_released(poisoned: Desk) -> None:
    poisoned.publish(2, keys=[b"b", b"a"])

    assert poisoned.offsets() == [3]
    assert poisoned.group().parked() == [(b"", 3, 0)]
    assert not poisoned.group().dead
    poisoned.do(Unparked(1, b"a"))

    grant = poisoned.receive().grants[0]
    assert (grant.offset, grant.attempt) == (0, 1)


def test_a_poisoned_key_whose_messages_expire_is_released_with_the_last(poisoned: Desk) -> None:
    poisoned.wait(60_000)
    assert poisoned.group().parked() == [(b"", 1, 1)]

    poisoned.wait(90_000)

    assert poisoned.group().parked() == []
    poisoned.publish(1, keys=[b"a"])
    assert poisoned.offsets() == [3]


def test_a_poisoned_key_whose_messages_are_trimmed_is_released_too(poisoned: Desk) -> None:
    poisoned.retain(3)

    assert poisoned.group().parked() == []
    poisoned.restart()
    poisoned.publish(1, keys=[b"a"])
    assert poisoned.offsets() == [3]


def test_a_key_parked_by_name_stays_parked_when_nothing_of_it_is_left(poisoned: Desk) -> None:
    poisoned.do(Parked(1, b"a"))

    poisoned.wait(200_000)
    poisoned.publish(1, keys=[b"a"])

    assert poisoned.group().parked() == [(b"a", 1, 3)]
    assert poisoned.offsets() == []


def test_messages_that_expire_in_the_middle_of_a_key_are_left_out(desk: Desk) -> None:
    desk.publish(4, keys=[b"a"] * 4, expires_at_ms=[None, 10, 10, None])
    flying = desk.receive()
    desk.wait(10)

    desk.ack(flying)

    assert desk.offsets() == [3]


def test_a_key_goes_on_after_a_seek_a_redrive_and_a_restart(desk: Desk) -> None:
    desk.publish(3, keys=[b"a"] * 3)
    desk.reject(desk.receive())
    desk.seek(0)
    assert desk.offsets() == [1]

    desk.redrive(0)
    desk.restart()
    assert desk.offsets() == []
    desk.settle(ACK, desk_receipts(desk))

    found = desk.receive()
    assert [grant.offset for grant in found.grants] == [0]
    desk.ack(found)
    assert desk.offsets() == [2]


def desk_receipts(desk: Desk) -> list[tuple[int, list[int]]]:
    return [(lease[0], lease[3]) for lease in desk.group().leases.dump()]


def test_many_that_expire_behind_one_key_leave_the_other_keys_as_they_are(desk: Desk) -> None:
    waiting = 20_000
    desk.publish(waiting, keys=[b"k%d" % (row % 100) for row in range(waiting)])
    order = desk.group().order
    desk.group().look()
    assert order is not None
    lives = [10 if row % 2 else None for row in range(4000)]
    desk.publish(4000, keys=[b"gone"] * 4000, expires_at_ms=lives)

    desk.wait(10)

    assert desk.group().ready_count() == 101
    assert len(order.waits) == waiting - 100 + 1999


def test_settling_every_key_leaves_nothing_behind(desk: Desk) -> None:
    desk.publish(300, keys=[b"k%d" % (row % 7) for row in range(300)])

    while desk.group().committed_offset < 300:
        desk.ack(desk.receive())

    order = desk.group().order
    assert order is not None
    assert (order.heads, order.chains, len(order.waits)) == ({}, {}, 0)
    assert all_of(desk.receive()) == [(desk.state.applied_index, [])]


def test_messages_behind_their_key_or_a_parked_one_are_counted_as_waiting(desk: Desk) -> None:
    desk.publish(5, keys=[b"a", b"a", b"a", b"b", b"c"])
    desk.do(Parked(1, b"b"))
    assert desk.group().waiting_count() == 3

    desk.nack(desk.deliver([0]), delay_ms=500)

    assert desk.group().waiting_count() == 4
    assert desk.group().ready_count() == 1
