"""What outlives the log: delayed messages, dead letters, what came late; and what does not."""

from __future__ import annotations

import pytest

from delivery.config import DAY_MS, HOUR_MS, QueueConfig
from delivery.entries.ops import ACK, Configure
from delivery.entries.reappended import ReappendedBatch, decode_reappended, encode_reappended
from tests.unit.delivery.desk import Desk


@pytest.fixture
def desk() -> Desk:
    found = Desk()
    found.open(1)
    return found


def test_carried_batches_are_read_as_they_were_written() -> None:
    batches = [ReappendedBatch(5, (1, 2**40), b"ab"), ReappendedBatch(2**41, (7,), b"")]

    found = list(decode_reappended(encode_reappended(batches)))

    assert [(c.time_ms, tuple(c.offsets), bytes(c.batch)) for c in found] == [
        (c.time_ms, tuple(c.offsets), c.batch) for c in batches
    ]
    with pytest.raises(ValueError, match="cut short"):
        list(decode_reappended(encode_reappended(batches[:1])[:-1]))


def test_a_trim_that_would_lose_a_delayed_message_or_a_dead_letter_is_ignored(desk: Desk) -> None:
    desk.publish(3, deliver_at_ms=[60_000, None, None])
    desk.settle(2, [(desk.receive(1).delivery, [1])], reason="bad")

    assert not desk.trim(2)
    desk.carry([0])
    assert not desk.trim(2, index=desk.state.applied_index)
    desk.carry([1, 0])
    assert desk.trim(2, index=desk.state.applied_index)


def test_what_is_carried_in_an_entry_that_goes_is_carried_again_or_stays(desk: Desk) -> None:
    desk.publish(4, deliver_at_ms=[60_000, None, None, None])
    desk.retain(1)
    held = desk.state.queue.reappended[0]

    assert not desk.trim(2, index=held + 1)
    desk.retain(2)

    assert desk.state.queue.reappended[0] > held


def test_a_delayed_message_outlives_the_log_without_pinning_it(desk: Desk) -> None:
    desk.publish(10, deliver_at_ms=[7 * DAY_MS] + [None] * 9)

    desk.retain(10)
    desk.restart()

    assert desk.state.log_start_offset == 10
    assert desk.offsets() == []
    desk.wait(7 * DAY_MS)
    assert desk.offsets() == [0]


def test_a_message_that_came_late_outlives_trims_until_it_is_settled(desk: Desk) -> None:
    desk.publish(10, deliver_at_ms=[60_000] + [None] * 9)
    desk.retain(5)
    desk.wait(60_000)
    desk.publish(5)

    desk.retain(12)
    desk.restart()

    granted = desk.receive()
    assert [grant.offset for grant in granted.grants] == [0, 12, 13, 14]
    desk.retain(13)
    assert desk.settle(ACK, [(granted.delivery, [0])]).settles[0].outcome == "acked"
    desk.retain(14)
    assert desk.state.queue.reappended == {}


def test_a_message_that_came_late_is_kept_no_longer_than_retention_keeps_one() -> None:
    desk = Desk(retention_ms=HOUR_MS)
    desk.open(1)
    desk.publish(3, deliver_at_ms=[60_000, None, None])
    desk.retain(2)
    desk.wait(60_000)
    desk.wait(HOUR_MS - 1)
    assert desk.state.queue.needed_below(2) == [0]

    desk.wait(1)
    desk.retain(3)

    assert desk.offsets() == []
    assert desk.group().counters.fallen == 3


def test_dead_letters_outlive_the_log_up_to_their_own_retention() -> None:
    desk = Desk(dead_retention_ms=14 * DAY_MS)
    desk.open(1)
    desk.publish(5)
    desk.reject(desk.receive(2))

    desk.retain(5)
    desk.wait(14 * DAY_MS)
    assert list(desk.group().dead) == [0, 1]
    desk.wait(1)

    assert not desk.group().dead
    desk.publish(1)
    desk.retain(6)
    assert desk.state.queue.reappended == {}


def test_a_redriven_message_is_not_trimmed_away_before_it_is_delivered(desk: Desk) -> None:
    desk.publish(5)
    desk.reject(desk.receive())
    desk.retain(5)
    desk.redrive(1, 3)
    desk.publish(3)

    desk.retain(8)
    desk.restart()

    granted = desk.receive()
    assert [grant.offset for grant in granted.grants] == [1, 3]
    desk.ack(granted)
    desk.retain(8)
    assert sorted(desk.state.queue.reappended) == [0, 2, 4]


def test_a_redriven_message_that_nobody_takes_is_kept_no_longer_than_a_dead_letter() -> None:
    desk = Desk(dead_retention_ms=HOUR_MS)
    desk.open(1)
    desk.publish(2)
    desk.reject(desk.receive(1))
    desk.retain(1)
    desk.redrive(0)
    desk.wait(HOUR_MS)
    assert desk.state.queue.needed_below(2) == [0]

    desk.wait(1)

    assert desk.state.queue.needed_below(2) == []


