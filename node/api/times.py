"""Times and durations as clients write them, and timestamps as answers show them."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime

from goqueue.wire.errors import BadRequest

TIME_MS_MAX = 253_402_300_799_999  # 9999-12-31T23:59:59.999Z
DURATION_MS_MAX = 366 * 24 * 3600 * 1000

Duration = str | int | float
"""As requests have it: text, or a number of milliseconds."""

_UNITS_MS = {
    "ns": 1e-6,
    "us": 1e-3,
    "µs": 1e-3,
    "ms": 1.0,
    "s": 1e3,
    "m": 60e3,
    "h": 3600e3,
    "d": 86400e3,
}
_PART = re.compile(r"(\d{1,15}(?:\.\d{1,9})?)(ns|us|µs|ms|s|m|h|d)", re.ASCII)
_BARE = re.compile(r"\d{1,15}(?:\.\d{1,9})?", re.ASCII)
_EPOCH = re.compile(r"-?\d{1,15}", re.ASCII)
_LOST_PLUS = re.compile(r"(T.*) (\d\d:\d\d)$")
_RFC_3339 = re.compile(
    r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)", re.ASCII
)


def parse_duration_ms(text: str, name: str) -> int:
    """`5s`, `1h30m`, `250ms`, `1d`, or a bare number of milliseconds. Raises BadRequest."""
    if _BARE.fullmatch(text):
        total = float(text)
    else:
        at, total = 0, 0.0
        while part := _PART.match(text, at):
            total += float(part[1]) * _UNITS_MS[part[2]]
            at = part.end()
        if at != len(text) or not text:
            raise BadRequest(f"{name}: {text[:40]!r} is not a duration such as 5s, 250ms or 1h30m")
    if total > DURATION_MS_MAX:
        raise BadRequest(f"{name}: longer than 366 days")
    return math.ceil(total)


def duration_ms(given: Duration | None, name: str) -> int | None:
    """A duration as text or as a number of milliseconds. Raises BadRequest."""
    if given is None:
        return None
    if isinstance(given, float):
        if not 0 <= given < 2**53:
            raise BadRequest(f"{name}: {given} is not a duration")
        return parse_duration_ms(str(math.ceil(given)), name)
    return parse_duration_ms(str(given)[:100], name)


def parse_time_ms(text: str, name: str) -> int:
    """RFC 3339 with its offset, or milliseconds since 1970, rounded up to a millisecond.

    Rounding up is right for both ends of a window over whole milliseconds: `t >= from` and
    `t < to` keep their meaning. Raises BadRequest.
    """
    if _EPOCH.fullmatch(text):
        value = int(text)
    else:
        value = _parse_rfc_3339_ms(_LOST_PLUS.sub(r"\1+\2", text), name)
    if not 0 <= value <= TIME_MS_MAX:
        raise BadRequest(f"{name}: {text[:40]!r} lies outside 1970 to 9999")
    return value


def format_time(time_ms: int) -> str:
    """ISO 8601 in UTC with milliseconds, as `2025-01-15T10:30:00.000Z`. Producers may store any
    number in a record batch: what lies beyond 1970 to 9999 is shown as the nearer of the two."""
    seconds, ms = divmod(min(max(0, time_ms), TIME_MS_MAX), 1000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{ms:03d}Z"


def format_duration(ms: int) -> str:
    """In the largest unit that gives a whole number: `90s`, `12h`, `250ms`."""
    for unit in ("d", "h", "m", "s"):
        if ms and ms % int(_UNITS_MS[unit]) == 0:
            return f"{ms // int(_UNITS_MS[unit])}{unit}"
    return f"{ms}ms" if ms else "0s"


def format_uptime(seconds: float) -> str:
    """As Go prints a duration: `1h2m3.5s`."""
    whole, rest = divmod(seconds, 60)
    hours, minutes = divmod(int(whole), 60)
    text = f"{rest:.3f}".rstrip("0").rstrip(".") + "s"
    if hours or minutes:
        text = f"{minutes}m{text}"
    return f"{hours}h{text}" if hours else text


def _parse_rfc_3339_ms(text: str, name: str) -> int:
    if not _RFC_3339.fullmatch(text):
        raise BadRequest(
            f"{name}: {text[:40]!r} is neither RFC 3339 with an offset nor epoch milliseconds"
        )
    # fromisoformat stops at microseconds: the digits beyond only matter for rounding up.
    fraction = re.search(r"\.(\d+)", text)
    digits = fraction[1] if fraction else ""
    plain = text.replace(f".{digits}", "") if digits else text
    try:
        stamp = datetime.fromisoformat(plain.upper())
    except ValueError as error:
        raise BadRequest(f"{name}: {text[:40]!r}: {error}") from None
    whole_ms = round(stamp.timestamp()) * 1000
    return whole_ms + math.ceil(int((digits or "0").ljust(9, "0")) / 1_000_000)
