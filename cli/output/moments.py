"""Times as people type them: `-1h`, `yesterday`, `2026-11-23`, or as servers write them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import typer

from cli.output.formats import time_of
from goqueue.errors import BadRequest
from goqueue.models.times import datetime_ms, duration_ms, time_ms

EXAMPLES = "-1h, yesterday, 2026-11-23, 2026-11-23T10:30:00Z, or milliseconds since 1970"
HELP = "-1h, yesterday, 2026-11-23, RFC 3339, ms since 1970"
_DAYS = {"today": 0, "yesterday": 1}


def option(*names: str, help: str, **settings: Any) -> Any:
    """An option that takes a time; its function gets what servers take."""
    return typer.Option(*names, help=f"{help} ({HELP})", callback=moment, **settings)


def moment(param: typer.CallbackParam, value: str | None) -> str | None:
    """What an option's text means, as servers take it. Raises `typer.BadParameter`: exit code 2."""
    if value is None:
        return None
    try:
        return moment_text(value, datetime.now(UTC).astimezone())
    except (BadRequest, ValueError, OverflowError):
        text = f"{value[:60]!r} is not a time such as {EXAMPLES}"
        hint = " / ".join(param.opts)
        raise typer.BadParameter(text, param_hint=hint) from None


def moment_text(text: str, now: datetime) -> str:
    """Days and times without a zone are those of this machine. Raises ValueError or BadRequest."""
    word = text.strip().lower()
    if re.fullmatch(r"\d{1,18}", word, re.ASCII):
        return word
    if word == "now":
        return time_of(datetime_ms(now))
    if word in _DAYS:
        day = now.date() - timedelta(days=_DAYS[word])
        return time_of(datetime_ms(datetime(day.year, day.month, day.day)))
    if word.startswith("-"):
        return time_of(datetime_ms(now) - duration_ms(word[1:], "the time"))
    if word.endswith(" ago"):
        return time_of(datetime_ms(now) - duration_ms(word.removesuffix(" ago"), "the time"))
    return time_of(time_ms(text.strip().upper()))
