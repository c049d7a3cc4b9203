"""Streams of this node's clients: a part of the broker."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from delivery.config import LANES_COUNT
from delivery.entries.ops import StreamId, StreamsEnded
from goqueue.background import TaskSet
from goqueue.wire.errors import (
    GoQueueError,
    NotFound,
    ReceiptExpired,
    StaleGeneration,
)
from goqueue.wire.types import PartitionId
from log.levels import Feature, Levels
from node.api.claims import NOBODY, NOBODYS, Claim, Maker
from node.api.queue import Received, SettleRequest, SettleView
from node.broker.queue import NodeQueue
from node.queue.group_admin import GroupsBroker
from node.queue.operations import Operations
from node.queue.settle import Settles
from node.queue.stream_leases import StreamLeases
from node.runtime.logger import get_logger

END_S = 5.0
"""How long an end waits for leaders; what is left of it goes on."""

END_PAUSE_S, END_PAUSE_S_MAX = 0.1, 5.0
"""Between two attempts at a leader that did not end a stream."""

_log = get_logger("streams")

_GONE = (NotFound, ReceiptExpired, StaleGeneration)
"""Why a settle is refused of what is the stream's no more."""


@dataclass(frozen=True, slots=True)
class StreamParts:
    """What streams stand on."""

    queue: NodeQueue
    receipts: Settles
    operations: Operations
    tasks: TaskSet


class NodeStream:
    """Implements `node.api.streams.Stream`. Loop thread only."""

    def __init__(self, id: StreamId, group: str, parts: StreamParts) -> None:
        self.id = id
        self._group = group
        self._parts = parts
        self._leases = StreamLeases(id)
        self._receives: list[asyncio.Timeout] = []
        """Under way, each within what ends it."""
        self._left = asyncio.Event()
        """One of them has left."""
        self._ending: asyncio.Task[None] | None = None

    @property
    def held(self) -> int:
        return len(self._leases.receipts)

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
                    return await self._parts.queue.receive(
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
                        stream=self._leases,
                    )
                finally:
                    self._receives.remove(scope)
                    self._left.set()
        except TimeoutError:  # the stream has ended
            return Received()

    async def settle(
        self, requests: Sequence[SettleRequest], claim: Claim = NOBODY
    ) -> list[SettleView | GoQueueError]:
        ends = await self._parts.receipts.settle(requests, self._group, claim)
        for request, end in zip(requests, ends, strict=True):
            over = end.outcome != "extended" if isinstance(end, SettleView) else _is_gone(end)
            if over:
                self._leases.receipts.pop(request.receipt, None)
        return ends

    async def end(self, *, returned: bool) -> None:
        if self._ending is None:
            self._ending = self._parts.tasks.begin(self._end(lost=not returned))
        await asyncio.wait([self._ending], timeout=END_S)

    async def _end(self, *, lost: bool) -> None:
        for scope in self._receives:
            scope.reschedule(asyncio.get_running_loop().time())
        while self._receives:
            self._left.clear()
            await self._left.wait()
        ends = [
            self._end_at(partition, [self._ended(group, lost=lost) for group in groups])
            for partition, groups in self._leases.places().items()
        ]
        await asyncio.gather(*ends)
        self._leases.receipts.clear()

    def _ended(self, group: int, *, lost: bool) -> StreamsEnded:
        return StreamsEnded(group, self.id.run, [self.id.number], lost)

    async def _end_at(self, partition: PartitionId, ops: Sequence[StreamsEnded]) -> None:
        """Until it is done: nobody else ends these leases while this node's run goes on."""
        pause_s = END_PAUSE_S
        while True:
            try:
                await self._parts.operations.put(partition, ops)
                return
            except NotFound:  # the topic is gone, and all leases with it
                return
            except GoQueueError as error:
                _log.info("stream_end_delayed", partition=str(partition), problem=error.message)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, END_PAUSE_S_MAX)


def _is_gone(error: GoQueueError) -> bool:
    return isinstance(error, _GONE)


class NodeStreams:
    """Implements `node.api.streams.Streams`. Loop thread only."""

    def __init__(self, run: int, levels: Levels, groups: GroupsBroker, parts: StreamParts) -> None:
        self._run = run
        self._levels = levels
        self._groups = groups
        self._parts = parts
        self._opened = 0

    async def open(self, group: str, *, maker: Maker = NOBODYS) -> NodeStream:
        self._levels.require(Feature.STREAMS)
        known = await self._groups.ensure_group(group, maker=maker)
        self._opened += 1
        return NodeStream(StreamId(self._run, self._opened), known.name, self._parts)
