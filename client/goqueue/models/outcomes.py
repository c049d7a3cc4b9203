"""What a handler says of its message by raising: again later, or never; and why, in few words.

Servers keep 256 characters of a reason, with the timeline and the dead letter. So a traceback is
the error and the places that it came through, the innermost first, as many as there is room for.
"""

from __future__ import annotations

import os
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from goqueue.models.times import Duration, duration_ms
from goqueue.wire.errors import BadRequest

V = TypeVar("V")

REASON_MAX = 256
"""Characters that servers keep of a reason."""
ERROR_MAX = 160
"""Characters of it for the error itself; the rest says where it came from."""
BACKOFF_MAX_S = 3600.0
_LIBRARY = str(Path(__file__).resolve().parents[1]) + os.sep


class Retry(Exception):
    """When a message comes again, and how often: as a task's `retry=`, or raised by a handler.

    It comes after `delay`, or after `backoff`, which doubles with each failure up to
    `backoff_max` (an hour); after the group's own backoff where neither is given. With the failure
    of attempt `max_attempts` it is a dead letter. Raised from a task, what is given goes before
    what the task's `retry=` says. Raises BadRequest on what is no duration or number of attempts.
    """

    def __init__(
        self,
        reason: str = "",
        *,
        delay: Duration | None = None,
        max_attempts: int | None = None,
        backoff: Duration | None = None,
        backoff_max: Duration | None = None,
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.delay_s = _seconds(delay, "delay")
        self.backoff_s = _seconds(backoff, "backoff")
        self.backoff_max_s = _seconds(backoff_max, "backoff_max")
        if max_attempts is not None and max_attempts < 1:
            raise BadRequest(f"max_attempts: {max_attempts}; want 1 or more")
        self.max_attempts = max_attempts

    def over(self, other: Retry) -> Retry:
        """This one, with the other's answers where it has none. A time is one answer: `delay` here
        goes before the other's `backoff`."""
        found = Retry(self.reason)
        timed = self if self.delay_s is not None or self.backoff_s is not None else other
        found.delay_s, found.backoff_s = timed.delay_s, timed.backoff_s
        found.backoff_max_s = _first(self.backoff_max_s, other.backoff_max_s)
        found.max_attempts = _first(self.max_attempts, other.max_attempts)
        found.__cause__ = self.__cause__
        return found

    def delay_after_s(self, attempt: int) -> float | None:
        """Seconds until a message comes again whose attempt, from 1, has failed; None for the
        group's own backoff."""
        if self.delay_s is not None or self.backoff_s is None:
            return self.delay_s
        most_s = BACKOFF_MAX_S if self.backoff_max_s is None else self.backoff_max_s
        return float(min(self.backoff_s * 2 ** min(attempt - 1, 32), most_s))

    def is_last(self, attempt: int) -> bool:
        """Whether a message is dead that has failed so often."""
        return self.max_attempts is not None and attempt >= self.max_attempts


class Reject(Exception):
    """Raised by a handler: its message can't succeed, and is a dead letter at once."""

    def __init__(self, reason: str = "rejected by its handler") -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Failed:
    """What becomes of a message whose handler raised."""

    action: str
    """nack, or reject."""
    reason: str
    delay_s: float | None = None


def failed(error: Exception, attempt: int, retry: Retry | None = None) -> Failed:
    """What an error makes of a message at its attempt, from 1. `retry` is what holds where the
    error is no `Retry` by itself, or does not say all."""
    if isinstance(error, Reject):
        return Failed("reject", error.reason[:REASON_MAX])
    told = error if isinstance(error, Retry) else Retry()
    told = told if retry is None else told.over(retry)
    reason = reason_of(error)
    if told.is_last(attempt):
        return Failed("reject", reason)
    return Failed("nack", reason, told.delay_after_s(attempt))


def reason_of(error: BaseException) -> str:
    """The error and where it came from, in `REASON_MAX` characters. A `Retry` gives its own reason,
    or that of the error which it was raised from."""
    if isinstance(error, Retry):
        if error.reason:
            return error.reason[:REASON_MAX]
        if error.__cause__ is None:
            return "its handler asked for another attempt"
        error = error.__cause__
    said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    found = said if len(said) <= ERROR_MAX else said[: ERROR_MAX - 1] + "…"
    for number, place in enumerate(_places(error)):
        more = f"{' < ' if number else ' at '}{place}"
        if len(found) + len(more) > REASON_MAX:
            break
        found += more
    return found


def _places(error: BaseException) -> list[str]:
    """`file.py:12 function`, the innermost first, without this library's own."""
    frames = traceback.extract_tb(error.__traceback__)
    return [
        f"{os.path.basename(frame.filename)}:{frame.lineno} {frame.name}"
        for frame in reversed(frames)
        if not frame.filename.startswith(_LIBRARY)
    ]


def _seconds(duration: Duration | None, what: str) -> float | None:
    return None if duration is None else duration_ms(duration, what) / 1000


def _first(first: V | None, second: V | None) -> V | None:
    return second if first is None else first
