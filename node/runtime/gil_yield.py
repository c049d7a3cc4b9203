"""Work of a thread in turns: who waits for the interpreter has it within a millisecond or two."""

from __future__ import annotations

import time

TURN_S = 0.001
REST_S = 0.00005
"""Long enough for another thread to take over; the interpreter itself makes it wait for 5 ms."""


class GilYield:
    """Of one piece of work, begun when this is made. Never on the loop's thread: it sleeps."""

    def __init__(self) -> None:
        self._end_s = time.perf_counter() + TURN_S

    def end(self) -> None:
        """Let others go on, if the turn has lasted long enough."""
        if time.perf_counter() >= self._end_s:
            time.sleep(REST_S)
            self._end_s = time.perf_counter() + TURN_S
