"""When schedules run: tables of wall clock times, in zones whose clocks change."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import islice, pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator.errors import BadConfig
from coordinator.jobs import schedule_times
from coordinator.jobs.schedule_times import Times, check_times, last_run, next_run, runs_after

BERLIN = "Europe/Berlin"
SECOND_MS, MINUTE_MS, HOUR_MS, DAY_MS = 1000, 60_000, 3_600_000, 86_400_000


def ms(text: str) -> int:
    """A moment with its offset, as Unix milliseconds."""
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def shown(time_ms: int, zone: str) -> str:
    return datetime.fromtimestamp(time_ms / 1000, ZoneInfo(zone)).isoformat()


def runs(cron: str, zone: str, after: str, count: int) -> list[str]:
    found = islice(runs_after(Times(cron, zone), ms(after)), count)
    return [shown(run, zone) for run in found]


@pytest.mark.parametrize(
    ("cron", "after", "following"),
    [
        ("*/10 * * * * *", "2026-11-21T13:00:00.000+00:00", "2026-11-21T13:00:10+00:00"),
        ("*/10 * * * * *", "2026-11-21T13:00:09.999+00:00", "2026-11-21T13:00:10+00:00"),
        ("* * * * * *", "2026-11-21T13:00:00.001+00:00", "2026-11-21T13:00:01+00:00"),
        ("* * * * *", "2026-11-21T13:00:00+00:00", "2026-11-21T13:01:00+00:00"),
        ("30 2 * * *", "2026-11-21T02:30:00+00:00", "2026-11-22T02:30:00+00:00"),
        ("15 30 2 * * *", "2026-11-21T02:30:00+00:00", "2026-11-21T02:30:15+00:00"),
        ("0 0 9 * * mon-fri", "2026-11-20T10:00:00+00:00", "2026-11-23T09:00:00+00:00"),
        ("0 0 0 * * 7", "2026-11-21T00:00:00+00:00", "2026-11-22T00:00:00+00:00"),
        ("0 0 0 13 * 5", "2026-11-21T00:00:00+00:00", "2026-11-27T00:00:00+00:00"),
        ("0 0 0 29 2 *", "2026-11-21T00:00:00+00:00", "2028-02-29T00:00:00+00:00"),
        ("0 0 0 29 2 *", "2096-03-01T00:00:00+00:00", "2104-02-29T00:00:00+00:00"),
        ("0 0 0 31 * *", "2026-11-21T00:00:00+00:00", "2026-12-31T00:00:00+00:00"),
        ("0 0 0 L 2 *", "2027-01-01T00:00:00+00:00", "2027-02-28T00:00:00+00:00"),
        ("0 0 0 * * 5#2", "2026-11-21T00:00:00+00:00", "2026-12-11T00:00:00+00:00"),
        ("@daily", "2026-11-21T00:00:00+00:00", "2026-11-22T00:00:00+00:00"),
        ("@Hourly", "2026-11-21T00:00:00+00:00", "2026-11-21T01:00:00+00:00"),
    ],
)
def test_a_cron_expression_names_its_next_run(cron: str, after: str, following: str) -> None:
    assert next_run(Times(cron), ms(after)) == ms(following)


def test_the_clock_is_that_of_the_time_zone() -> None:
    assert runs("0 0 9 * * *", "Asia/Kolkata", "2026-11-21T00:00:00+00:00", 1) == [
        "2026-11-21T09:00:00+05:30"
    ]


# the clocks change: in Berlin from 2 to 3 on 2027-03-28, from 3 to 2 on 2027-10-31


def test_a_daily_run_in_the_gap_of_spring_happens_right_after_it() -> None:
    assert runs("0 30 2 * * *", BERLIN, "2027-03-27T00:00:00+01:00", 3) == [
        "2027-03-27T02:30:00+01:00",
        "2027-03-28T03:00:00+02:00",
        "2027-03-29T02:30:00+02:00",
    ]


def test_runs_of_one_gap_are_one_run_also_with_the_one_that_follows_it() -> None:
    assert runs("0 0,20,40 2,3 * * *", BERLIN, "2027-03-28T00:00:00+01:00", 4) == [
        "2027-03-28T03:00:00+02:00",
        "2027-03-28T03:20:00+02:00",
        "2027-03-28T03:40:00+02:00",
        "2027-03-29T02:00:00+02:00",
    ]


def test_after_the_run_that_stands_for_the_gap_comes_the_next_day() -> None:
    after = "2027-03-28T03:00:00+02:00"
    assert runs("0 30 2 * * *", BERLIN, after, 1) == ["2027-03-29T02:30:00+02:00"]


def test_a_daily_run_whose_time_comes_twice_happens_at_the_first() -> None:
    assert runs("0 30 2 * * *", BERLIN, "2027-10-30T12:00:00+02:00", 2) == [
        "2027-10-31T02:30:00+02:00",
        "2027-11-01T02:30:00+01:00",
    ]
    second_pass = "2027-10-31T02:10:00+01:00"
    assert runs("0 30 2 * * *", BERLIN, second_pass, 1) == ["2027-11-01T02:30:00+01:00"]


def test_an_hourly_run_goes_on_through_the_gap() -> None:
    assert runs("0 30 * * * *", BERLIN, "2027-03-28T01:00:00+01:00", 3) == [
        "2027-03-28T01:30:00+01:00",
        "2027-03-28T03:30:00+02:00",
        "2027-03-28T04:30:00+02:00",
    ]


def test_an_hourly_run_happens_in_both_hours_of_autumn() -> None:
    assert runs("0 0 * * * *", BERLIN, "2027-10-31T01:00:00+02:00", 4) == [
        "2027-10-31T02:00:00+02:00",
        "2027-10-31T02:00:00+01:00",
        "2027-10-31T03:00:00+01:00",
        "2027-10-31T04:00:00+01:00",
    ]


def test_a_run_each_hour_in_summer_only_crosses_years() -> None:
    assert runs("0 0 * 31 12 *", "Australia/Lord_Howe", "2026-06-01T00:00:00+00:00", 1) == [
        "2026-12-31T00:00:00+11:00"
    ]


def test_a_gap_of_half_an_hour_is_a_gap() -> None:
    assert runs("0 15 2 * * *", "Australia/Lord_Howe", "2026-10-03T12:00:00+11:00", 1) == [
        "2026-10-04T02:30:00+11:00"
    ]


@pytest.mark.parametrize("day", ["2027-03-28", "2027-10-31", "2027-07-01"])
def test_every_second_is_every_second(day: str) -> None:
    start = ms(f"{day}T00:59:58+01:00")
    found = list(islice(runs_after(Times("* * * * * *", BERLIN), start), 7300))

    assert found == [start + (at + 1) * SECOND_MS for at in range(7300)]


# intervals


def test_an_interval_counts_from_its_anchor_whatever_was_missed() -> None:
    times = Times(every_ms=10_000, anchor_ms=1_000_003)

    assert next_run(times, 1_000_003) == 1_010_003
    assert next_run(times, 1_010_002) == 1_010_003
    assert next_run(times, 1_010_003) == 1_020_003
    assert next_run(times, 5) == 1_010_003


# the last one of those that were missed


def test_the_last_run_before_a_moment_may_be_at_it() -> None:
    times = Times("0 0 12 * * *")
    noon = ms("2026-11-21T12:00:00+00:00")

    assert last_run(times, noon - 9 * DAY_MS, noon) == noon
    assert last_run(times, noon - 9 * DAY_MS, noon - 1) == noon - DAY_MS
    assert last_run(times, noon, noon + DAY_MS - 1) is None


def test_the_last_run_of_a_rare_burst_is_found_at_once() -> None:
    times = Times("* * * 1 1 *")
    midnight = ms("2026-01-02T00:00:00+00:00")

    assert last_run(times, ms("2020-01-01T00:00:00+00:00"), midnight + 200 * DAY_MS) == (
        midnight - SECOND_MS
    )


# what is no schedule


@pytest.mark.parametrize(
    "cron",
    [
        "",
        "* * * *",
        "0 0 0 1 1 * 2030",
        "61 * * * * *",
        "0 0 24 * * *",
        "0 0 0 30 2 *",
        "H * * * *",
        "R * * * *",
        "H(1-5) * * * * *",
        "0 0 0 * foo *",
        "a b c d e",
        "@reboot",
        "*/0 * * * *",
        "5-1/0 * * * * *",
        "\x00 * * * *",
        "0 0 0 * * 1-",
    ],
)
def test_what_is_no_expression_or_never_runs_is_refused(cron: str) -> None:
    with pytest.raises(BadConfig):
        next_run(Times(cron), 0)


def test_a_long_expression_is_refused_before_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedule_times, "croniter", None)
    with pytest.raises(BadConfig, match="more than 256 characters"):
        check_times(Times(",".join(["0"] * 500_000) + " * * * *"), 0)


@pytest.mark.parametrize(
    "zone", ["", "Nope/Zone", "../../etc/passwd", "/etc/localtime", "Europe", "x" * 300, "A\x00"]
)
def test_what_is_no_time_zone_is_refused(zone: str) -> None:
    with pytest.raises(BadConfig, match="timezone"):
        check_times(Times("* * * * *", zone), 0)


def test_all_problems_are_told_at_once() -> None:
    with pytest.raises(BadConfig) as refused:
        check_times(Times("* * *", "Nope"), 0)

    assert len(refused.value.data["problems"]) == 2  # type: ignore[arg-type]


# properties

CRONS = [
    "* * * * * *",
    "*/7 * * * * *",
    "0 */5 * * * *",
    "0 30 2 * * *",
    "0 0 */2 * * *",
    "0 59 1,2,3 * * *",
    "0 0 0 * * sun",
    "0 0 0 29 2 *",
    "10 20 * 28-31 3,10 *",
]
ZONES = [BERLIN, "UTC", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia", "Asia/Tehran"]
MOMENTS = st.integers(ms("2010-01-01T00:00:00+00:00"), ms("2040-01-01T00:00:00+00:00"))
BY_CHANGES = st.integers(-3 * HOUR_MS, 3 * HOUR_MS).map(
    lambda span: ms("2027-03-28T01:00:00+00:00") + span
) | st.integers(-3 * HOUR_MS, 3 * HOUR_MS).map(lambda span: ms("2027-10-31T01:00:00+00:00") + span)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(CRONS), st.sampled_from(ZONES), MOMENTS | BY_CHANGES)
def test_runs_rise_and_beginning_anywhere_finds_the_same_ones(
    cron: str, zone: str, after: int
) -> None:
    times = Times(cron, zone)

    found = list(islice(runs_after(times, after), 6))

    assert found[0] > after
    assert all(first < second for first, second in pairwise(found))
    for first, second in pairwise(found):
        assert next_run(times, first) == second
        assert next_run(times, (first + second) // 2) == second
        assert last_run(times, after, second) == second


@settings(max_examples=150, deadline=None)
@given(
    st.integers(0, 23),
    st.integers(0, 59),
    st.sampled_from([zone for zone in ZONES if zone != "Pacific/Apia"]),  # it once skipped a day
    MOMENTS | BY_CHANGES,
)
def test_a_daily_schedule_runs_once_a_day_of_its_zone(
    hour: int, minute: int, zone: str, after: int
) -> None:
    found = islice(runs_after(Times(f"0 {minute} {hour} * * *", zone), after), 5)

    days = [datetime.fromtimestamp(run / 1000, ZoneInfo(zone)).date() for run in found]

    assert days == [days[0] + timedelta(at) for at in range(5)]
