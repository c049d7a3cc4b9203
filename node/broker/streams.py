"""Streams of this node's clients: a part of the broker."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from delivery.config import LANES_COUNT
from delivery.entries.ops import StreamId
from delivery.group.rules import FENCED
from goqueue.background import TaskSet
from goqueue.wire.errors import (
    BadReceipt,
    GoQueueError,
    NotFound,
    ReceiptExpired,
    StaleGeneration,
)
from log.levels import Feature, Levels
from node.api.claims import NOBODY, NOBODYS, Claim, Maker
from node.api.queue import Received, SettleRequest, SettleView
from node.broker.queue import NodeQueue
from node.queue.group_admin import GroupsBroker
from node.queue.settle import Settles

END_S = 5.0
"""How long an end waits for leaders; what is left of it goes on."""

_GONE = (NotFound, ReceiptExpired, StaleGeneration)
"""Why a settle is refused of what is the stream's no more."""


class NodeStream:
    """Implements `node.api.streams.Stream`. Loop thread only."""

    def __init__(
        self, id: StreamId, group: str, queue: NodeQueue, receipts: Settles, tasks: TaskSet
    ) -> None:
        self.id = id
        self._group = group
        self._queue = queue
        self._receipts = receipts
        self._held: dict[str, None] = {}
        """Receipts that were given to it, and not settled."""
        self._tasks = tasks
        self._receives: list[asyncio.Timeout] = []
        """Under way, each within what ends it."""
        self._left = asyncio.Event()
        """One of them has left."""
        self._ending: asyncio.Task[None] | None = None

    @property
    def held(self) -> int:
        return len(self._held)

    async def receive(
        self,
        topics: Sequence[str],
        *,
        claim: Claim = NOBODY,
        limit: int,
        bytes_max: int,
        wait_s: float,
        visibility_ms: int | None,
        partitions: Sequence[int] | None = None,
        places: Sequence[tuple[str, int]] | None = None,
        lowest_lane: int = LANES_COUNT - 1,
    ) -> Received:
        if self._ending is not None:
            return Received()
        try:
            async with asyncio.timeout(None) as scope:
                self._receives.append(scope)
                try:
                    found = await self._queue.receive(
                        self._group,
                        topics,
                        claim=claim,
                        limit=limit,
                        wait_s=wait_s,
                        visibility_ms=visibility_ms,
                        partitions=partitions,
                        places=places,
                        lowest_lane=lowest_lane,
                        bytes_max=bytes_max,
                    )
                    self._held.update(dict.fromkeys(message.receipt for message in found))
                    return found
                finally:
                    self._receives.remove(scope)
                    self._left.set()
        except TimeoutError:  # the stream has ended
            return Received()

    async def settle(
        self, requests: Sequence[SettleRequest], claim: Claim = NOBODY
    ) -> list[SettleView | GoQueueError]:
        ends = await self._receipts.settle(requests, self._group, claim)
        for request, end in zip(requests, ends, strict=True):
            over = end.outcome != "extended" if isinstance(end, SettleView) else _is_gone(end)
            if over:
                self._held.pop(request.receipt, None)
        return ends

    async def end(self, *, returned: bool) -> None:
        if self._ending is None:
            self._ending = self._tasks.begin(self._end(returned=returned))
        await asyncio.wait([self._ending], timeout=END_S)

    async def _end(self, *, returned: bool) -> None:
        for scope in self._receives:
            scope.reschedule(asyncio.get_running_loop().time())
        while self._receives:
            self._left.clear()
            await self._left.wait()
        action, reason = ("release", "") if returned else ("nack", FENCED)
        requests = [
            SettleRequest(receipt, action, reason, delay_ms=0) for receipt in reversed(self._held)
        ]
        if requests:
            await self._receipts.settle(requests, self._group)
        self._held.clear()


def _is_gone(error: GoQueueError) -> bool:
    return isinstance(error, _GONE) and not isinstance(error, BadReceipt)


class NodeStreams:
    """Implements `node.api.streams.Streams`. Loop thread only."""

    def __init__(
        self,
        run: int,
        levels: Levels,
        groups: GroupsBroker,
        queue: NodeQueue,
        receipts: Settles,
        tasks: TaskSet,
    ) -> None:
        self._run = run
        self._levels = levels
        self._groups = groups
        self._queue = queue
        self._receipts = receipts
        self._tasks = tasks
        self._opened = 0

    async def open(self, group: str, *, maker: Maker = NOBODYS) -> NodeStream:
        self._levels.require(Feature.STREAMS)
        known = await self._groups.ensure_group(group, maker=maker)
        self._opened += 1
        id = StreamId(self._run, self._opened)
        return NodeStream(id, known.name, self._queue, self._receipts, self._tasks)
