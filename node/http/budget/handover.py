"""How soon a thread that computes hands the interpreter to the loop.

CPython lets a thread compute for 5 ms before another one gets the interpreter
(sys.setswitchinterval). The loop gives it up with each system call, so beside one thread that
computes each request waits 5 ms several times. A short interval for good would cost a quarter of
all single publishes of three nodes, measured: the threads that sync files would then take the
interpreter from the loop in the middle of its work. So it is short only while a thread computes for
requests, or the loop works through slices of long ones: the thread that syncs what others publish
takes the interpreter five times for each sync, and waited up to 5 ms each time.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from threading import Lock

QUICK_S = 0.0002
"""Handing over takes some 10 µs: a thread that computes keeps nine tenths of its speed."""


class Interval:
    """How many compute in this process, and what interval it had before the first of them."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._count = 0
        self._before_s = 0.0

    def shorten(self) -> None:
        """Until `restore` was called as often as this."""
        with self._lock:
            if not self._count:
                self._before_s = sys.getswitchinterval()
                sys.setswitchinterval(QUICK_S)
            self._count += 1

    def restore(self) -> None:
        with self._lock:
            self._count -= 1
            if not self._count:
                sys.setswitchinterval(self._before_s)


INTERVAL = Interval()
"""The interpreter has one for all its threads."""


@contextlib.contextmanager
def quick_handover() -> Iterator[None]:
    """While one block of this process or more is under way, the interval is short."""
    INTERVAL.shorten()
    try:
        yield
    finally:
        INTERVAL.restore()
