"""What a piece of work costs, in steps: lines of Python that it runs, and bytes that it takes.

A clock tells how busy the machine is as well; the number of steps is the same on every machine and
in every run. What runs inside one call of a C function is one step, whatever its size: a copy or a
sort of something large shows in the bytes.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import tracemalloc
from collections.abc import Callable, Coroutine
from types import FrameType, TracebackType
from typing import Any, Self, TypeVar

Answer = TypeVar("Answer")
STEP_S = 1e-6
"""How long a step takes by the clock that counts them: what a slow machine needs for one."""


class Steps:
    """Counts the lines that this thread runs in a `with` block, in all that it calls or awaits."""

    def __init__(self) -> None:
        self.count = 0

    def __enter__(self) -> Self:
        gc.disable()  # finalizers are run whenever it likes
        sys.settrace(self._called)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        sys.settrace(None)
        gc.enable()

    def clock_s(self) -> float:
        """Seconds on a machine that takes `STEP_S` for each step."""
        return self.count * STEP_S

    def _called(self, _frame: FrameType, _event: str, _argument: Any) -> Any:
        self.count += 1
        return self._line

    def _line(self, _frame: FrameType, event: str, _argument: Any) -> Any:
        if event == "line":
            self.count += 1
        return self._line


def steps(work: Callable[[], object]) -> int:
    """The steps of one call."""
    with Steps() as counted:
        work()
    return counted.count


def peak_bytes(work: Callable[[], object]) -> int:
    """The most memory that one call has at a time, beyond what there was before."""
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        work()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


async def longest_stretch(counted: Steps, work: Coroutine[Any, Any, Answer]) -> tuple[int, Answer]:
    """The most steps that work takes before it lets others run, and its answer. `counted` counts
    already: what looks at a clock to give way may be given `counted.clock_s`."""
    longest, since = 0, counted.count
    working = asyncio.ensure_future(work)
    while not working.done():
        await asyncio.sleep(0)
        longest, since = max(longest, counted.count - since), counted.count
    return longest, await working
