"""SIGTERM, as it ends a command that goes on for ever: in order, and done."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def ending_in_order() -> Iterator[None]:
    """The first SIGTERM cancels what is within, which finishes its work, and is no failure. A
    second one ends the process at once."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    is_told = False

    def told() -> None:
        nonlocal is_told
        is_told = True
        loop.remove_signal_handler(signal.SIGTERM)
        task.cancel()

    loop.add_signal_handler(signal.SIGTERM, told)
    try:
        yield
    except asyncio.CancelledError:
        if not is_told:
            raise
        task.uncancel()
    finally:
        if not is_told:
            loop.remove_signal_handler(signal.SIGTERM)
