"""Failed attempts of messages that are not settled yet, and the dead letters they become."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

HISTORY_MAX = 10
"""Failures that are remembered of one message, the newest."""

Reason = tuple[int, str]
"""(log time, why an attempt failed)."""


@dataclass(slots=True)
class Failure:
    """What went wrong with one message so far."""

    count: int = 0
    history: list[Reason] = field(default_factory=list[Reason])


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that a group has given up: `attempts` failed, the last one for `reason`."""

    died_ms: int
    attempts: int
    reason: str
    history: Sequence[Reason]
    redrives: int


@dataclass(frozen=True, slots=True)
class Redrives:
    """How often a message was redriven, and when the last time."""

    count: int
    at_ms: int


class Failures:
    """Failures by offset."""

    def __init__(self) -> None:
        self._failures: dict[int, Failure] = {}

    def __len__(self) -> int:
        return len(self._failures)

    def offsets(self) -> list[int]:
        """Messages of which an attempt failed that counts."""
        return [offset for offset, failure in self._failures.items() if failure.count]

    def count(self, offset: int) -> int:
        found = self._failures.get(offset)
        return 0 if found is None else found.count

    def last_reason(self, offset: int) -> str:
        found = self._failures.get(offset)
        return found.history[-1][1] if found is not None and found.history else ""

    def add(self, offset: int, time_ms: int, reason: str) -> int:
        """One more; how many there are."""
        found = self._failures.setdefault(offset, Failure())
        found.count += 1
        found.history.append((time_ms, reason))
        del found.history[:-HISTORY_MAX]
        return found.count

    def forgive(self, offset: int) -> None:
        """The count begins anew; what went wrong stays known."""
        found = self._failures.get(offset)
        if found is not None:
            found.count = 0

    def take(self, offset: int) -> Failure:
        return self._failures.pop(offset, Failure())

    def discard(self, offset: int) -> None:
        self._failures.pop(offset, None)

    def dump(self) -> list[tuple[int, int, list[Reason]]]:
        """For a snapshot: equal wherever the same failures are known."""
        found = self._failures
        return [(o, found[o].count, list(found[o].history)) for o in sorted(found)]

    def load(self, failures: Sequence[tuple[int, int, list[Reason]]]) -> None:
        """Replace everything by what `dump` told."""
        self._failures = {
            offset: Failure(count, list(history)) for offset, count, history in failures
        }
