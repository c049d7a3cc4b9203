"""Moments and durations as programs write them, and as they travel.

A duration is a timedelta, a number of seconds, or a text with units (`30s`, `1h30m`, `250ms`). A
moment is a datetime, a number of Unix milliseconds, or an ISO 8601 text.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta

from goqueue.wire.errors import BadRequest
from goqueue.wire.layout import RELATIVE_BELOW

Time = datetime | int | str
Duration = timedelta | float | str

FOR_EVER = -1
VISIBILITY_S = 30.0
"""Of a group that says nothing else."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_PART = re.compile(r"(\d{1,15}(?:\.\d{1,9})?)(ms|s|m|h|d)", re.ASCII)


def duration_ms(duration: Duration, what: str) -> int:
    """Milliseconds, rounded up. Raises BadRequest, naming `what`, on what is no duration."""
    if isinstance(duration, str):
        total = _text_ms(duration, what)
    else:
        seconds = duration.total_seconds() if isinstance(duration, timedelta) else duration
        total = seconds * 1000
    if not 0 <= total < RELATIVE_BELOW:  # NaN neither
        raise BadRequest(f"{what}: {duration} is out of range")
    return math.ceil(round(total, 6))


def retention_ms(keep: Duration | None) -> int:
    """For how long a topic keeps its messages, as its `retention_ms` has it; None is for ever.
    Raises BadRequest on what is no duration."""
    return FOR_EVER if keep is None else duration_ms(keep, "keep")


def visibility_s(told: object) -> float:
    """How long a message is its taker's, in seconds, as an option or a group's setting has it; the
    servers' default where neither tells. Raises BadRequest on what is no duration."""
    if not isinstance(told, timedelta | float | int | str):
        return VISIBILITY_S
    return duration_ms(told, "visibility") / 1000 or VISIBILITY_S


def duration_text(duration: Duration, what: str) -> str:
    """A duration as the servers take it."""
    return f"{duration_ms(duration, what)}ms"


def time_text(time: Time) -> str:
    """A time as the servers take it; a datetime without a zone is local time, as in Python."""
    return time.astimezone().isoformat() if isinstance(time, datetime) else str(time)


def time_ms(time: Time) -> int:
    """Unix milliseconds of a time. Raises ValueError on text that is no ISO 8601 time."""
    if isinstance(time, int):
        return time
    if isinstance(time, str):
        if time.isdigit():
            return int(time)
        time = datetime.fromisoformat(time)
    return datetime_ms(time)


def datetime_ms(time: datetime) -> int:
    """Unix milliseconds, rounded down; a datetime without a zone is local time, as in Python."""
    return (time.astimezone(UTC) - _EPOCH) // timedelta(milliseconds=1)


def moment_ms(time: Time, what: str) -> int:
    """As `time_ms`, for a moment that is stored. Raises BadRequest, naming `what`."""
    try:
        moment = time_ms(time)
    except ValueError:
        raise BadRequest(f"{what}: {time!r} is not a time such as 2030-01-01T00:00:00Z") from None
    if moment < RELATIVE_BELOW:
        raise BadRequest(f"{what}: {time} lies before 1979 (numbers are milliseconds since 1970)")
    return moment


def _text_ms(text: str, what: str) -> float:
    at, total = 0, 0.0
    while part := _PART.match(text, at):
        total += float(part[1]) * _UNITS_MS[part[2]]
        at = part.end()
    if at != len(text) or not text:
        raise BadRequest(f"{what}: {text[:40]!r} is not a duration such as 30s, 250ms or 1h30m")
    return total
