"""Durations and moments as programs write them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from goqueue.errors import BadRequest
from goqueue.models.times import Duration, datetime_ms, duration_ms, duration_text, moment_ms


@pytest.mark.parametrize(
    ("duration", "ms"),
    [
        (0, 0),
        (1.5, 1500),
        (0.1, 100),
        (0.0001, 1),
        (timedelta(minutes=2), 120_000),
        ("250ms", 250),
        ("1h30m", 5_400_000),
        ("1.5s", 1500),
        ("7d", 604_800_000),
    ],
)
def test_a_duration_is_seconds_or_a_text_with_units(duration: Duration, ms: int) -> None:
    assert duration_ms(duration, "delay") == ms
    assert duration_text(duration, "delay") == f"{ms}ms"


@pytest.mark.parametrize(
    "duration", ["", "5", "soon", "5 s", "-5s", -1, float("nan"), float("inf"), 10**12]
)
def test_anything_else_is_refused_by_name(duration: Duration) -> None:
    with pytest.raises(BadRequest, match=r"^delay: "):
        duration_ms(duration, "delay")


def test_a_moment_is_exact_to_the_millisecond() -> None:
    for ms in (1_736_937_000_123, 1_736_937_000_999, 1_736_937_000_001):
        time = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)
        assert datetime_ms(time) == ms
        assert moment_ms(time, "deliver_at") == ms
        assert moment_ms(time.isoformat(), "deliver_at") == ms
        assert moment_ms(str(ms), "deliver_at") == ms


@pytest.mark.parametrize("moment", ["tomorrow", 0, 1_700_000_000, "1700000000"])
def test_seconds_since_1970_are_no_moment(moment: int | str) -> None:
    with pytest.raises(BadRequest, match=r"^deliver_at: "):
        moment_ms(moment, "deliver_at")
