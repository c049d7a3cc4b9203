"""A topic's settings as they are sent: what was given, and spans of time as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from goqueue.models.times import duration_text
from goqueue.transport.calls import given

_SPANS = (
    "ttl",
    "delay_max",
    "dedup_window",
    "dead_retention",
    "delete_retention",
    "min_compaction_lag",
)


def topic_settings(named: Mapping[str, Any]) -> dict[str, object]:
    """Those that are not None; a span that is a number or a timedelta becomes its text."""
    found = given(named)
    spans = {name: duration_text(found[name], name) for name in _SPANS if name in found}
    return {**found, **spans}
