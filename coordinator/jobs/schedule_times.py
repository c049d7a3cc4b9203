"""When a schedule runs: cron expressions in a time zone, and fixed intervals. Pure.

A cron expression has six fields, `second minute hour day month weekday`, or five, without the
second. It is read on the wall clock of its time zone. Where that clock changes:

- A run whose time is skipped in spring happens at the first moment after the gap.
- A run whose time comes twice in autumn happens once, at the first of the two.
- Only what runs in every hour of the day just goes on: each hour that there is, once.

`every` counts whole steps from the schedule's creation, whatever the clocks do.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from threading import get_ident
from zoneinfo import ZoneInfo

from croniter import CroniterError, croniter

from coordinator.errors import BadConfig

ALIASES = {
    "@yearly": "0 0 0 1 1 *",
    "@annually": "0 0 0 1 1 *",
    "@monthly": "0 0 0 1 * *",
    "@weekly": "0 0 0 * * 0",
    "@daily": "0 0 0 * * *",
    "@midnight": "0 0 0 * * *",
    "@hourly": "0 0 * * * *",
}
CRON_CHARACTERS_MAX = 256
KNOWN_MAX = 1024
"""Expressions that were read before; each run of a schedule asks for the next one."""
YEARS_MAX = 40
"""An expression without a day in so many years never runs."""
_HOURS = 24
_EPOCH = datetime(1970, 1, 1)
_MILLISECOND = timedelta(milliseconds=1)
_SECOND = timedelta(seconds=1)
_NOT_REPEATABLE = re.compile(r"(^|[\s,])[hr](\W|$)", re.IGNORECASE)
"""croniter's hashed and random fields: every node must find the same times."""


@dataclass(frozen=True, slots=True)
class Times:
    """By `cron` on the clock of `timezone`, or each `every_ms` from `anchor_ms` on."""

    cron: str = ""
    timezone: str = "UTC"
    every_ms: int = 0
    anchor_ms: int = 0


def check_times(times: Times, now_ms: int) -> None:
    """Raises BadConfig with every problem, also where there would never be a run after now."""
    problems = []
    try:
        _zone(times.timezone)
    except BadConfig as error:
        problems.append(error.message)
    if times.cron:
        try:
            next(runs_after(Times(times.cron), now_ms))
        except BadConfig as error:
            problems.append(error.message)
    if problems:
        raise BadConfig(problems)


def runs_after(times: Times, after_ms: int) -> Iterator[int]:
    """All runs after a moment, Unix milliseconds, in order and without end. Raises BadConfig."""
    if times.every_ms:
        return _steps(times, after_ms)
    expression, zone = _six_fields(times.cron), _zone(times.timezone)
    after = _EPOCH + timedelta(milliseconds=after_ms)
    runs = _each_hour if _is_hourly(expression) else _each_once
    return ((run - _EPOCH) // _MILLISECOND for run in runs(expression, zone, after))


def next_run(times: Times, after_ms: int) -> int:
    """The first run after a moment. Raises BadConfig."""
    return next(runs_after(times, after_ms))


def last_run(times: Times, after_ms: int, until_ms: int) -> int | None:
    """The last run after one moment and not after the other. Raises BadConfig."""
    first, beyond = after_ms, until_ms
    if next_run(times, first) > until_ms:
        return None
    while beyond - first > 1:
        middle = (first + beyond) // 2
        if next_run(times, middle) <= until_ms:
            first = middle
        else:
            beyond = middle
    return next_run(times, first)


def _steps(times: Times, after_ms: int) -> Iterator[int]:
    step = max(0, (after_ms - times.anchor_ms) // times.every_ms)
    while True:
        step += 1
        yield times.anchor_ms + step * times.every_ms


# cron; moments are in UTC, without a tzinfo


def _each_once(expression: str, zone: tzinfo, after: datetime) -> Iterator[datetime]:
    """Each time of the wall clock once."""
    last = after
    for local in _clock_times(expression, after + _offset(zone, after)):
        moment = _first_moment(zone, local)
        if moment > last:
            yield moment
            last = moment


def _each_hour(expression: str, zone: tzinfo, after: datetime) -> Iterator[datetime]:
    """Times of the wall clock as it goes, from one change of it to the next."""
    since, offset = after, _offset(zone, after)
    start = after + offset
    while True:
        for local in _clock_times(expression, start):
            moment = local - offset
            if _offset(zone, moment) != offset:
                since = _change(zone, since, moment)
                offset = _offset(zone, since)
                start = since + offset - _MILLISECOND  # the change itself may be a run
                break
            yield moment
            since = moment


def _first_moment(zone: tzinfo, local: datetime) -> datetime:
    """When the clock shows this time first, or jumps over it."""
    before = local.replace(tzinfo=zone, fold=0)
    moment = before.astimezone(UTC).replace(tzinfo=None)
    if moment + _offset(zone, moment) == local:
        return moment
    earlier = local.replace(tzinfo=zone, fold=1).astimezone(UTC).replace(tzinfo=None)
    return _change(zone, earlier, moment)


def _change(zone: tzinfo, first: datetime, last: datetime) -> datetime:
    """A moment between these two from which the clock has another offset than at the first."""
    offset = _offset(zone, first)
    low, high = first.replace(microsecond=0), last
    while high - low > _SECOND:
        middle = low + (high - low) // _SECOND // 2 * _SECOND
        if _offset(zone, middle) == offset:
            low = middle
        else:
            high = middle
    return high


def _offset(zone: tzinfo, moment: datetime) -> timedelta:
    found = moment.replace(tzinfo=UTC).astimezone(zone).utcoffset()
    assert found is not None, "a time zone has an offset at any moment"
    return found


def _clock_times(expression: str, after: datetime) -> Iterator[datetime]:
    """The times that the expression names, on a clock that never changes."""
    while True:
        try:
            after = _read(expression, get_ident()).get_next(datetime, start_time=after)
        except CroniterError:
            raise BadConfig([f"cron: {expression!r} never runs"]) from None
        yield after


@lru_cache(KNOWN_MAX)
def _read(expression: str, _thread: int) -> croniter:
    """One for each thread: it remembers where it was asked last."""
    return croniter(expression, second_at_beginning=True, max_years_between_matches=YEARS_MAX)


def _is_hourly(expression: str) -> bool:
    hours = _read(expression, get_ident()).expanded[1]
    return hours == ["*"] or len(hours) == _HOURS


@lru_cache(KNOWN_MAX)
def _six_fields(cron: str) -> str:
    """The expression with its seconds. Raises BadConfig where it is none, and before it reads one
    that is too long: a long list takes minutes."""
    if len(cron) > CRON_CHARACTERS_MAX:
        raise BadConfig([f"cron: more than {CRON_CHARACTERS_MAX} characters"])
    expression = ALIASES.get(cron.strip().lower(), cron)
    fields = expression.split()
    if len(fields) == 5:
        fields = ["0", *fields]
    expression = " ".join(fields)
    if len(fields) != 6:
        raise BadConfig([f"cron: {cron[:80]!r} has {len(fields)} fields, not 6 (or 5)"])
    if _NOT_REPEATABLE.search(expression):
        raise BadConfig([f"cron: {cron[:80]!r}: H and R are not supported"])
    try:
        croniter.expand(expression, second_at_beginning=True)
    except (CroniterError, ValueError, KeyError) as error:
        raise BadConfig([f"cron: {cron[:80]!r}: {str(error)[:200]}"]) from None
    return expression


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ValueError, KeyError, OSError):
        raise BadConfig([f"timezone: {name[:80]!r} is not an IANA time zone"]) from None
