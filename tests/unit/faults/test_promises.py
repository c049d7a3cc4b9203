"""What docs/reference/guarantees.md promises of the queue and no fault of others covers."""

from __future__ import annotations

import random

import pytest

from delivery.config import DAY_MS, HOUR_MS, GroupConfig, QueueConfig
from delivery.entries import ops
from goqueue.wire.errors import GroupHalted
from tests.unit.faults.partition import VISIBILITY_MS, Partition, Received, offsets

BY_KEY = GroupConfig(ordering="key", max_attempts=0)


# -- leases


def test_an_expiry_redelivers_once_with_the_next_attempt_and_the_reason() -> None:
    partition = Partition()
    partition.open(config=GroupConfig(max_attempts=0))
    partition.publish(1)
    (message,) = partition.receive()

    for attempt in range(2, 6):
        partition.pass_ms(VISIBILITY_MS - 1)
        assert partition.receive() == []
        partition.pass_ms(1)
        (message,) = partition.receive()
        assert (message.attempt, message.reason) == (attempt, "visibility timeout")
    assert partition.group().counters.expired == 4


def test_a_visibility_of_zero_leases_nothing_beyond_the_moment() -> None:
    partition = Partition()
    partition.open(config=GroupConfig(max_attempts=0))
    partition.publish(1)

    partition.receive(visibility_ms=0)
    partition.pass_ms(1)

    (again,) = partition.receive()
    assert again.attempt == 2


@pytest.mark.parametrize("action", [ops.ACK, ops.NACK, ops.REJECT, ops.EXTEND, ops.RELEASE])
def test_a_receipt_that_is_over_or_anothers_changes_nothing(action: int) -> None:
    partition = Partition()
    partition.open()
    partition.publish(2)
    expired, _ = partition.receive(visibility_ms=1000)
    partition.pass_ms(1000)
    (holder, _) = partition.receive()
    before = partition.state.queue.groups[1].leases.get(holder.offset)
    foreign = Received(holder.offset, 1, "", holder.delivery + 1000, "g")

    codes = [one.code for one in partition.settle(action, expired, foreign)]

    assert codes == [ops.LEASE_EXPIRED, ops.LEASE_EXPIRED]
    assert partition.state.queue.groups[1].leases.get(holder.offset) == before
    assert [one.code for one in partition.ack(holder)] == [ops.OK]


def test_a_released_message_comes_again_with_the_same_attempt() -> None:
    partition = Partition()
    partition.open()
    partition.publish(1)

    partition.settle(ops.RELEASE, *partition.receive())

    (again,) = partition.receive()
    assert (again.attempt, again.reason) == (1, "")


def test_a_nack_to_the_front_comes_next_and_one_to_the_back_after_what_is_stored() -> None:
    partition = Partition()
    partition.open()
    partition.publish(4)
    front, back = partition.receive(2)

    partition.nack(back, to_back=True)
    partition.nack(front)
    partition.publish(1)

    assert offsets(partition.receive()) == [front.offset, 2, 3, back.offset, 4]


# -- time to live


def test_an_expired_message_is_never_delivered_and_the_group_goes_on() -> None:
    partition = Partition()
    partition.open()
    partition.publish(1, ttl_ms=1000)
    partition.publish(1)
    partition.pass_ms(1000)

    messages = partition.receive()

    assert offsets(messages) == [1]
    partition.ack(*messages)
    assert partition.group().committed_offset == 2
    assert partition.state.queue.state_of(0) == "expired"


def test_a_topics_ttl_holds_for_messages_that_state_none() -> None:
    partition = Partition(QueueConfig(ttl_ms=1000))
    partition.open()
    partition.publish(1)
    partition.publish(1, ttl_ms=5000)

    partition.pass_ms(1000)

    assert offsets(partition.receive()) == [1]


def test_a_failed_message_that_has_expired_is_not_retried() -> None:
    partition = Partition()
    partition.open()
    partition.publish(1, ttl_ms=1000)
    messages = partition.receive()
    partition.pass_ms(1000)

    (settled,) = partition.nack(*messages)

    assert settled.outcome == "expired"
    assert partition.receive() == []
    assert not partition.group().dead


