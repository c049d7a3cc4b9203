"""What tasks read: ranges are split without gap or overlap, and filters narrow them exactly."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from pipeline.source.pushdown import Bounds
from pipeline.source.ranges import Range, split, take

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def whole(sizes: list[int]) -> list[Range]:
    return [Range("t", "id", number, 7, 7 + size) for number, size in enumerate(sizes)]


@given(
    st.lists(st.integers(0, 1000), max_size=8),
    st.one_of(st.none(), st.integers(1, 40)),
    st.one_of(st.none(), st.integers(1, 400)),
)
def test_splitting_keeps_every_offset_once_and_in_order(
    sizes: list[int], at_least: int | None, records_max: int | None
) -> None:
    parts = split(whole(sizes), at_least=at_least, records_max=records_max)

    for number, size in enumerate(sizes):
        mine = [part for part in parts if part.partition == number]
        offsets = [offset for part in mine for offset in range(part.start, part.end)]
        assert offsets == list(range(7, 7 + size))
    assert all(part.size for part in parts)
    if records_max is not None:
        assert all(part.size <= records_max for part in parts)
    if at_least is not None:
        assert len(parts) >= min(at_least, sum(sizes))


def test_the_larger_a_partition_the_more_pieces_it_is_cut_into() -> None:
    parts = split(whole([900, 90, 10]), at_least=10)

    assert [sum(part.partition == number for part in parts) for number in range(3)] == [9, 1, 1]


@given(
    st.dictionaries(st.tuples(st.just("t"), st.integers(0, 9)), st.integers(0, 10_000), max_size=9),
    st.integers(1, 5000),
)
def test_a_trigger_takes_just_what_it_may_from_each_its_share(
    backlog: Mapping[tuple[str, int], int], rows_max: int
) -> None:
    taken = take(backlog, rows_max)

    total = sum(backlog.values())
    assert sum(taken.values()) == min(rows_max, total)
    for key, rows in backlog.items():
        assert 0 <= taken[key] <= rows
        assert abs(taken[key] - rows * min(1, rows_max / max(total, 1))) <= 1


class Times:
    """A partition of 100 messages, one every 10 ms from 1,000 on; it stands in for a Broker."""

    def offset_at(self, topic: str, partition: int, time_ms: int) -> int | None:
        offset = max(0, -(-(time_ms - 1000) // 10))
        return offset if offset < 100 else None


def moment(ms: float) -> datetime:
    return EPOCH + timedelta(milliseconds=ms)


KINDS = (EqualTo, EqualNullSafe, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual)
TESTS: dict[type, Any] = {
    EqualTo: lambda cell, value: cell == value,
    EqualNullSafe: lambda cell, value: cell == value,
    GreaterThan: lambda cell, value: cell > value,
    GreaterThanOrEqual: lambda cell, value: cell >= value,
    LessThan: lambda cell, value: cell < value,
    LessThanOrEqual: lambda cell, value: cell <= value,
}
filters = st.one_of(
    st.builds(lambda k, v: k(("offset",), v), st.sampled_from(KINDS), st.integers(-5, 110)),
    st.builds(lambda k, v: k(("partition",), v), st.sampled_from(KINDS), st.integers(-1, 3)),
    st.builds(
        lambda k, v: k(("timestamp",), moment(v)),
        st.sampled_from(KINDS),
        st.one_of(st.integers(-20, 2100), st.floats(990, 2010)),
    ),
    st.builds(lambda v: In(("partition",), tuple(v)), st.sets(st.integers(0, 3))),
    st.builds(lambda v: EqualTo(("topic",), v), st.sampled_from(["t", "other"])),
)


@given(st.lists(filters, max_size=4))
def test_pushed_filters_leave_just_the_messages_that_pass_them(pushed: list[Any]) -> None:
    bounds = Bounds()

    taken = [bounds.push(one) for one in pushed]

    assert all(taken)

    for partition in range(2):
        low, high = bounds.within(Times(), "t", partition, 0, 100)  # type: ignore[arg-type]
        for offset in range(100):
            cells = {
                "offset": offset,
                "partition": partition,
                "topic": "t",
                "timestamp": moment(1000 + 10 * offset),
            }
            passes = all(
                cells[one.attribute[0]] in one.value
                if isinstance(one, In)
                else TESTS[type(one)](cells[one.attribute[0]], one.value)
                for one in pushed
            )
            assert (low <= offset < high) == passes


@pytest.mark.parametrize(
    "left",
    [
        EqualTo(("value",), b"x"),
        EqualTo(("key",), None),
        Not(EqualTo(("offset",), 3)),
        IsNull(("offset",)),
        IsNotNull(("key",)),
        In(("timestamp",), (EPOCH,)),
        StringStartsWith(("topic",), "t"),
        EqualTo(("offset", "x"), 3),
    ],
)
def test_filters_that_ranges_can_not_express_are_left_to_spark(left: Filter) -> None:
    assert not Bounds().push(left)


def test_a_list_of_offsets_narrows_what_is_read_and_is_left_to_spark_too() -> None:
    bounds = Bounds()

    assert not bounds.push(In(("offset",), (40, 20, None)))
    assert bounds.within(Times(), "t", 0, 0, 100) == (20, 41)  # type: ignore[arg-type]
