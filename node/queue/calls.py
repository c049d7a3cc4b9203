"""Questions for the leader of one partition's queue, wherever it is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import TypeVar

from coordinator.cluster.state import Topic
from goqueue.wire.errors import GoQueueError
from goqueue.wire.types import NodeId, PartitionId
from node.api.figures import PartitionQueueStats
from node.peers.forwarding import Forwarder
from node.peers.leaders import Ask, ask_leaders
from node.peers.link import PeerLink
from node.queue.operations import Operations, within
from node.queue.views import QueueViews
from node.replicas.topology import Topology
from node.rpc import partitions as rpc
from node.rpc import queue as queue_rpc
from node.rpc.queue import (
    DeadAnswer,
    DeadRequest,
    DelayedAnswer,
    DelayedRequest,
    FiguresAnswer,
    PeekAnswer,
    PeekRequest,
    PendingAnswer,
    PendingRequest,
)
from raft.link import RemoteError

DEADLINE_S = 15.0
ASK_TIMEOUT_S = 2.0
FIGURES_ROUNDS = 2

R = TypeVar("R")
A = TypeVar("A")


class QueueCalls:
    """Any node may ask; each call finds the leader, and asks again where that is safe."""

    def __init__(
        self,
        node: NodeId,
        views: QueueViews,
        operations: Operations,
        forwarder: Forwarder,
        topology: Topology,
        link: PeerLink,
    ) -> None:
        self._node = node
        self._views = views
        self.operations = operations
        self._forwarder = forwarder
        self._topology = topology
        self._link = link

    async def peek(self, request: PeekRequest) -> PeekAnswer:
        return await self.ask(
            request, request.partition, self._views.peek, queue_rpc.PEEK, PeekAnswer
        )

    async def dead(self, request: DeadRequest) -> DeadAnswer:
        """Dead letters of one group in one partition."""
        return await self.ask(
            request, request.partition, self._views.dead, queue_rpc.DEAD, DeadAnswer
        )

    async def pending(self, request: PendingRequest) -> PendingAnswer:
        """What of one group is in flight in one partition."""
        return await self.ask(
            request, request.partition, self._views.pending, queue_rpc.PENDING, PendingAnswer
        )

    async def delayed(self, request: DelayedRequest) -> DelayedAnswer:
        return await self.ask(
            request, request.partition, self._views.delayed, queue_rpc.DELAYED, DelayedAnswer
        )

    async def figures(self, topics: Iterable[Topic]) -> FiguresAnswer:
        """Of every partition whose leader answers; each leader is asked once for all of them."""
        wanted = {
            PartitionId(topic.id, number)
            for topic in topics
            for number in range(len(topic.partitions))
        }
        found = FiguresAnswer([], [])

        async def ask(node: NodeId, partition_ids: list[PartitionId]) -> Iterable[PartitionId]:
            request = rpc.PartitionsRequest([partition_id.pack() for partition_id in partition_ids])
            answer = await self.ask_node(
                node,
                request,
                lambda _: self._views.figures(partition_ids),
                queue_rpc.FIGURES,
                FiguresAnswer,
            )
            if answer is None:
                return []
            found.partitions.extend(answer.partitions)
            found.dead.extend(answer.dead)
            return [PartitionId.unpack(packed) for packed, _dead in answer.dead]

        await self.each_leader(wanted, ask, FIGURES_ROUNDS)
        return found

    def unconfirmed(self, topic: str, partition: PartitionId) -> PartitionQueueStats:
        """See `QueueViews.unconfirmed`."""
        return self._views.unconfirmed(topic, partition)

    async def each_leader(
        self,
        partitions: Iterable[PartitionId],
        ask: Ask,
        rounds: int,
    ) -> set[PartitionId]:
        """Ask each leader once for all its partitions, and again for those that are not answered;
        what is left of them. `ask` returns those that were."""
        return await ask_leaders(self._topology, partitions, ask, rounds)

    async def ask_node(
        self,
        node: NodeId,
        request: R,
        look: Callable[[R], Awaitable[A]],
        method: str,
        answer: type[A],
        timeout_s: float = ASK_TIMEOUT_S,
    ) -> A | None:
        """What one node says; None where it does not answer."""
        if node == self._node:
            return await look(request)
        try:
            told = await self._link.request(node, method, rpc.encode(request), timeout_s)
        except (GoQueueError, RemoteError):
            return None
        return queue_rpc.decode_answer(told, answer)

    async def ask(
        self,
        request: R,
        packed: bytes,
        look: Callable[[R], Awaitable[A]],
        method: str,
        answer: type[A],
    ) -> A:
        """A partition's leader a question that changes nothing."""

        async def here(left_s: float) -> A:
            return await within(left_s, look(request))

        return await self._forwarder.call(
            PartitionId.unpack(packed),
            local=here,
            method=method,
            payload=lambda _left_s: rpc.encode(request),
            decode=partial(queue_rpc.decode_answer, type_=answer),
            deadline_s=DEADLINE_S,
        )
