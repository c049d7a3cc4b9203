"""Times and durations as people write them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goqueue.wire.errors import BadRequest
from node.api.times import TIME_MS_MAX, format_time, format_uptime, parse_duration_ms, parse_time_ms


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("5s", 5000), ("250ms", 250), ("1h30m", 5_400_000), ("1.5s", 1500), ("1d", 86_400_000),
        ("5000", 5000), ("0", 0), ("1ns", 1), ("1500us", 2), ("2m", 120_000), ("168h", 604_800_000),
    ],
)  # fmt: skip
def test_durations(text, ms):
    assert parse_duration_ms(text, "wait") == ms


@pytest.mark.parametrize("text", ["", "s", "5 s", "-5s", "5x", "5s5", "1e3", "nan", "٣s", "400d"])
def test_what_is_not_a_duration_is_refused_by_name(text):
    with pytest.raises(BadRequest, match="wait"):
        parse_duration_ms(text, "wait")


@given(st.integers(0, TIME_MS_MAX))
def test_a_formatted_time_parses_back_to_itself(time_ms):
    text = format_time(time_ms)

    assert parse_time_ms(text, "t") == time_ms
    assert parse_time_ms(str(time_ms), "t") == time_ms
    assert text.endswith("Z")
    assert len(text) == 24


@given(st.datetimes(datetime(1971, 1, 1), datetime(9998, 1, 1)))
def test_microseconds_round_up_to_the_millisecond_that_holds_them(stamp):
    aware = stamp.replace(tzinfo=UTC)
    whole_us = (aware - datetime(1970, 1, 1, tzinfo=UTC)) // (datetime.resolution)

    assert parse_time_ms(aware.isoformat().replace("+00:00", "Z"), "t") == -(-whole_us // 1000)


@pytest.mark.parametrize(
    "text",
    ["", "now", "2025-01-14", "2025-01-14T15:00:00", "2025-02-30T00:00:00Z", "-1", "9" * 15,
     "2025-01-14T15:00:00+99:00", "1969-12-31T23:59:59Z", "2025-01-14T15:00:61Z"],
)  # fmt: skip
def test_what_is_not_a_time_is_refused_by_name(text):
    with pytest.raises(BadRequest, match="from_time"):
        parse_time_ms(text, "from_time")


def test_uptimes_look_like_gos():
    assert [format_uptime(s) for s in (0.5, 61, 3600, 90061.25)] == [
        "0.5s", "1m1s", "1h0m0s", "25h1m1.25s",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("time_ms", "text"),
    [
        (TIME_MS_MAX + 1, "9999-12-31T23:59:59.999Z"),
        (2**63 - 1, "9999-12-31T23:59:59.999Z"),
        (-(2**63), "1970-01-01T00:00:00.000Z"),
    ],
)
def test_what_no_calendar_holds_is_shown_as_the_last_or_first_moment(time_ms, text):
    assert format_time(time_ms) == text
