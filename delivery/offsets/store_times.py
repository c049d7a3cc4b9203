"""When offsets were stored, to the second: how long the head of a lane has waited."""

from __future__ import annotations

from array import array
from bisect import bisect_right

STEP_MS = 1000
RUNS_MAX = 65_536
"""Beyond it every second run is dropped: waits are then known less finely."""


class StoreTimes:
    """Log times of offsets: each run has the time at which its first offset was stored."""

    def __init__(self) -> None:
        self._offsets = array("Q")
        self._times = array("Q")

    def stored(self, base: int, time_ms: int) -> None:
        """Records from `base` on are stored at this log time."""
        if self._times and time_ms < self._times[-1] + STEP_MS:
            return
        self._offsets.append(base)
        self._times.append(time_ms)
        if len(self._times) > RUNS_MAX:
            self._offsets = self._offsets[::2]
            self._times = self._times[::2]

    def at(self, offset: int) -> int:
        """No later than the offset's own time; 0 where it is older than what is known."""
        row = bisect_right(self._offsets, offset) - 1
        return self._times[row] if row >= 0 else 0

    def forget_below(self, offset: int) -> None:
        """Let go of what is only known of offsets below this one."""
        row = bisect_right(self._offsets, offset) - 1
        if row > 0:
            del self._offsets[:row]
            del self._times[:row]

    def dump(self) -> tuple[bytes, bytes]:
        return self._offsets.tobytes(), self._times.tobytes()

    def load(self, data: tuple[bytes, bytes]) -> None:
        self._offsets, self._times = array("Q"), array("Q")
        self._offsets.frombytes(data[0])
        self._times.frombytes(data[1])
