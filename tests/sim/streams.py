"""Streams in the simulation: nodes that serve them, and clients that break at every point.

`NodeStream`, `Runs` and `StreamWatch` are the node's own. A client lives and dies with the node
that it is connected to; else it ends in order or is lost, whatever it is doing. What its group was
given is judged in the log (`QueueLedger`), not in the history.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from itertools import count
from typing import TYPE_CHECKING, Any

from delivery.config import GroupConfig
from delivery.entries import ops
from goqueue.wire.errors import GoQueueError, NotInFlight
from goqueue.wire.types import Offset, PartitionId
from node.api.queue import QueuedMessage, Received, SettleRequest, SettleView
from node.broker.streams import NodeStream, StreamParts
from node.peers.runs import RUN, Runs
from node.queue.calls import QueueCalls
from node.queue.operations import Operations
from node.queue.poll import Poll
from node.queue.receiver import QueueReceiver
from node.queue.stream_leases import StreamLeases
from node.queue.stream_watch import StreamWatch
from node.rpc.queue import GroupRef
from tests.sim.work import GroupSpec

if TYPE_CHECKING:
    from tests.sim.process import Process
    from tests.sim.queue_work import QueueWork

PUSHED = GroupSpec(5, "pushed", GroupConfig(max_attempts=6, lane_max_wait_ms=1200, lane_share=3))
"""The group of all streams."""
SHARE = 0.3
"""Of the runs of the queue: streams cost as much as all else that is done there."""
STATUS_S = 0.4
LOOK_S, LOST_LOOKS = 0.3, 4
"""Runs are looked at more often than in earnest, and lost sooner."""
ACTIONS = {"ack": ops.ACK, "nack": ops.NACK, "extend": ops.EXTEND, "release": ops.RELEASE}
CHOICES = ("ack",) * 6 + ("nack", "extend", "release")
BYTES_MAX = 1 << 20


class StreamNode:
    """One process: its run, its client, and its watch over other runs."""

    def __init__(self, process: Process, work: QueueWork) -> None:
        self._process = process
        self._work = work
        self._rng = random.Random(f"{process.world.seed} stream {process.node} {work.runs}")
        work.runs += 1
        self.runs = Runs(work.runs, LOST_LOOKS)
        self._streams: dict[NodeStream, None] = {}

    def start(self, parts: StreamParts) -> None:
        led: Any = self._led
        watch = StreamWatch(self.runs, led)
        begin = self._process.coroutines.start
        begin(self._tell(), _over)
        begin(self._look(watch), _over)
        begin(self._serve(parts), _over)

    @property
    def is_busy(self) -> bool:
        """Whether one of its streams may have something in flight."""
        return any(leases.touched for stream in self._streams for leases in stream._all)

    # as a node watches

    def _led(self) -> list[Any]:
        replicas = self._process.replicas.values()
        return [r for r in replicas if r.queue is not None and r.queue.is_open]

    async def _look(self, watch: StreamWatch) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            await watch._look()

    async def _tell(self) -> None:
        """Its status, to whom it is connected to."""
        world, me = self._process.world, self._process.node
        while True:
            for peer in world.machines.running():
                if peer.node != me and world.net.reaches(me, peer.node) and peer.front.streams:
                    told = peer.front.streams.runs.told
                    world.loop.call_later(0.001, told, me, {RUN: self.runs.own})
            await asyncio.sleep(STATUS_S)

    # its client

    async def _serve(self, parts: StreamParts) -> None:
        member = f"s{self._process.node}"
        while True:
            stream = NodeStream(PUSHED.name, parts)
            self._streams[stream] = None
            calm = self._process.world.is_quiet
            returned = calm or self._rng.random() < 0.5
            ending = parts.tasks.begin(self._end(stream, self._rng.uniform(0.05, 1.5), returned))
            await self._consume(stream, member, ending)
            await ending
            del self._streams[stream]

    async def _end(self, stream: NodeStream, after_s: float, returned: bool) -> None:
        await asyncio.sleep(after_s)
        await stream.end(returned=returned)
        while stream._ending is not None and not stream._ending.done():
            await stream.end(returned=not returned)

    async def _consume(self, stream: NodeStream, member: str, ending: asyncio.Task[None]) -> None:
        rng = self._rng
        while not ending.done():
            try:
                found = await stream.receive(
                    (member,),
                    limit=rng.choice((1, 3, 10)),
                    bytes_max=BYTES_MAX,
                    wait_s=rng.choice((0.0, 0.5, 1.0)),
                    visibility_ms=rng.choice((None, None, 300)),
                )
                if found and (chosen := self._chosen(found)):
                    await asyncio.sleep(rng.uniform(0.0, 0.2))
                    await stream.settle(chosen)
            except GoQueueError:
                found = Received()
            if not found:
                await asyncio.sleep(0.2)

    def _chosen(self, found: Sequence[QueuedMessage]) -> list[SettleRequest]:
        """Some of it is forgotten, until the stream ends."""
        rng = self._rng
        if self._process.world.is_quiet:
            return [SettleRequest(message.receipt, "ack") for message in found]
        action = rng.choice(CHOICES)
        kept = [message for message in found if rng.random() < 0.8]
        return [
            SettleRequest(m.receipt, action, "r" if action == "nack" else "", visibility_ms=200)
            for m in kept
        ]


class StreamQueue:
    """As a stream sees `NodeQueue`: of one partition."""

    def __init__(self, work: QueueWork, receiver: QueueReceiver, refs: Any) -> None:
        self._work = work
        self._receiver = receiver
        self._refs = refs

    async def receive(
        self,
        _group: str,
        topics: Sequence[str],
        *,
        limit: int,
        wait_s: float,
        visibility_ms: int | None,
        stream: StreamLeases,
        **_named: Any,
    ) -> Received:
        ref: GroupRef = self._refs(PUSHED.id)
        work, (member,) = self._work, topics
        place = work.partition_id
        visible_ms = visibility_ms or 0
        poll = Poll(ref, [place], member, limit, visible_ms, BYTES_MAX, stream=stream)
        found = Received()
        for one in await self._receiver.receive(poll, wait_s):
            granted = ops.Granted(one.delivery, one.deadline_ms, one.grants)
            work.world.timelines.told_granted(place, ref.id, member, granted)
            for grant in one.grants:
                work.told_granted(ref.id, one.delivery, grant.offset)
                found.append(_message(place, one.delivery, grant))
        stream.receipts.update(dict.fromkeys(message.receipt for message in found))
        return found


class StreamReceipts:
    """As a stream sees `Settles`."""

    def __init__(self, work: QueueWork, operations: Operations) -> None:
        self._work = work
        self._operations = operations

    async def settle(
        self, requests: Sequence[SettleRequest], _group: str, _claim: object
    ) -> list[SettleView | GoQueueError]:
        receipts = [tuple(map(int, request.receipt.split("."))) for request in requests]
        first = requests[0]
        action = ACTIONS[first.action]
        op = ops.Settled(
            PUSHED.id,
            action,
            [(delivery, [offset]) for delivery, offset in receipts],
            first.reason,
            0 if action == ops.NACK else -1,
            visibility_ms=first.visibility_ms if action == ops.EXTEND else 0,
        )
        answer = await self._operations.put(self._work.partition_id, [op])
        (result,) = answer.results
        assert isinstance(result, ops.SettledResult)
        ends: list[SettleView | GoQueueError] = []
        for (delivery, offset), settle in zip(receipts, result.settles, strict=True):
            if settle.code == ops.OK:
                self._work.told_settled(PUSHED.id, delivery, offset, action)
                floor = Offset(result.committed_offset)
                view = SettleView("", "", 0, Offset(offset), settle.outcome, 0, 0, floor, False, 0)
                ends.append(view)
            else:
                ends.append(NotInFlight())
        return ends


def stream_parts(
    work: QueueWork, run: int, receiver: QueueReceiver, calls: QueueCalls, refs: Any
) -> StreamParts:
    """Of a node."""
    queue: Any = StreamQueue(work, receiver, refs)
    receipts: Any = StreamReceipts(work, calls.operations)
    numbers = count(1)
    return StreamParts(
        queue,
        receipts,
        calls.operations,
        receiver._background_tasks,
        receiver._topology.leader,
        lambda: ops.StreamId(run, next(numbers)),
    )


def _message(place: PartitionId, delivery: int, grant: ops.Grant) -> QueuedMessage:
    message = QueuedMessage("", place.partition, Offset(grant.offset), 0, b"", None, (), 2)
    message.receipt = f"{delivery}.{grant.offset}"
    message.attempt, message.reason = grant.attempt, grant.reason
    return message


def _over(_nothing: None) -> None:
    raise AssertionError("what a node does for streams is never over")
