"""How a node waits at leaders for messages that are ready: what lines of receives are told."""

from __future__ import annotations

import asyncio
import random

from goqueue.background import TaskSet
from goqueue.wire.errors import Busy, GoQueueError
from goqueue.wire.types import NodeId, PartitionId
from node.peers.link import PeerLink
from node.queue.service import QueueService
from node.queue.waiting_lines import Told, Wanted
from node.replicas.topology import Topology
from node.rpc import partitions as rpc
from node.rpc import queue as queue_rpc
from node.rpc.queue import WaitAnswer, WaitRequest
from raft.link import RemoteError

WAIT_GRACE_S = 2.0
"""How long after its time a peer's answer to a wait is still expected."""
PAUSE_MAX_S = 0.2
"""The longest before a leader is looked for, or asked, again."""
REMOTE_WAITS_MAX = 512
"""Waits at one peer at once; beyond them receives look by themselves, from time to time."""
LOOK_S = 0.25


class LeaderWaits:
    """Waits at the leaders, this node among them. Loop thread only."""

    def __init__(
        self,
        node: NodeId,
        service: QueueService,
        topology: Topology,
        link: PeerLink,
        background_tasks: TaskSet,
        rng: random.Random,
    ) -> None:
        self._node = node
        self._service = service
        self._topology = topology
        self._link = link
        self._background_tasks = background_tasks
        self._rng = rng
        self._remote_waits: dict[NodeId, int] = {}

    async def ask(self, wanted: Wanted, wait_s: float) -> Told:
        """Partitions of one leader that are ready, or led by another one now; or it is told to look
        at them again: there the group has halted."""
        request = WaitRequest(
            wanted.group,
            [partition_id.pack() for partition_id in sorted(wanted.partitions)],
            round(wait_s * 1000),
            self._rng.getrandbits(63),
            wanted.lowest_lane,
        )
        try:
            answer = await self._ask_to_tell(wanted.node, request, wait_s)
        except (GoQueueError, RemoteError):
            await asyncio.sleep(self._rng.uniform(0, PAUSE_MAX_S))
            return Told(sorted(wanted.partitions), everyone=True)
        for packed, leader in answer.moved:
            known = None if leader is None else NodeId(leader)
            self._topology.learn(PartitionId.unpack(packed), known, wanted.node)
        elsewhere = any(leader != wanted.node for _packed, leader in answer.moved)
        if elsewhere and not answer.ready:
            await self._topology.changed(PartitionId.unpack(answer.moved[0][0]), PAUSE_MAX_S)
        told = [*answer.ready, *(packed for packed, _leader in answer.moved)]
        return Told([PartitionId.unpack(packed) for packed in told], everyone=bool(answer.moved))

    async def _ask_to_tell(self, node: NodeId, request: WaitRequest, left_s: float) -> WaitAnswer:
        if node == self._node:
            return await self._service.wait(request)
        if self._remote_waits.get(node, 0) >= REMOTE_WAITS_MAX:
            await asyncio.sleep(min(LOOK_S, left_s))
            raise Busy
        self._remote_waits[node] = self._remote_waits.get(node, 0) + 1
        try:
            payload = await self._link.request(
                node, queue_rpc.WAIT, rpc.encode(request), left_s + WAIT_GRACE_S
            )
        except asyncio.CancelledError:
            ticket = request.ticket.to_bytes(8, "little")
            self._background_tasks.send(
                self._link.request(node, queue_rpc.LEAVE, ticket, WAIT_GRACE_S)
            )
            raise
        finally:
            self._remote_waits[node] -= 1
        return queue_rpc.decode_answer(payload, WaitAnswer)
