"""Virtual time: one heap of events for the whole world, and each process's share of it."""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from typing import Any

EPOCH_MS = 1_700_000_000_000
"""When a run begins, by clocks that are right."""
STEPS_MAX = 3_000_000
"""Events in one run; a run that needs more is stuck in a cycle at one time."""
LOOK_S = 0.05
"""How often it is looked whether a run has got where it should."""
NEVER = float("inf")
TOGETHER = 256
"""Noted events that are added to the hash at once."""


class Stuck(AssertionError):
    """The run did not come to its end."""


class Timer:
    """An event to come; a cancelled one is skipped."""

    __slots__ = ("args", "callback", "cancelled", "process")

    def __init__(
        self,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        process: ProcessTime | None = None,
    ) -> None:
        self.callback = callback
        self.args = args
        self.process = process
        """Whose event it is: it dies and pauses with that."""
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class Trace:
    """What happened, as one hash; the same for the same seed. With `keep`, as lines, too."""

    def __init__(self, *, keep: bool = False) -> None:
        self.lines: list[str] = []
        self._keep = keep
        self._recent: list[str] = []
        self._low = 0
        self._high = 0xFFFF_FFFF

    def note(self, now: float, words: Iterable[object]) -> None:
        """One event that two runs of a seed must have in common."""
        self.note_line(now, " ".join(map(str, words)))

    def note_line(self, now: float, line: str) -> None:
        """The same, of words in one."""
        recent = self._recent
        recent.append(f"{now:.6f} {line}")
        if len(recent) >= TOGETHER:
            self._digest()

    @property
    def digest(self) -> str:
        self._digest()
        return f"{self._high:08x}{self._low:08x}"

    def kept(self) -> list[str]:
        """All lines, where they are kept."""
        self._digest()
        return self.lines

    def _digest(self) -> None:
        data = "".join(self._recent).encode()
        self._low = zlib.crc32(data, self._low)
        self._high = zlib.adler32(data, self._high)
        if self._keep:
            self.lines += self._recent
        self._recent.clear()


class Loop:
    """Events in the order of their time, then of their arrival."""

    def __init__(self, trace: Trace) -> None:
        self.time = 0.0
        self.trace = trace
        self.steps = 0
        self._queue: list[tuple[float, int, Timer]] = []
        self.soon: deque[Timer] = deque()
        """Events of this very time: they came after those in the queue that are due now."""
        self._number = 0

    def call_later(self, delay_s: float, callback: Callable[..., object], *args: object) -> Timer:
        return self.put(delay_s, Timer(callback, args))

    def put(self, delay_s: float, timer: Timer) -> Timer:
        """Let it happen after this time."""
        at = self.time + delay_s
        if at > self.time:
            self._number += 1
            heappush(self._queue, (at, self._number, timer))
        else:
            self.soon.append(timer)
        return timer

    def note(self, *words: object) -> None:
        self.trace.note(self.time, words)

    def note_line(self, line: str) -> None:
        self.trace.note_line(self.time, line)

    def run_until(self, end: float, condition: Callable[[], bool] | None = None) -> bool:
        """Run to this time, or until the condition holds, looked at every 50 ms; whether it did."""
        look_at = NEVER if condition is None else self.time
        queue, soon, now = self._queue, self.soon, self.time
        while True:
            if queue and (not soon or queue[0][0] <= now):
                at = queue[0][0]
                if at > end:
                    break
                if at > now:
                    now = self.time = at
                if at >= look_at:
                    look_at = at + LOOK_S
                    if condition is not None and condition():
                        return True
                timer = heappop(queue)[2]
            elif soon:
                timer = soon.popleft()
            else:
                break
            if timer.cancelled:
                continue
            self.steps += 1
            process = timer.process
            if process is None:
                timer.callback(*timer.args)
            elif process.paused is not None:
                process.paused.append(timer)
            elif process.alive:
                timer.callback(*timer.args)
            if self.steps > STEPS_MAX:
                raise Stuck(f"{STEPS_MAX} steps, and the time is {self.time:.3f} s")
        self.time = max(self.time, end)
        return condition is not None and condition()


class ProcessTime:
    """A process's share of the time, a `raft.interfaces.Scheduler`: dies and pauses with it."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self.alive = True
        self.on_killed: Callable[[], None] = lambda: None
        self.paused: list[Timer] | None = None
        """What would have happened since it was paused."""

    def now(self) -> float:
        return self._loop.time

    def call_soon(self, callback: Callable[..., object], *args: object) -> Timer:
        timer = Timer(callback, args, self)
        self._loop.soon.append(timer)
        return timer

    def call_later(self, delay_s: float, callback: Callable[..., object], *args: object) -> Timer:
        return self._loop.put(delay_s, Timer(callback, args, self))

    @property
    def is_paused(self) -> bool:
        return self.paused is not None

    def pause(self) -> None:
        """Nothing happens in the process until `resume`; its clock goes on."""
        if self.paused is None:
            self.paused = []

    def resume(self) -> None:
        """What would have happened meanwhile happens now, in its order."""
        late, self.paused = self.paused, None
        self._loop.soon.extend(late or ())

    def kill(self) -> None:
        """Nothing of this process happens ever again."""
        self.alive = False
        self.paused = None
        self.on_killed()
