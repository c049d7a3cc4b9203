"""So many bytes a second and no more, shared by all who take from it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

BURST_S = 0.1
"""What may be taken at once after a pause."""


class Throttle:
    """A bucket of bytes that fills at a fixed rate; 0 is no limit. Loop thread only."""

    def __init__(
        self,
        bytes_per_s: int,
        now_s: Callable[[], float],
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self.bytes_per_s = bytes_per_s
        self._now_s = now_s
        self._sleep = sleep
        self._free_at_s = 0.0
        """When all that was taken is paid for."""

    async def take(self, size: int) -> None:
        """Return when these bytes may go. Who comes first goes first."""
        if self.bytes_per_s <= 0:
            return
        now = self._now_s()
        begins = max(self._free_at_s, now - BURST_S)
        self._free_at_s = begins + size / self.bytes_per_s
        if begins > now:
            await self._sleep(begins - now)
