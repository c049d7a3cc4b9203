"""What benches of publishing, receiving and settling share: turns for some time, and each message
once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

from benchmarks.connection import BadAnswer
from benchmarks.processes import cpu_seconds
from benchmarks.publish import Load

WAIT_S = 1.0
"""A consumer that gets nothing for so long has emptied the queue."""
T = TypeVar("T")


class Settled:
    """Which of `count` numbered messages were settled. Raises `BadAnswer` on a double."""

    def __init__(self, count: int) -> None:
        self._seen = bytearray(count)
        self.count = 0

    def add(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            if self._seen[number]:
                raise BadAnswer(f"message {number} came twice")
            self._seen[number] = 1
            self.count += 1

    @property
    def numbers(self) -> list[int]:
        """All that were settled, ascending."""
        return [number for number, seen in enumerate(self._seen) if seen]


async def begun(_connection: object) -> None:
    """For `work_until`: there is nothing to begin."""


async def work_until(
    consumers: Sequence[T],
    begin: Callable[[T], Awaitable[None]],
    turn: Callable[[T], Awaitable[int]],
    pids: Sequence[int],
    seconds: float,
) -> Load:
    """Each consumer, or publisher, works turn by turn until time or messages are up.

    `turn` answers how many messages it has done; 0 ends its consumer. The time ends with the last
    message, so a queue that ran empty costs the figure nothing.
    """
    counts: list[int] = []
    times: list[float] = []
    clock = time.perf_counter
    cpu_before, began = cpu_seconds(pids), clock()
    until, last = began + seconds, began

    async def work(consumer: T) -> None:
        nonlocal last
        await begin(consumer)
        while (before := clock()) < until and (count := await turn(consumer)):
            last = clock()
            counts.append(count)
            times.append(last - before)

    async with asyncio.TaskGroup() as tasks:
        for consumer in consumers:
            tasks.create_task(work(consumer))
    return Load(sum(counts), last - began, cpu_seconds(pids) - cpu_before, 0, times)
