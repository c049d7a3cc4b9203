"""Figures, times and foreign text as pages show them; plain text all of it, escaped later."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import quote, urlencode

from goqueue.wire.batch import LANES
from node.api.times import TIME_MS_MAX, format_time

NONE = "–"
TEXT_CHARACTERS_MAX = 400

# Controls, and what turns the direction of text or hides in it.
_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff]"
)


def number(value: float | None) -> str:
    """`12,345`; a fraction only where it is below 100."""
    if value is None:
        return NONE
    if isinstance(value, float) and 0 < abs(value) < 100:
        return f"{value:.1f}".removesuffix(".0")
    return f"{round(value):,}"


def rate(value: float | None) -> str:
    """Messages a second."""
    if value is None:
        return NONE
    if 0 < value < 0.1:
        return "< 0.1"
    return number(float(value))


def size(value: int | None) -> str:
    """`1.5 MiB`."""
    if value is None:
        return NONE
    amount = float(value)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return (
                f"{amount:.0f} {unit}" if unit == "B" or amount >= 100 else f"{amount:.1f} {unit}"
            )
        amount /= 1024
    return f"{amount:.1f} TiB"


def span(ms: float | None) -> str:
    """A duration, in its two largest units: `850 ms`, `4.2 s`, `3 m 20 s`, `2 d 4 h`."""
    if ms is None:
        return NONE
    if ms < 1000:
        return f"{ms:.0f} ms"
    seconds = ms / 1000
    if round(seconds, 1) < 60:
        return f"{seconds:.1f}".removesuffix(".0") + " s"
    whole = round(seconds)
    for name, length, lower, lower_length in (
        ("m", 60, "s", 1),
        ("h", 3600, "m", 60),
        ("d", 86400, "h", 3600),
    ):
        if whole < length * (60 if name == "m" else 24) or name == "d":
            rest = whole % length // lower_length
            return f"{whole // length:,} {name}" + (f" {rest} {lower}" if rest else "")
    raise AssertionError("days end the list")


def moment(ms: int | None) -> str:
    """ISO 8601 in UTC; nothing for times that never were."""
    if not ms or not 0 < ms <= TIME_MS_MAX:
        return NONE
    return format_time(ms)


def clock(ms: int | None) -> str:
    """The moment in the form that a person reads: `2025-01-15 10:30:00.000`."""
    text = moment(ms)
    return text if text == NONE else text[:-1].replace("T", " ")


def ago(ms: int | None) -> str:
    """How long since, by this machine's clock."""
    if not ms:
        return NONE
    passed = time.time() * 1000 - ms
    return "now" if passed < 1000 else f"{span(passed)} ago"


def seen(text: object, limit: int = TEXT_CHARACTERS_MAX) -> str:
    """Foreign text on one page with ours: cut, and with what can't be seen in it made visible."""
    whole = str(text)
    cut = whole if len(whole) <= limit else f"{whole[:limit]}…"
    return _UNSEEN.sub(lambda found: f"\\u{ord(found[0]):04x}", cut)


def is_unseen(character: str) -> bool:
    """Whether a reader could not see it, or be misled by it."""
    return _UNSEEN.match(character) is not None


def lane(value: int) -> str:
    return LANES[value]


def plural(count: int, one: str, many: str = "") -> str:
    """`1 partition`, `2 partitions`."""
    return f"{number(count)} {one if count == 1 else many or one + 's'}"


def url(*segments: object, **query: object) -> str:
    """A path below `/ui`; each segment is one, whatever is in it. Fields of None are left out."""
    path = "/".join(quote(str(segment), safe="") for segment in ("ui", *segments))
    fields = {
        name.rstrip("_"): str(value) for name, value in query.items() if value not in (None, "")
    }
    return f"/{path}?{urlencode(fields)}" if fields else f"/{path}"


FILTERS: dict[str, Callable[..., str]] = {
    "number": number,
    "rate": rate,
    "size": size,
    "span": span,
    "moment": moment,
    "clock": clock,
    "ago": ago,
    "seen": seen,
    "lane": lane,
}
FUNCTIONS: dict[str, Any] = {"plural": plural, "LANES": LANES}
