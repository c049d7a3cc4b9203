"""The consumer's buffer: bounded, and never in the way of a higher lane."""

from __future__ import annotations

from itertools import count

from hypothesis import given
from hypothesis import strategies as st

from goqueue.consume.prefetch import LANE_SHARE, LANE_WAIT_S, LOWEST, Held, Prefetch, Want
from goqueue.models.groups import TopicPartition
from goqueue.models.queued import Received
from goqueue.wire.layout import LANES

CRITICAL, HIGH, NORMAL, LOW, BACKGROUND = range(len(LANES))


def held(
    offset: int, lane: int = NORMAL, *, partition: int = 0, attempt: int = 1, came_s: float = 0.0
) -> Held:
    message = Received(
        "orders", partition, offset, 0, b"", lane=lane, attempt=attempt, receipt=f"r{offset}"
    )
    return Held(message, came_s, came_s + 30)


def filled(bound: int, *entries: Held) -> Prefetch:
    buffer = Prefetch(bound)
    for entry in entries:
        buffer.add(entry)
    return buffer


def offsets(entries: list[Held]) -> list[int]:
    return [entry.message.offset for entry in entries]


def taken(buffer: Prefetch, now_s: float = 0.0) -> list[int]:
    found = []
    while (entry := buffer.take(now_s)) is not None:
        found.append(entry.message.offset)
    return found


def test_higher_lanes_go_first_and_a_lane_keeps_its_order() -> None:
    buffer = filled(9, held(1), held(2, LOW), held(3, CRITICAL), held(4), held(5, CRITICAL))

    assert taken(buffer) == [3, 5, 1, 4, 2]


def test_answers_that_overtook_each_other_are_put_in_order_within_their_partition() -> None:
    buffer = filled(
        9, held(5), held(7, partition=1), held(6), held(3), held(4), held(1, partition=1)
    )

    assert taken(buffer) == [3, 4, 5, 1, 7, 6]


def test_a_repeated_attempt_stays_where_it_came() -> None:
    buffer = filled(9, held(5), held(2, attempt=2), held(6), held(3, attempt=3))

    assert taken(buffer) == [5, 2, 6, 3]


def test_what_is_over_the_bound_goes_back_from_the_end_of_the_lowest_lane() -> None:
    buffer = filled(3, held(1), held(2), held(3, BACKGROUND), held(4, CRITICAL), held(5, HIGH))

    assert offsets(buffer.overflow()) == [3, 2]
    assert taken(buffer) == [4, 5, 1]


def test_an_empty_buffer_wants_anything_and_as_much_as_it_may_hold() -> None:
    assert Prefetch(100).want() == Want(100, LOWEST)


def test_a_buffer_that_is_more_than_half_full_wants_only_what_would_go_ahead() -> None:
    buffer = filled(4, held(1), held(2))
    assert buffer.want() == Want(2, LOWEST)

    buffer.add(held(3))

    assert buffer.want() == Want(4, HIGH)
    buffer.add(held(4, LOW))
    assert buffer.want() == Want(1, NORMAL)


def test_a_buffer_full_of_the_highest_lane_wants_nothing() -> None:
    assert filled(2, held(1, CRITICAL), held(2, CRITICAL)).want() is None


def test_a_bound_of_one_is_enough_for_priority() -> None:
    buffer = filled(1, held(1, BACKGROUND))
    assert buffer.want() == Want(1, LOW)

    buffer.add(held(2, CRITICAL))

    assert offsets(buffer.overflow()) == [1]
    assert taken(buffer) == [2]


def test_what_has_waited_too_long_gets_its_share() -> None:
    numbers = count(100)
    others = [held(next(numbers), CRITICAL, came_s=LANE_WAIT_S) for _ in range(20)]
    buffer = filled(100, held(1, BACKGROUND), *others)

    found = taken(buffer, LANE_WAIT_S + 1)

    assert found.index(1) == LANE_SHARE - 1
    assert found[:LANE_SHARE] == [100, 101, 102, 103, 1]


def test_a_partition_is_dropped_whole() -> None:
    buffer = filled(9, held(1), held(2, partition=1), held(3, CRITICAL), held(4, partition=2))

    dropped = buffer.drop([TopicPartition("orders", 0), TopicPartition("orders", 2)])

    assert offsets(dropped) == [3, 1, 4]
    assert taken(buffer) == [2]


def test_what_came_before_a_time_is_removed() -> None:
    buffer = filled(9, held(1, came_s=1.0), held(2, came_s=5.0))

    assert offsets(buffer.came_before(5.0)) == [1]
    assert offsets(buffer.all()) == [2]


@given(
    bound=st.integers(1, 20),
    lanes=st.lists(st.integers(CRITICAL, BACKGROUND), max_size=60),
)
def test_it_never_wants_more_than_it_could_hold_nor_what_would_not_go_ahead(
    bound: int, lanes: list[int]
) -> None:
    buffer = Prefetch(bound)
    for offset, lane in enumerate(lanes):
        before = [entry.message.lane for entry in buffer.all()]
        want = buffer.want()
        if want is not None:
            assert 1 <= want.limit <= bound
            if want.lowest < LOWEST:
                assert want.lowest == max(before) - 1
        else:
            assert set(before) == {CRITICAL}
        buffer.add(held(offset, lane))
        over = [entry.message.lane for entry in buffer.overflow()]
        kept = [entry.message.lane for entry in buffer.all()]
        assert len(kept) <= bound
        assert sorted([*kept, *over]) == sorted([*before, lane])
        assert not over or max(kept) <= min(over)
