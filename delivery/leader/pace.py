"""How fast something went lately: a count for each few seconds of the last minute."""

from __future__ import annotations

from collections import deque

STEP_MS = 5000
STEPS = 12


class Pace:
    """Counts by log time; times never go back."""

    def __init__(self) -> None:
        self._steps: deque[tuple[int, int]] = deque(maxlen=STEPS)
        """(number of the step, how many), without those in which nothing happened."""
        self._began_ms = 0

    def note(self, now_ms: int, count: int) -> None:
        """So many at this time."""
        self._began_ms = self._began_ms or now_ms
        step = now_ms // STEP_MS
        if self._steps and self._steps[-1][0] == step:
            count += self._steps.pop()[1]
        self._steps.append((step, count))

    def per_second(self, now_ms: int) -> float:
        """Of the last minute, or since the first count where that is less; 0 where there was
        nothing in that time."""
        first = now_ms // STEP_MS - STEPS + 1
        total = sum(count for step, count in self._steps if step >= first)
        since_ms = max(first * STEP_MS, self._began_ms)
        return total * 1000 / max(now_ms - since_ms, STEP_MS)
