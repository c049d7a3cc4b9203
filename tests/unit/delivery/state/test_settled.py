"""What all groups have settled: how far it goes, and a trim that takes nothing else."""

from __future__ import annotations

from delivery.entries.records import encode_trim
from delivery.state.settled import first_unsettled, pending_below
from goqueue.wire.types import Index, Offset
from log.entry import EntryKind
from tests.unit.delivery.desk import Desk


def trim_settled(desk: Desk, offset: int, *, index: int | None = None) -> bool:
    """Whether the log begins there now."""
    at = desk.state.applied_index + 1 if index is None else index
    desk.apply(EntryKind.TRIM, encode_trim(Index(at), Offset(offset), settled=True))
    return desk.state.log_start_offset == offset


def test_what_is_acked_up_to_the_first_that_is_not_is_settled() -> None:
    desk = Desk()
    desk.open()
    desk.publish(6)
    desk.ack(desk.receive(3))
    desk.receive(1)  # in flight

    assert first_unsettled(desk.group()) == 3
    assert not trim_settled(desk, 4)
    assert trim_settled(desk, 3)
    assert desk.offsets() == [4, 5]


def test_the_slowest_group_says_how_far_it_goes() -> None:
    desk = Desk()
    desk.open(1)
    desk.open(2)
    desk.publish(4)
    desk.ack(desk.receive(group=1), group=1)
    desk.ack(desk.receive(1, group=2), group=2)

    assert [first_unsettled(group) for group in desk.queue.groups.values()] == [4, 1]
    assert not trim_settled(desk, 2)
    assert trim_settled(desk, 1)
    assert desk.offsets(group=2) == [1, 2, 3]


def test_nothing_is_settled_where_no_group_is() -> None:
    desk = Desk()
    desk.publish(3)

    assert not trim_settled(desk, 3)
    assert desk.trim(3)  # as retention does


def test_delayed_messages_and_dead_letters_are_passed_over_and_must_be_carried() -> None:
    desk = Desk()
    desk.open()
    desk.publish(1, deliver_at_ms=[60_000])
    desk.publish(2)
    desk.reject(desk.receive(1))
    desk.ack(desk.receive(1))
    assert first_unsettled(desk.group()) == 3

    index = desk.state.applied_index + 1
    assert not trim_settled(desk, 3, index=index)
    desk.carry([0, 1])
    assert trim_settled(desk, 3, index=index)
    assert list(desk.group().dead) == [1]
    desk.wait(60_000)
    assert desk.offsets() == [0]


def test_what_was_redriven_must_be_carried_however_long_ago_that_was() -> None:
    desk = Desk(dead_retention_ms=1000)
    desk.open()
    desk.publish(3)
    desk.reject(desk.receive(1))
    desk.ack(desk.receive(2))
    desk.redrive(0)
    desk.wait(5000)
    assert desk.queue.needed_below(3) == []  # retention may take it
    assert list(pending_below([desk.group()], 3)) == [0]

    index = desk.state.applied_index + 1
    assert not trim_settled(desk, 3, index=index)
    desk.carry([0])
    desk.restart()
    assert trim_settled(desk, 3, index=index)
    assert desk.offsets() == [0]


def test_a_group_that_went_back_meanwhile_loses_nothing() -> None:
    desk = Desk()
    desk.open()
    desk.publish(3)
    desk.ack(desk.receive())
    desk.seek(1)

    assert not trim_settled(desk, 3)
    assert desk.offsets() == [1, 2]
    assert desk.state.log_start_offset == 0
