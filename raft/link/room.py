"""Room on a connection for large requests and answers: they wait for each other, not in its queue.

A peer counts as stuck by what waits for it unsent. However many clients' batches a node forwards at
once, they are not to make a peer look so that reads as fast as it can.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from raft.link.config import KIB

SMALL_BYTES = 4 * KIB
"""What is no larger goes at once: as many as may be in flight are a few MiB."""


class Room:
    """Who may put a message, first come, first served, on the loop's thread.

    While more than `room_bytes` of them, which the socket's buffer must be able to hold, are
    unsent, nobody enters. What else waits on the connection does not count: it has its own bounds,
    and may always be there.
    """

    def __init__(self, room_bytes: int) -> None:
        self._taken_bytes: Callable[[], int] = int
        self._room_bytes = room_bytes
        self._put: deque[tuple[int, int]] = deque()
        self._put_bytes = 0
        self._waiting: dict[asyncio.Future[None], None] = {}
        self._closed = False

    def open(self, taken_bytes: Callable[[], int]) -> None:
        """The connection is there; `taken_bytes` tells how far its socket is, until `close`."""
        self._taken_bytes = taken_bytes

    def put(self, end: int, size: int) -> None:
        """A message of this size was put, and is taken when `taken_bytes` has come to `end`."""
        if size > SMALL_BYTES:
            self._put.append((end, size))
            self._put_bytes += size

    def backlog_bytes(self) -> int:
        """What of the messages put is not taken."""
        taken = self._taken_bytes()
        while self._put and self._put[0][0] <= taken:
            self._put_bytes -= self._put.popleft()[1]
        if not self._put:
            return 0
        end, size = self._put[0]
        return self._put_bytes - max(0, size - (end - taken))

    def is_free(self, size: int) -> bool:
        """Whether a message of this size may be put now; on a closed connection, where it fails,
        any."""
        if self._closed or size <= SMALL_BYTES:
            return True
        return not self._waiting and self.backlog_bytes() <= self._room_bytes

    async def enter(self, size: int) -> None:
        """Return when a message of this size may be put, which is to be done in the same turn."""
        if self.is_free(size):
            return
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting[turn] = None
        try:
            await turn
        finally:
            del self._waiting[turn]
            loop.call_soon(self.look)  # also where this one puts nothing after all

    def look(self) -> None:
        """Let the first in, if there is room; called whenever the socket has taken something."""
        turn = next(iter(self._waiting), None)
        if turn is not None and not turn.done() and self.backlog_bytes() <= self._room_bytes:
            turn.set_result(None)

    def close(self) -> None:
        """The connection is gone, and may be forgotten: all who wait learn it by putting."""
        self._closed, self._taken_bytes = True, int
        for turn in self._waiting:
            if not turn.done():
                turn.set_result(None)
