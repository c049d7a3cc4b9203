"""Virtual time: one heap of events for the whole world, and each process's share of it."""

from __future__ import annotations

import heapq
import zlib
from collections.abc import Callable
from itertools import count
from typing import Any

EPOCH_MS = 1_700_000_000_000
"""When a run begins, by clocks that are right."""
STEPS_MAX = 3_000_000
"""Events in one run; a run that needs more is stuck in a cycle at one time."""


class Stuck(AssertionError):
    """The run did not come to its end."""


class Timer:
    """An event to come; cancelled ones are skipped."""

    __slots__ = ("cancelled",)

    def __init__(self) -> None:
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class Trace:
    """What happened, as one hash; the same for the same seed. With `keep`, as lines, too."""

    def __init__(self, *, keep: bool = False) -> None:
        self.lines: list[str] = []
        self._keep = keep
        self._low = 0
        self._high = 0xFFFF_FFFF

    def note(self, now: float, *words: object) -> None:
        """One event that two runs of a seed must have in common."""
        line = f"{now:.6f} " + " ".join(map(str, words))
        data = line.encode()
        self._low = zlib.crc32(data, self._low)
        self._high = zlib.adler32(data, self._high)
        if self._keep:
            self.lines.append(line)

    @property
    def digest(self) -> str:
        return f"{self._high:08x}{self._low:08x}"


class Loop:
    """Events in the order of their time, then of their arrival."""

    def __init__(self, trace: Trace) -> None:
        self.time = 0.0
        self.trace = trace
        self.steps = 0
        self._queue: list[tuple[float, int, Timer, Callable[..., object], tuple[Any, ...]]] = []
        self._numbers = count()

    def call_later(self, delay_s: float, callback: Callable[..., object], *args: object) -> Timer:
        timer = Timer()
        at = self.time + (delay_s if delay_s > 0 else 0.0)
        heapq.heappush(self._queue, (at, next(self._numbers), timer, callback, args))
        return timer

    def note(self, *words: object) -> None:
        self.trace.note(self.time, *words)

    def run_until(self, end: float, condition: Callable[[], bool] | None = None) -> bool:
        """Run to this time, or until the condition holds, looked at every 50 ms; whether it did."""
        look_at = self.time
        queue = self._queue
        while queue and queue[0][0] <= end:
            at, _number, timer, callback, args = heapq.heappop(queue)
            if at > self.time:
                self.time = at
            if condition is not None and at >= look_at:
                look_at = at + 0.05
                if condition():
                    heapq.heappush(queue, (at, -1, timer, callback, args))
                    return True
            if timer.cancelled:
                continue
            self.steps += 1
            if self.steps > STEPS_MAX:
                raise Stuck(f"{STEPS_MAX} steps, and the time is {self.time:.3f} s")
            callback(*args)
        self.time = max(self.time, end)
        return condition is not None and condition()


class ProcessTime:
    """A process's share of the time, a `raft.interfaces.Scheduler`: dies and pauses with it."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._alive = True
        self._paused: list[tuple[Callable[..., object], tuple[object, ...]]] | None = None

    def now(self) -> float:
        return self._loop.time

    def call_soon(self, callback: Callable[..., object], *args: object) -> Timer:
        return self._loop.call_later(0.0, self._call, callback, args)

    def call_later(self, delay_s: float, callback: Callable[..., object], *args: object) -> Timer:
        return self._loop.call_later(delay_s, self._call, callback, args)

    @property
    def is_paused(self) -> bool:
        return self._paused is not None

    def pause(self) -> None:
        """Nothing happens in the process until `resume`; its clock goes on."""
        if self._paused is None:
            self._paused = []

    def resume(self) -> None:
        """What would have happened meanwhile happens now, in its order."""
        late, self._paused = self._paused, None
        for callback, args in late or ():
            self.call_soon(callback, *args)

    def kill(self) -> None:
        """Nothing of this process happens ever again."""
        self._alive = False
        self._paused = None

    def _call(self, callback: Callable[..., object], args: tuple[object, ...]) -> None:
        if self._paused is not None:
            self._paused.append((callback, args))
        elif self._alive:
            callback(*args)