def test_unsettled_messages_fall_with_the_log_and_are_counted(desk: Desk) -> None:
    desk.publish(6)
    granted = desk.receive(2)

    desk.retain(4)

    assert desk.group().counters.fallen == 4
    assert desk.group().committed_offset == 4
    assert desk.ack(granted).settles[0].code != 0
    assert desk.offsets() == [4, 5]


def test_a_cancelled_message_is_carried_no_further(desk: Desk) -> None:
    desk.publish(4, deliver_at_ms=[60_000, None, None, None])
    desk.retain(2)
    desk.cancel(0)

    desk.retain(3)

    assert desk.state.queue.reappended == {}
    assert 0 not in desk.state.queue.withdrawn


def test_a_group_that_begins_at_the_logs_start_gets_what_is_still_delayed(desk: Desk) -> None:
    desk.publish(6, deliver_at_ms=[60_000] + [None] * 5)
    desk.reject(desk.receive(1))
    desk.retain(4)

    group = desk.open(2, offset=4)

    assert group.committed_offset == 4
    assert desk.offsets(group=2) == [4, 5]
    desk.wait(60_000)
    assert desk.offsets(group=2) == [0]


@pytest.mark.parametrize("others", [0, 1])
def test_a_group_that_begins_at_the_logs_start_gets_what_came_late_and_outlived_the_log(
    others: int,
) -> None:
    desk = Desk()
    for id_ in range(2, 2 + others):
        desk.open(id_)
    desk.publish(
        6,
        deliver_at_ms=[60_000, 60_000, 60_000] + [None] * 3,
        expires_at_ms=[None, 70_000] + [None] * 4,
    )
    desk.retain(5)
    desk.wait(120_000)

    desk.open(1)
    desk.open(9, offset=6)
    desk.restart()

    assert desk.offsets() == [0, 2, 5]
    assert desk.offsets(group=9) == []


def test_a_group_that_begins_at_the_end_gets_nothing_older_though_the_log_is_empty() -> None:
    desk = Desk()
    desk.publish(3, deliver_at_ms=[60_000, 90_000, None])
    desk.retain(3)
    desk.wait(60_000)

    desk.open(1, offset=3, start="latest")
    desk.wait(60_000)
    desk.publish(1)

    assert desk.offsets() == [3]


def test_seeking_below_the_log_begins_at_its_start_and_keeps_what_outlived_it(desk: Desk) -> None:
    desk.publish(6, deliver_at_ms=[60_000] + [None] * 5)
    desk.settle(2, [(desk.receive(2).delivery, [1])], reason="bad")
    desk.retain(4)
    desk.wait(60_000)

    desk.seek(0)

    granted = desk.receive()
    assert [grant.offset for grant in granted.grants] == [0, 4, 5]
    assert desk.ack(granted).committed_offset == 6
    assert list(desk.group().dead) == [1]


@pytest.mark.parametrize("restarts", [False, True])
def test_what_a_commit_passed_over_before_it_was_due_comes_after_a_seek(
    desk: Desk, restarts: bool
) -> None:
    desk.publish(2, deliver_at_ms=[60_000, None])
    desk.commit(2)
    desk.retain(2)
    if restarts:
        desk.restart()

    told = desk.seek(0)

    assert (told.replayed, desk.offsets()) == (1, [])
    desk.wait(60_000)
    assert desk.offsets() == [0]


def test_what_was_due_and_committed_does_not_come_again_once_the_log_has_lost_it(
    desk: Desk,
) -> None:
    desk.open(2)
    desk.publish(2, deliver_at_ms=[60_000, None])
    desk.wait(60_000)
    desk.commit(2)
    desk.retain(2)

    told = desk.seek(0)

    assert (told.replayed, desk.offsets(), desk.offsets(group=2)) == (0, [], [0])


def test_offsets_beyond_two_to_the_32_are_like_any_other() -> None:
    desk = Desk()
    base = 2**33 + 5
    desk.state.next_offset = base  # type: ignore[assignment]
    desk.state.queue.next_offset = base
    desk.open(1, offset=base, ordering="key")
    desk.do(Configure(QueueConfig(ttl_ms=1000)))
    desk.publish(3, keys=[b"a", b"a", b"b"], lanes=[4, 0, 1], deliver_at_ms=[None, None, 500])
    desk.restart()

    granted = desk.receive()
    assert [grant.offset for grant in granted.grants] == [base]
    assert desk.ack(granted).committed_offset == base + 1
    desk.wait(500)
    assert desk.offsets() == [base + 1, base + 2]
    desk.wait(500)
    assert desk.state.queue.expired_count == 3
