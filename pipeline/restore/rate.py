"""A bound on records and bytes a second, over all partitions of a run together."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

BURST_S = 0.5
"""What was not used for so long may be caught up."""


class Rate:
    """Time that is used up by what is stored."""

    def __init__(
        self,
        records_s: float | None,
        bytes_s: float | None,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """None is no bound."""
        self._cost_record_s = 1 / records_s if records_s else 0.0
        self._cost_byte_s = 1 / bytes_s if bytes_s else 0.0
        self._now_s = now_s
        self._free_s = now_s()

    @property
    def rows_max(self) -> int | None:
        """A batch of more would take longer than a burst; at least 1."""
        cost_s = self._cost_record_s
        return max(1, int(BURST_S / cost_s)) if cost_s else None

    def take(self, records: int, size: int) -> float:
        """Use time for so much, and return how many seconds to wait before it is stored."""
        now_s = self._now_s()
        self._free_s = max(self._free_s, now_s - BURST_S)
        wait_s = max(0.0, self._free_s - now_s)
        self._free_s += max(records * self._cost_record_s, size * self._cost_byte_s)
        return wait_s

    async def wait(self, records: int, size: int) -> None:
        """Return when so much may be stored."""
        wait_s = self.take(records, size)
        if wait_s > 0:
            await asyncio.sleep(wait_s)
