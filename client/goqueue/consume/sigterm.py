"""SIGTERM, as it ends a consumer: the first one in order, a second one at once."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

ONE_S = 0.5
"""Signals that come this close together are one: `timeout`, for instance, sends each twice, to the
process and to its group."""


class Ending:
    """Whether this process was told to end."""

    is_told = False

    def __init__(self, stop: Callable[[], object]) -> None:
        self._stop = stop

    def tell(self) -> None:
        self.is_told = True
        self._stop()


class _Handler:
    """Of the process, while one consumer or more is to be ended by SIGTERM."""

    def __init__(self) -> None:
        self._endings: list[Ending] = []
        self._told_s: float | None = None

    def __call__(self, _number: int, _frame: FrameType | None) -> None:
        now_s = time.monotonic()
        if self._told_s is None:
            self._told_s = now_s
            for ending in self._endings:
                ending.tell()
        elif now_s - self._told_s >= ONE_S:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.raise_signal(signal.SIGTERM)

    def add(self, ending: Ending) -> None:
        self._endings.append(ending)
        if self._told_s is not None:
            ending.tell()

    def remove(self, ending: Ending) -> None:
        self._endings.remove(ending)
        if not self._endings and self._told_s is None:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


@contextmanager
def ending_by_sigterm(stop: Callable[[], object]) -> Iterator[Ending]:
    """The first SIGTERM calls `stop`, of all consumers of the process that run, and a later one
    ends the process as if nobody handled it.

    A program that handles SIGTERM by itself goes on to do so, and other threads than the main one
    can't handle it. `stop` is called between any two steps of the main thread.
    """
    ending = Ending(stop)
    if threading.current_thread() is not threading.main_thread():
        yield ending
        return
    handler = signal.getsignal(signal.SIGTERM)
    if handler is signal.SIG_DFL:
        handler = _Handler()
        signal.signal(signal.SIGTERM, handler)
    if not isinstance(handler, _Handler):
        yield ending
        return
    handler.add(ending)
    try:
        yield ending
    finally:
        handler.remove(ending)
