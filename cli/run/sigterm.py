"""SIGTERM, as it ends a command that goes on for ever: in order, and done."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from goqueue.consume.sigterm import ending_by_sigterm


@contextmanager
def ending_in_order() -> Iterator[None]:
    """The first SIGTERM cancels what is within, which finishes its work, and is no failure. A later
    one ends the process at once."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    with ending_by_sigterm(lambda: loop.call_soon_threadsafe(task.cancel)) as ending:
        try:
            yield
        except asyncio.CancelledError:
            if not ending.is_told:
                raise
            task.uncancel()
