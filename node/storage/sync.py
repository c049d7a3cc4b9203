"""`flush(topic)`: everything acked so far is synced on a majority, also for relaxed topics."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from coordinator.cluster.state import Topic
from goqueue.wire.errors import GoQueueError, NoQuorum
from goqueue.wire.types import GroupId, Index, NodeId
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
        voters: Callable[[GroupId], Sequence[NodeId]],
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
            group: frozenset(self._voters(group))
            for number in range(len(topic.partitions))
            for group in (GroupId(topic.id, number),)
        }
        nodes = sorted(frozenset[NodeId]().union(*waiting.values()))
        targets: dict[GroupId, int] = {}
        for _ in range(ROUNDS):
            answers = await self._round(nodes, sorted(waiting))
            for group, voters in list(waiting.items()):
                told = [tells[group] for node, tells in answers.items() if node in voters]
                if group not in targets:
                    targets.update((group, index) for index, leads in told if leads)
                target = targets.get(group)
                if target is None:
                    continue
                synced = sum(index >= target for index, _leads in told)
                if synced * 2 > len(voters):
                    del waiting[group]
            if not waiting:
                return
            await asyncio.sleep(PAUSE_S)
        raise NoQuorum(
            "a majority could not be synced", partitions=[group.partition for group in waiting]
        )

    async def _round(
        self, nodes: list[NodeId], groups: list[GroupId]
    ) -> dict[NodeId, dict[GroupId, _Told]]:
        answers = await asyncio.gather(*(self._ask(node, groups) for node in nodes))
        return {
            node: dict(zip(groups, told, strict=True))
            for node, told in zip(nodes, answers, strict=True)
            if told is not None
        }

    async def _ask(self, node: NodeId, groups: list[GroupId]) -> list[_Told] | None:
        if node == self._node:
            return await self._sync(groups)
        request = rpc.encode(rpc.GroupsRequest([group.pack() for group in groups]))
        try:
            answer = await self._link.request(node, rpc.SYNC, request, ASK_TIMEOUT_S)
        except (GoQueueError, RemoteError):
            return None
        found = rpc.decode_sync(answer)
        told = list(zip(found.indexes, found.leads, strict=False))
        return told if len(told) == len(groups) else None

    async def _serve(self, _peer: NodeId, payload: bytes) -> bytes:
        request = rpc.decode_request(payload, rpc.GroupsRequest)
        groups = [GroupId.unpack(group) for group in request.groups]
        told = await self._sync(groups)
        indexes, leads = [index for index, _ in told], [leads for _, leads in told]
        return rpc.encode(rpc.SyncAnswer(indexes, leads))

    async def _sync(self, groups: list[GroupId]) -> list[_Told]:
        leads = await asyncio.gather(*map(self._leads, groups))
        hosts = [self._service.replicas.find(group) for group in groups]
        committed = [
            Index(0) if host is None else Index(min(host.group.commit_index, host.log.last_index))
            for host in hosts
        ]
        await self._flusher.sync()
        return list(zip(committed, leads, strict=True))

    async def _leads(self, group: GroupId) -> bool:
        """Whether this node has led the partition after the call."""
        try:
            await self._service.confirmed(group)
        except GoQueueError:
            return False
        return True
