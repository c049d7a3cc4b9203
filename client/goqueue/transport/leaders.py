"""Which of the servers that were named leads a partition, as their answers tell.

Any node serves any request, and one that has sent a request on says to which node. So nothing is
asked for this, and what is remembered is wrong at most once: whoever does not lead any more sends
the request on, and tells. Only the servers that were named are ever asked: which node each of them
is, they say themselves. One that nobody knows, or that can't be reached, is asked through others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from goqueue.background import TaskSet
from goqueue.wire.errors import GoQueueError

ASK_AGAIN_S = 10.0
"""A server that did not say who it is, or could not be reached, is not asked sooner."""
PLACES_MAX = 20_000
"""Partitions whose leaders are remembered; those that were learned first are forgotten first."""

Place = tuple[str, int]
"""A topic and a partition."""


class Leaders:
    """Leaders by the number of their server. Loop thread only."""

    def __init__(self, servers: int, identify: Callable[[int], Awaitable[str]]) -> None:
        """`identify` asks a server which node it is; empty where it does not say."""
        self._servers = servers
        self._identify = identify
        self._places: dict[Place, tuple[int, int]] = {}
        """The server, and how often it had been lost by then."""
        self._lost = [0] * servers
        self._nodes: dict[int, str] = {}
        """Which node each server is, where that is known."""
        self._asked_s = [float("-inf")] * servers
        self._tasks = TaskSet(None)

    def server(self, place: Place) -> int | None:
        """The server that leads, by its number; None where that is not known."""
        found = self._places.get(place)
        return None if found is None or found[1] != self._lost[found[0]] else found[0]

    def learn(self, place: Place, asked: int, leader: str | None) -> None:
        """A server has answered for a partition, and sent the request on to `leader`, or to nobody:
        then it is asked again."""
        if self._servers == 1:
            return
        known = asked if leader is None else self._server_of(leader)
        if leader is not None and known == asked:
            self.lose(asked)  # it stands for several nodes, or for another one than before
            return
        self._places.pop(place, None)
        if known is None:
            self._ask_who_they_are()
            return
        while len(self._places) >= PLACES_MAX:
            del self._places[next(iter(self._places))]
        self._places[place] = (known, self._lost[known])

    def lose(self, server: int) -> None:
        """It can't be reached, or can't serve: what it leads is asked elsewhere for a while."""
        self._lost[server] += 1
        if self._nodes.pop(server, None) is not None:
            self._asked_s[server] = asyncio.get_running_loop().time()

    async def close(self) -> None:
        """Ask nobody any more. Idempotent."""
        await self._tasks.stop()

    # -- private

    def _server_of(self, node: str) -> int | None:
        for server, known in self._nodes.items():
            if known == node:
                return server
        return None

    def _ask_who_they_are(self) -> None:
        now_s = asyncio.get_running_loop().time()
        for server in range(self._servers):
            if server not in self._nodes and now_s >= self._asked_s[server] + ASK_AGAIN_S:
                self._asked_s[server] = now_s
                self._tasks.begin(self._ask(server, self._lost[server]))

    async def _ask(self, server: int, lost: int) -> None:
        with suppress(GoQueueError):
            node = await self._identify(server)
            if node and lost == self._lost[server]:
                self._nodes[server] = node
