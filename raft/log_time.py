"""Log time: never back, monotonic within a leadership, close to the leader's wall clock."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from log.entry import Entry, EntryKind, make_entry
from raft.state import State

STEP_MS = 1000.0
"""A difference to the wall clock beyond this is a step, and is not followed at once."""
SLEW = 0.1
"""A step is made good at this share of the time that passes."""


def majority_offset_ms(peers_ahead_ms: Iterable[float], nodes: int) -> float | None:
    """By how much the time that a majority of all nodes agrees on is ahead of this node's clock.

    Given how far the clocks of the peers that are heard are ahead. Clocks agree if they lie within
    STEP_MS. 0.0 where this node's clock is of a majority, None where no majority agrees: with
    three nodes, two of them heard and one of these wrong, that is the difference that matters.
    """
    ahead = sorted([0.0, *peers_ahead_ms])
    majority = nodes // 2 + 1
    agreed: float | None = None
    for first, last in zip(ahead, ahead[majority - 1 :], strict=False):
        if last - first <= STEP_MS:
            if first <= 0.0 <= last:
                return 0.0
            agreed = (first + last) / 2
    return agreed


class LogClock:
    """Milliseconds since the epoch, for the entries of one group.

    `now` is monotonic time in seconds, `wall_ms` the node's wall clock. `majority_offset_ms` tells
    by how much the clock that a majority agrees on is ahead of it, None where none is known. Time
    that goes with a majority is followed forward at once; otherwise a difference of more than
    STEP_MS is slewed. Without that source, a new leader trusts its own clock once, at its start.
    """

    def __init__(
        self,
        now: Callable[[], float],
        wall_ms: Callable[[], int],
        majority_offset_ms: Callable[[], float | None] | None = None,
    ) -> None:
        self._now = now
        self._wall_ms = wall_ms
        self._majority_offset_ms = majority_offset_ms
        self._value_ms = 0.0
        self._read_at = 0.0

    def start(self, floor_ms: int) -> None:
        """A leadership begins: log time goes on from the newest entry's, or jumps to now.

        It does not jump while no majority is known to agree on a time.
        """
        value = float(floor_ms)
        if self._majority_offset_ms is None:
            value = max(value, float(self._wall_ms()))
        else:
            offset = self._majority_offset_ms()
            if offset is not None:
                value = max(value, self._wall_ms() + _beyond_a_step(offset))
        self._value_ms = value
        self._read_at = self._now()

    def read_ms(self, floor_ms: int = 0) -> int:
        """Log time now, at least `floor_ms`."""
        now = self._now()
        passed = max(0.0, now - self._read_at) * 1000.0
        self._read_at = now
        value = self._value_ms + passed
        ahead = self._wall_ms() - value
        agreed = abs(ahead) <= STEP_MS
        if not agreed and self._majority_offset_ms is not None:
            offset = self._majority_offset_ms()
            if offset is not None:
                ahead += _beyond_a_step(offset)
                agreed = True
        if ahead < 0.0:
            value -= min(-ahead, passed * SLEW)
        else:
            value += ahead if agreed else min(ahead, passed * SLEW)
        self._value_ms = max(value, float(floor_ms))
        return int(self._value_ms)


class LogTime:
    """The times in the entries of one group: what leaders stamp, and what others read there."""

    def __init__(self, state: State, clock: LogClock) -> None:
        self._state = state
        self._log = state.log
        self._clock = clock
        self._newest_ms = 0
        self._commit_lag: tuple[int, int] = (0, 0)
        """The newest entry when it was committed here, as leader, and how long that had taken."""

    def now_ms(self) -> int:
        """Log time in milliseconds: a leader's now, never back; elsewhere the newest entry's."""
        if self._state.is_leader:
            self._newest_ms = self._clock.read_ms(self._newest_ms)
            return self._newest_ms
        return self._stored_ms()

    def start(self) -> None:
        """A leadership begins: log time goes on from the newest entry's."""
        self._newest_ms = self._stored_ms()
        self._clock.start(self._newest_ms)

    def stamp(self, wanted_ms: int | None) -> int:
        """The time of the next entry: this one, unless it is unknown or past."""
        if wanted_ms is None or wanted_ms < self._newest_ms:
            return self.now_ms()
        return wanted_ms

    def stamped(self, time_ms: int) -> None:
        """An entry with this time was appended."""
        self._newest_ms = time_ms

    def make_noop(self, index: int, term: int) -> Entry:
        """The entry with which a leader begins."""
        return make_entry(
            index=index, term=term, time_ms=self.now_ms(), kind=EntryKind.NOOP, matches=()
        )

    def committed(self, index: int) -> None:
        """The newest entry was committed by this leader, which remembers how long that took."""
        since_ms = self._stored_ms()
        self._commit_lag = index, self.now_ms() - since_ms

    def lag_ms(self, index: int) -> int | None:
        """How long it took to commit this entry, where it was the newest then."""
        return self._commit_lag[1] if self._commit_lag[0] == index else None

    def _stored_ms(self) -> int:
        last = self._log.last_index
        if last < self._log.first_index:
            return self._newest_ms
        return self._log.entries(last, max_count=1)[0].time_ms


def _beyond_a_step(offset_ms: float) -> float:
    """Differences within a step are delays of the network, and no reason to distrust a clock."""
    return offset_ms if abs(offset_ms) > STEP_MS else 0.0