@pytest.mark.parametrize(
    "config",
    [GroupConfig(dead_max=0), GroupConfig(ordering="key", on_poison="park")],
    ids=["a group that halts", "a key that is parked"],
)
def test_a_rejected_message_that_has_expired_is_not_delivered_again(config: GroupConfig) -> None:
    partition = Partition()
    partition.open(config=config)
    partition.publish(1, keys=[b"k"], ttl_ms=1000)
    partition.publish(1, keys=[b"k"])
    held = partition.receive(1)
    partition.pass_ms(1000)

    (settled,) = partition.settle(ops.REJECT, *held)

    assert settled.outcome == "expired"
    assert (partition.group().committed_offset, partition.group().halted) == (1, "")
    partition.do(ops.Resumed(1))
    partition.do(ops.Unparked(1, b"k"))
    assert offsets(partition.receive()) == [1]


# -- delays


@pytest.mark.parametrize("seed", range(5))
def test_every_delayed_message_is_either_cancelled_or_delivered(seed: int) -> None:
    chance = random.Random(seed)
    partition = Partition()
    partition.open()
    delayed = partition.publish(50, delays_ms=[chance.randrange(1, 2000) for _ in range(50)])
    cancelled: list[int] = []
    delivered: list[int] = []

    while chance.random() < 0.98:
        wanted = chance.sample(delayed, 3)
        result = partition.do(ops.Cancelled(wanted))
        assert isinstance(result, ops.CodesResult)
        codes = zip(wanted, result.codes, strict=True)
        cancelled += [offset for offset, code in codes if code == ops.OK]
        messages = partition.receive(chance.randint(1, 5))
        delivered += offsets(messages)
        if messages:
            partition.ack(*messages)
        partition.pass_ms(chance.randrange(200))
    partition.pass_ms(2000)
    delivered += offsets(partition.receive())

    assert sorted({*cancelled, *delivered}) == delayed
    assert len(set(cancelled)) + len(delivered) == len(delayed)


def test_a_delayed_message_needs_to_be_kept_when_retention_passes_it() -> None:
    partition = Partition(QueueConfig(delay_ms_max=30 * DAY_MS))
    partition.open()
    (delayed, plain) = partition.publish(2, delays_ms=[20 * DAY_MS, None])
    partition.ack(*partition.receive())

    assert partition.state.queue.needed_below(plain + 1) == [delayed]
    assert not partition.state.queue.may_trim(partition.state.applied_index + 1, plain + 1)


# -- dead letters


def test_dead_letters_are_kept_for_their_own_time_from_their_death() -> None:
    partition = Partition(QueueConfig(dead_retention_ms=14 * DAY_MS))
    partition.open()
    partition.publish(2)
    first, second = partition.receive(visibility_ms=12 * HOUR_MS)
    partition.settle(ops.REJECT, first)
    partition.pass_ms(HOUR_MS)
    partition.settle(ops.REJECT, second)

    partition.pass_ms(14 * DAY_MS - 1)
    partition.publish(1)

    assert list(partition.group().dead) == [second.offset]


def test_a_message_that_dies_again_and_again_is_redriven_no_more_but_by_force() -> None:
    partition = Partition()
    partition.open(config=GroupConfig(redrives_max=2))
    partition.publish(1)
    for _ in range(2):
        partition.settle(ops.REJECT, *partition.receive())
        assert partition.do(ops.Redriven(1, [0])) == ops.CountResult(1)
    partition.settle(ops.REJECT, *partition.receive())

    assert partition.do(ops.Redriven(1, [0])) == ops.CountResult(0, refused=1)
    assert partition.do(ops.Redriven(1, [0], force=True)) == ops.CountResult(1)


def test_purged_dead_letters_are_gone_and_nothing_else_is() -> None:
    partition = Partition()
    partition.open()
    partition.publish(3)
    partition.settle(ops.REJECT, *partition.receive())

    assert partition.do(ops.Purged(1, [0, 2, 7])) == ops.CountResult(2)

    assert list(partition.group().dead) == [1]
    assert partition.receive() == []


def test_a_group_whose_failures_are_systemic_halts_instead_of_filling_its_dead_letters() -> None:
    partition = Partition()
    partition.open(config=GroupConfig(max_attempts=1, halt_percent=50, halt_window=10))
    partition.publish(100)

    with pytest.raises(GroupHalted):
        while True:
            partition.nack(*partition.receive(1), reason="database away")

    group = partition.group()
    assert len(group.dead) <= 10
    assert group.ready_count() + len(group.dead) == 100
    partition.do(ops.Resumed(1))
    assert len(partition.receive(1)) == 1


