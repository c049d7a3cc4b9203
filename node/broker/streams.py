"""Streams of this node's clients: a part of the broker."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from delivery.config import LANES_COUNT
from delivery.entries.ops import StreamId, StreamsEnded
from goqueue.background import TaskSet
from goqueue.signal import Signal
from goqueue.wire.errors import (
    GoQueueError,
    NotFound,
    Unavailable,
)
from goqueue.wire.types import NodeId, PartitionId
from log.levels import Feature, Levels
from node.api.claims import NOBODY, NOBODYS, Claim, Maker
from node.api.queue import Received, SettleRequest, SettleView
from node.api.streams import is_over
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


@dataclass(frozen=True, slots=True)
class StreamParts:
    """What streams stand on."""

    queue: NodeQueue
    receipts: Settles
    operations: Operations
    tasks: TaskSet
    leader: Callable[[PartitionId], NodeId | None]
    """Who leads a partition, as this node last heard."""
    new_id: Callable[[], StreamId]


class NodeStream:
    """Implements `node.api.streams.Stream`. Loop thread only."""

    def __init__(self, group: str, parts: StreamParts) -> None:
        self.id = parts.new_id()
        self._group = group
        self._parts = parts
        self._leases = StreamLeases(self.id)
        self._former: list[StreamLeases] = []
        """Under numbers that nothing is taken under any more, and that are not settled."""
        self._receives: list[asyncio.Timeout] = []
        """Under way, each within what ends it."""
        self._left = Signal()
        """One of them has left."""
        self._ending: asyncio.Task[None] | None = None

    @property
    def held(self) -> int:
        return sum(len(leases.receipts) for leases in self._all)

    @property
    def _all(self) -> list[StreamLeases]:
        return [*self._former, self._leases]

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
        if self._leases.may_have_more(self._parts.leader):
            self._former.append(self._leases)
            self._leases = StreamLeases(self._parts.new_id())
            self._end_settled()
        leases = self._leases
        try:
            async with asyncio.timeout(None) as scope:
                self._receives.append(scope)
                leases.receiving += 1
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
                        stream=leases,
                    )
                finally:
                    self._receives.remove(scope)
                    leases.receiving -= 1
                    self._left.set()
                    self._end_settled()
        except TimeoutError:  # the stream has ended
            return Received()

    async def settle(
        self, requests: Sequence[SettleRequest], claim: Claim = NOBODY
    ) -> list[SettleView | GoQueueError]:
        ends = await self._parts.receipts.settle(requests, self._group, claim)
        for request, end in zip(requests, ends, strict=True):
            if is_over(end):
                for leases in self._all:
                    leases.receipts.pop(request.receipt, None)
        self._end_settled()
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
        left, self._former = self._all, []
        await asyncio.gather(*(self._end_leases(leases, lost=lost) for leases in left))
        for leases in left:
            leases.receipts.clear()

    def _end_settled(self) -> None:
        """Whatever may be left under a former number was given to nobody."""
        for leases in [one for one in self._former if one.is_settled]:
            self._former.remove(leases)
            self._parts.tasks.begin(self._end_leases(leases, lost=False))

    async def _end_leases(self, leases: StreamLeases, *, lost: bool) -> None:
        stream = leases.stream
        ends = [
            self._end_at(
                partition,
                [StreamsEnded(group, stream.run, [stream.number], lost) for group in groups],
            )
            for partition, groups in leases.places().items()
        ]
        await asyncio.gather(*ends)

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


class NodeStreams:
    """Implements `node.api.streams.Streams`. Loop thread only."""

    def __init__(self, levels: Levels, groups: GroupsBroker, parts: StreamParts) -> None:
        self._levels = levels
        self._groups = groups
        self._parts = parts
        self._open: weakref.WeakSet[NodeStream] = weakref.WeakSet()
        self._stopped = False

    async def start(self) -> None:
        """Nothing: streams are opened by who serves them."""

    async def stop(self) -> None:
        """Messages of streams that are still open are given back. Idempotent."""
        self._stopped = True
        await asyncio.gather(*(stream.end(returned=True) for stream in list(self._open)))

    async def open(
        self,
        group: str,
        *,
        maker: Maker = NOBODYS,
        settings: Mapping[str, object] | None = None,
    ) -> NodeStream:
        self._levels.require(Feature.STREAMS)
        if self._stopped:
            raise Unavailable("this node stops: open the stream on another one", retry_after_s=1)
        known = await self._groups.ensure_group(group, settings, maker)
        stream = NodeStream(known.name, self._parts)
        self._open.add(stream)
        return stream
