"""The settings of groups: as requests give them, as they are stored, as answers show them.

A setting reads and writes under the same name and in the same form, so an answer's `settings` can
be sent back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from delivery.config import VISIBILITY_MS_MAX
from goqueue.wire.errors import BadRequest
from node.api.times import Duration, duration_ms, format_duration
from node.http.text.known_fields import Body, UnknownField

COUNT_MAX = 2**31 - 1
HOUR_MS = 3600 * 1000
WEEK_MS = 7 * 24 * HOUR_MS


class GroupSettings(Body):
    """Null and missing leave the present value, or the default."""

    visibility_timeout: Duration | None = None
    max_attempts: int | None = None
    maxRetries: int | None = None
    ordering: str | None = None
    start: str | None = None
    lane_max_wait: Duration | None = None
    lane_share: int | None = None
    backoff: Duration | None = None
    backoff_max: Duration | None = None
    on_poison: str | None = None
    halt_percent: int | None = None
    halt_window: int | None = None
    redrives_max: int | None = None
    in_flight_max: int | None = None
    dead_max: int | None = None
    mode: str | None = None
    assignor: str | None = None
    session_timeout: Duration | None = None
    rebalance_timeout: Duration | None = None


def _whole(low: int, high: int = COUNT_MAX) -> Callable[[str, Any], int]:
    def parse(name: str, given: Any) -> int:
        if not isinstance(given, int) or isinstance(given, bool) or not low <= given <= high:
            raise BadRequest(f"{name}: want a whole number from {low} to {high}")
        return given

    return parse


def _one_of(*known: str) -> Callable[[str, Any], str]:
    def parse(name: str, given: Any) -> str:
        if given not in known:
            raise BadRequest(f"{name}: want one of {', '.join(known)}")
        return str(given)

    return parse


def _span(ms_max: int) -> Callable[[str, Any], int]:
    def parse(name: str, given: Any) -> int:
        if isinstance(given, bool) or not isinstance(given, str | int | float):
            raise BadRequest(f"{name}: want a duration such as 30s, or milliseconds")
        found = duration_ms(given, name) or 0
        if found > ms_max:
            raise BadRequest(f"{name}: longer than {format_duration(ms_max)}")
        return found

    return parse


_SETTINGS: dict[str, tuple[str, Callable[[str, Any], object]]] = {
    "visibility_timeout": ("visibility_ms", _span(VISIBILITY_MS_MAX)),
    "max_attempts": ("max_attempts", _whole(0)),
    "maxRetries": ("max_attempts", _whole(0)),
    "ordering": ("ordering", _one_of("none", "key")),
    "start": ("start", _one_of("earliest", "latest")),
    "lane_max_wait": ("lane_max_wait_ms", _span(WEEK_MS)),
    "lane_share": ("lane_share", _whole(1)),
    "backoff": ("backoff_ms", _span(WEEK_MS)),
    "backoff_max": ("backoff_ms_max", _span(WEEK_MS)),
    "on_poison": ("on_poison", _one_of("dead", "park")),
    "halt_percent": ("halt_percent", _whole(0, 100)),
    "halt_window": ("halt_window", _whole(1, 100_000)),
    "redrives_max": ("redrives_max", _whole(0)),
    "in_flight_max": ("in_flight_max", _whole(1, 1_000_000)),
    "dead_max": ("dead_max", _whole(1)),
    "mode": ("mode", _one_of("exclusive", "shared")),
    "assignor": ("assignor", _one_of("sticky", "range", "roundrobin")),
    "session_timeout": ("session_timeout_ms", _span(HOUR_MS)),
    "rebalance_timeout": ("rebalance_timeout_ms", _span(HOUR_MS)),
}
_SHOWN = {stored: name for name, (stored, _) in _SETTINGS.items() if name != "maxRetries"}


def parse_settings(given: Mapping[str, Any]) -> dict[str, object]:
    """The settings under the names that are stored. Raises BadRequest with every problem, as
    UnknownField where a setting is not known."""
    found: dict[str, object] = {}
    problems: list[str] = []
    unknown: list[UnknownField] = []
    for name, value in given.items():
        if name not in _SETTINGS:
            unknown.append(UnknownField(name, _SETTINGS))
            problems.append(unknown[-1].message)
        elif value is not None:
            stored, parse = _SETTINGS[name]
            try:
                parsed = parse(name, value)
            except BadRequest as error:
                problems.append(error.message)
                continue
            if found.setdefault(stored, parsed) != parsed:
                problems.append(f"{stored} is given twice, with different values")
    if unknown:
        raise unknown[0].among(problems[:20])
    if problems:
        raise BadRequest("; ".join(problems[:20]), problems=problems[:20])
    return found


def shown_settings(settings: Mapping[str, object]) -> dict[str, Any]:
    """Under the names and in the forms that `parse_settings` takes."""
    shown: dict[str, Any] = {}
    for stored, name in _SHOWN.items():
        value = settings.get(stored)
        if "_ms" in stored and isinstance(value, int):
            value = format_duration(value)
        if value is not None:
            shown[name] = value
    return shown
