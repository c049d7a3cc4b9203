"""`flush(topic)`: everything acked so far is synced on a majority, also for relaxed topics."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from coordinator.cluster.state import Topic
from goqueue.wire.errors import GoQueueError, NoQuorum
from goqueue.wire.types import Index, NodeId, PartitionId
from node.peers.link import PeerLink
from node.replicas.partition_service import PartitionService
from node.rpc import partitions as rpc
from node.storage.flusher import Flusher
from raft.link import RemoteError

ASK_TIMEOUT_S = 5.0
ROUNDS = 10
PAUSE_S = 0.1
"""Followers learn what is committed with the next heartbeat."""

_Told = tuple[int, bool]
"""The committed entry through which a group is synced at a node, 0 for none; whether that leads."""


class TopicSync:
    """Asks the replicas of relaxed partitions to sync, and counts majorities."""

    def __init__(
        self,
        node: NodeId,
        service: PartitionService,
        flusher: Flusher,
        link: PeerLink,
        *,
        voters: Callable[[PartitionId], Sequence[NodeId]],
    ) -> None:
        self._voters = voters
        self._node = node
        self._service = service
        self._flusher = flusher
        self._link = link
        link.handle(rpc.SYNC, self._serve)

    async def flush(self, topic: Topic) -> None:
        """Return once every entry committed before the call is synced on a majority of its
        replicas. Raises `NoQuorum`. A topic acked by majority fsync has nothing to wait for.

        Only a partition's leader knows all that was committed before: followers learn it later.
        """
        if topic.config.durability != "relaxed":
            return
        waiting = {
            partition_id: frozenset(self._voters(partition_id))
            for number in range(len(topic.partitions))
            for partition_id in (PartitionId(topic.id, number),)
        }
        nodes = sorted(frozenset[NodeId]().union(*waiting.values()))
        targets: dict[PartitionId, int] = {}
        for _ in range(ROUNDS):
            answers = await self._round(nodes, sorted(waiting))
            for partition_id, voters in list(waiting.items()):
                told = [tells[partition_id] for node, tells in answers.items() if node in voters]
                if partition_id not in targets:
                    targets.update((partition_id, index) for index, leads in told if leads)
                target = targets.get(partition_id)
                if target is None:
                    continue
                synced = sum(index >= target for index, _leads in told)
                if synced * 2 > len(voters):
                    del waiting[partition_id]
            if not waiting:
                return
            await asyncio.sleep(PAUSE_S)
        raise NoQuorum(
            "a majority could not be synced",
            partitions=[partition_id.partition for partition_id in waiting],
        )

    async def _round(
        self, nodes: list[NodeId], partition_ids: list[PartitionId]
    ) -> dict[NodeId, dict[PartitionId, _Told]]:
        answers = await asyncio.gather(*(self._ask(node, partition_ids) for node in nodes))
        return {
            node: dict(zip(partition_ids, told, strict=True))
            for node, told in zip(nodes, answers, strict=True)
            if told is not None
        }

    async def _ask(self, node: NodeId, partition_ids: list[PartitionId]) -> list[_Told] | None:
        if node == self._node:
            return await self._sync(partition_ids)
        request = rpc.encode(
            rpc.PartitionsRequest([partition_id.pack() for partition_id in partition_ids])
        )
        try:
            answer = await self._link.request(node, rpc.SYNC, request, ASK_TIMEOUT_S)
        except (GoQueueError, RemoteError):
            return None
        found = rpc.decode_sync(answer)
        told = list(zip(found.indexes, found.leads, strict=False))
        return told if len(told) == len(partition_ids) else None

    async def _serve(self, _peer: NodeId, payload: bytes) -> bytes:
        request = rpc.decode_request(payload, rpc.PartitionsRequest)
        partition_ids = [PartitionId.unpack(partition) for partition in request.partitions]
        told = await self._sync(partition_ids)
        indexes, leads = [index for index, _ in told], [leads for _, leads in told]
        return rpc.encode(rpc.SyncAnswer(indexes, leads))

    async def _sync(self, partition_ids: list[PartitionId]) -> list[_Told]:
        leads = await asyncio.gather(*map(self._leads, partition_ids))
        hosts = [self._service.replicas.find(partition_id) for partition_id in partition_ids]
        committed = [
            Index(0)
            if host is None
            else Index(min(host.raft_group.commit_index, host.log.last_index))
            for host in hosts
        ]
        await self._flusher.sync()
        return list(zip(committed, leads, strict=True))

    async def _leads(self, partition_id: PartitionId) -> bool:
        """Whether this node has led the partition after the call."""
        try:
            await self._service.confirmed(partition_id)
        except GoQueueError:
            return False
        return True
