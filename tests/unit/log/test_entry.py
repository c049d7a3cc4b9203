"""A frame tells how long the entry before it took to be committed, in a byte."""

from __future__ import annotations

import pytest

from log.entry import HAS_NEW_SEGMENT, LAGS_MS, EntryKind, decode_frame, make_entry


def told(lag_ms: int | None) -> int | None:
    entry = make_entry(index=2, term=1, time_ms=9, kind=EntryKind.NOOP, lag_ms=lag_ms)
    return decode_frame(entry.frame).lag_ms


@pytest.mark.parametrize("lag_ms", [0, 1, 17, 32])
def test_a_short_lag_is_told_to_the_millisecond(lag_ms: int) -> None:
    assert told(lag_ms) == lag_ms


@pytest.mark.parametrize("lag_ms", [36, 999, 60_000, 10_000_000, LAGS_MS[-1]])
def test_a_longer_lag_is_told_as_no_shorter_and_within_six_percent(lag_ms: int) -> None:
    found = told(lag_ms)
    assert found is not None
    assert lag_ms <= found <= lag_ms * 1.06 + 1


@pytest.mark.parametrize("lag_ms", [None, LAGS_MS[-1] + 1])
def test_what_is_not_known_or_too_long_is_not_told(lag_ms: int | None) -> None:
    assert told(lag_ms) is None


@pytest.mark.parametrize("flags", [0, HAS_NEW_SEGMENT, 255])
def test_an_entry_tells_whether_a_segment_begins_with_it(flags: int) -> None:
    entry = make_entry(index=2, term=1, time_ms=9, kind=EntryKind.NOOP, flags=flags, matches=(1,))

    assert decode_frame(entry.frame).begins_segment is entry.begins_segment is bool(flags)
