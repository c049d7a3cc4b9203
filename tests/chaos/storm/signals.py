"""SIGTERM and Ctrl-C: the first one is told, the second one ends the task at once."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_BOTH = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def told_by_signals(tell: Callable[[], object]) -> Iterator[None]:
    """Around work of the task that enters it. Afterwards the first signal cancels the task."""
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    assert task is not None
    is_told = False

    def handle() -> None:
        nonlocal is_told
        if is_told:
            task.cancel()
            return
        is_told = True
        print("told to end: judging what there was; once more to end at once", flush=True)
        tell()

    for number in _BOTH:
        loop.add_signal_handler(number, handle)
    try:
        yield
    finally:
        for number in _BOTH:
            loop.add_signal_handler(number, task.cancel)