# -- key order


def test_a_keys_next_message_waits_for_the_settle_of_the_one_before() -> None:
    partition = Partition()
    partition.open(config=BY_KEY)
    partition.publish(5, keys=[b"a", b"a", b"b", b"b", None])

    first = partition.receive()
    assert offsets(first) == [0, 2, 4]
    assert partition.receive() == []
    partition.nack(first[0])
    (again,) = partition.receive()
    assert again.offset == 0
    partition.ack(again)
    assert offsets(partition.receive()) == [1]


@pytest.mark.parametrize("seed", range(5))
def test_messages_of_a_key_are_settled_in_order_by_any_number_of_consumers(seed: int) -> None:
    chance = random.Random(seed)
    partition = Partition()
    partition.open(config=BY_KEY)
    keys: list[bytes | None] = [b"k%d" % chance.randrange(7) for _ in range(200)]
    for key in keys:
        partition.publish(1, keys=[key], lanes=chance.randrange(5))
    held: list[Received] = []
    settled: dict[bytes | None, list[int]] = {key: [] for key in keys}

    while sum(map(len, settled.values())) < len(keys):
        held += partition.receive(chance.randint(1, 3))
        message = held.pop(chance.randrange(len(held)))
        assert len({keys[one.offset] for one in held}) == len(held)
        if chance.random() < 0.3:
            partition.nack(message)
        else:
            partition.ack(message)
            settled[keys[message.offset]].append(message.offset)

    assert all(found == sorted(found) for found in settled.values())


def test_a_poisoned_key_is_parked_alone_listed_and_released() -> None:
    partition = Partition()
    partition.open(config=GroupConfig(ordering="key", max_attempts=1, on_poison="park"))
    partition.publish(4, keys=[b"bad", b"bad", b"good", b"good"])
    bad, good = partition.receive()

    (settled,) = partition.nack(bad)
    partition.ack(good)

    assert settled.outcome == "parked"
    assert offsets(partition.receive()) == [3]
    assert len(partition.group().parked()) == 1
    partition.do(ops.Unparked(1, b"bad"))
    assert offsets(partition.receive()) == [0]


# -- replay


def test_a_group_that_is_sought_back_receives_all_again_and_no_other_does() -> None:
    partition = Partition()
    partition.open("g")
    partition.open("other")
    partition.publish(5)
    for name in ("g", "other"):
        partition.ack(*partition.receive(group=name))

    partition.do(ops.Sought(1, 2))

    assert offsets(partition.receive(group="g")) == [2, 3, 4]
    assert partition.receive(group="other") == []


# -- the bound on waiting


def rushed(partition: Partition, wanted: int) -> int:
    """When a background message comes while critical ones never end, at 50 a second."""
    for _ in range(10_000):
        partition.publish(5, lanes=0)
        messages = partition.receive(5)
        if wanted in offsets(messages):
            return partition.now_ms
        partition.ack(*messages)
        partition.pass_ms(100)
    raise AssertionError(f"{wanted} was not delivered in 1,000 s")


def test_delays_that_end_before_it_do_not_hide_how_long_a_message_has_waited() -> None:
    partition = Partition()
    partition.open()
    partition.publish(40, lanes=4, delays_ms=[20_000 * (row + 1) for row in range(40)])
    (plain,) = partition.publish(1, lanes=4)
    began_ms = partition.now_ms

    waited_ms = rushed(partition, plain) - began_ms

    config = GroupConfig()
    assert waited_ms <= config.lane_max_wait_ms + config.lane_share * (2 + 1) / 0.05 + 100
    assert partition.group().counters.wait_ms_max[4] == waited_ms


def test_a_message_that_is_back_in_front_does_not_hide_how_long_others_have_waited() -> None:
    partition = Partition()
    partition.open()
    failing, behind = partition.publish(2, lanes=4)
    began_ms = partition.now_ms
    partition.pass_ms(29_000)
    (message,) = partition.receive(1)
    assert message.offset == failing
    partition.nack(message)

    waited_ms = rushed(partition, behind) - began_ms

    config = GroupConfig()
    assert waited_ms <= config.lane_max_wait_ms + config.lane_share * (1 + 1) / 0.05 + 100
