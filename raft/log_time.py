"""A leader's log time: never back, monotonic within a leadership, close to the wall clock."""

from __future__ import annotations

from collections.abc import Callable

STEP_MS = 1000.0
"""A difference to the wall clock beyond this is a step, and is not followed at once."""
SLEW = 0.1
"""A step is made good at this share of the time that passes."""


class LogClock:
    """Milliseconds since the epoch, for the entries of one group.

    `now` is monotonic time in seconds, `wall_ms` the node's wall clock. `peers_offset_ms` tells by
    how much the peers' clocks (their median) are ahead of ours, None where no majority is known:
    then a step of our wall clock of more than STEP_MS is slewed, otherwise followed forward.
    """

    def __init__(
        self,
        now: Callable[[], float],
        wall_ms: Callable[[], int],
        peers_offset_ms: Callable[[], float | None] | None = None,
    ) -> None:
        self._now = now
        self._wall_ms = wall_ms
        self._peers_offset_ms = peers_offset_ms
        self._value_ms = 0.0
        self._read_at = 0.0

    def start(self, floor_ms: int) -> None:
        """A leadership begins: not before the newest entry's time, nor before the wall clock."""
        wall = float(self._wall_ms())
        offset = self._peers_offset()
        if offset is not None and abs(offset) > STEP_MS:
            wall += offset
        self._value_ms = max(float(floor_ms), wall)
        self._read_at = self._now()

    def read_ms(self, floor_ms: int = 0) -> int:
        """Log time now, at least `floor_ms`."""
        now = self._now()
        passed = max(0.0, now - self._read_at) * 1000.0
        self._read_at = now
        value = self._value_ms + passed
        ahead = self._wall_ms() - value
        if 0.0 <= ahead <= STEP_MS:
            value += ahead
        elif ahead < 0.0:
            value -= min(-ahead, passed * SLEW)
        elif self._peers_agree():
            value += ahead
        else:
            value += min(ahead, passed * SLEW)
        self._value_ms = max(value, float(floor_ms))
        return int(self._value_ms)

    def _peers_offset(self) -> float | None:
        return self._peers_offset_ms() if self._peers_offset_ms is not None else None

    def _peers_agree(self) -> bool:
        offset = self._peers_offset()
        return offset is not None and abs(offset) <= STEP_MS
