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
    told_s = 0.0


@contextmanager
def ending_by_sigterm(stop: Callable[[], object]) -> Iterator[Ending]:
    """The first SIGTERM calls `stop`, and a later one ends the process as if nobody handled it.

    A program that handles SIGTERM by itself goes on to do so, and other threads than the main one
    can't handle it. `stop` is called between any two steps of the main thread.
    """
    ending = Ending()
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield ending
        return

    def told(_number: int, _frame: FrameType | None) -> None:
        now_s = time.monotonic()
        if not ending.is_told:
            ending.is_told, ending.told_s = True, now_s
            stop()
        elif now_s - ending.told_s >= ONE_S:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.raise_signal(signal.SIGTERM)

    signal.signal(signal.SIGTERM, told)
    try:
        yield ending
    finally:
        if not ending.is_told:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
