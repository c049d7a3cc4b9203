"""How fast other nodes may copy from this one: slower while its own publishes wait for the disk."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from node.runtime.throttle import Throttle

UNBOUNDED_BYTES_S = 1 << 30
"""What is begun with where no bound was set."""
LEAST_SHARE = 0.5
"""A copy never gets less than this share of its bound: a replica that is missing is a risk, too."""
SLOWER = 2.0
"""Syncs that take so many times their normal time on average are slowed down by the copy."""
SYNC_S_MIN = 0.001
"""A normal time below this is taken for this: so little is noise."""
ADJUST_S = 0.25
LESS, MORE = 0.7, 1.1
"""What the rate is multiplied with, each `ADJUST_S`."""
QUIET_S = 1.0
"""So long after the last chunk nothing is being copied: then syncs take their normal time."""
_NORMAL_WEIGHT, _RECENT_WEIGHT = 1 / 64, 1 / 16


class CopyPace:
    """Told of each sync by `synced`; `take` returns when a chunk may go. Loop thread only."""

    def __init__(
        self,
        bytes_per_s: int,
        now_s: Callable[[], float],
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        """`bytes_per_s` is the bound; 0 is none."""
        self._most = bytes_per_s or UNBOUNDED_BYTES_S
        self._now_s = now_s
        self._throttle = Throttle(self._most, now_s, sleep)
        self._normal_s = self._recent_s = 0.0
        self._taken_s = self._adjusted_s = float("-inf")

    @property
    def bytes_per_s(self) -> int:
        """What all copies from here get together, now."""
        return self._throttle.bytes_per_s

    async def take(self, size: int) -> None:
        """Return when these bytes may go."""
        if self._is_quiet():
            self._throttle.bytes_per_s = self._most
            self._recent_s = self._normal_s
        self._taken_s = self._now_s()
        await self._throttle.take(size)

    def synced(self, took_s: float) -> None:
        """A sync of this node's log is done."""
        if self._is_quiet() or not self._normal_s:
            weight = _NORMAL_WEIGHT if self._normal_s else 1.0
            self._normal_s += weight * (took_s - self._normal_s)
            return
        self._recent_s += _RECENT_WEIGHT * (took_s - self._recent_s)
        now = self._now_s()
        if now - self._adjusted_s >= ADJUST_S:
            self._adjusted_s = now
            is_slow = self._recent_s > SLOWER * max(self._normal_s, SYNC_S_MIN)
            rate = self.bytes_per_s * (LESS if is_slow else MORE)
            self._throttle.bytes_per_s = round(min(max(rate, LEAST_SHARE * self._most), self._most))

    def _is_quiet(self) -> bool:
        return self._now_s() - self._taken_s >= QUIET_S
