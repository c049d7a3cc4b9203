"""An event that takes next to nothing while nobody waits for it.

`asyncio.Event` makes a deque for those who wait, of 0.7 KB, also where there never is one: a node
has three events for each of its streams.
"""

from __future__ import annotations

import asyncio


class Signal:
    """As `asyncio.Event`, for few who wait at the same time. Loop thread only."""

    __slots__ = ("_is_set", "_waiting")

    def __init__(self, *, is_set: bool = False) -> None:
        self._is_set = is_set
        self._waiting: tuple[asyncio.Future[None], ...] = ()

    def set(self) -> None:
        """Whoever waits goes on, in the order in which they came."""
        self._is_set = True
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_result(None)

    def clear(self) -> None:
        self._is_set = False

    async def wait(self) -> None:
        """Return once it is set; also where it was cleared again before this had its turn."""
        if self._is_set:
            return
        waiting = asyncio.get_running_loop().create_future()
        self._waiting += (waiting,)
        try:
            await waiting
        finally:
            self._waiting = tuple(one for one in self._waiting if one is not waiting)
