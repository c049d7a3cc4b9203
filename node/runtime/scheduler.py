"""The scheduler that Raft asks for, over the running asyncio loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import copy_context
from typing import Any


class LoopScheduler:
    """Timers and turns of one event loop; used on that loop's thread only."""

    def __init__(self, loop: asyncio.AbstractEventLoop, now_s: Callable[[], float]) -> None:
        self._loop = loop
        self._now_s = now_s
        self._context = copy_context()
        """A timer belongs to the node, and not to the request that happens to set it."""

    def now(self) -> float:
        """Monotonic seconds, of the node's clock."""
        return self._now_s()

    def call_soon(self, callback: Callable[..., Any], *args: Any) -> None:
        self._loop.call_soon(callback, *args)

    def call_later(
        self, delay_s: float, callback: Callable[..., Any], *args: Any
    ) -> asyncio.TimerHandle:
        return self._loop.call_later(delay_s, callback, *args, context=self._context)
