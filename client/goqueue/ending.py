"""SIGTERM, as it ends a consumer: the first one in order, a second one at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


class Ending:
    """Whether this process was told to end."""

    is_told = False


@contextmanager
def ending_by_sigterm(stop: Callable[[], object]) -> Iterator[Ending]:
    """The first SIGTERM calls `stop`, and the second one ends the process as if nobody handled it.

    A program that handles SIGTERM by itself goes on to do so, and other threads than the main one
    can't handle it. `stop` is called between any two steps of the main thread.
    """
    ending = Ending()
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield ending
        return

    def told(_number: int, _frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        ending.is_told = True
        stop()

    signal.signal(signal.SIGTERM, told)
    try:
        yield ending
    finally:
        if not ending.is_told:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
