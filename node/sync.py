"""`flush(topic)`: everything acked so far is synced on a majority, also for relaxed topics."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from coordinator.state import Topic
from goqueue.wire.errors import GoQueueError, NoQuorum
from goqueue.wire.types import GroupId, Index, NodeId
from node import rpc
from node.flusher import Flusher
from node.peer_link import PeerLink
from node.replicas import Replicas
from raft.link import RemoteError

ASK_TIMEOUT_S = 5.0
ROUNDS = 10
PAUSE_S = 0.1
"""Followers learn what is committed with the next heartbeat."""


class TopicSync:
    """Asks the replicas of relaxed partitions to sync, and counts majorities."""

    def __init__(
        self,
        node: NodeId,
        replicas: Replicas,
        flusher: Flusher,
        link: PeerLink,
        *,
        voters: Callable[[GroupId], Sequence[NodeId]],
    ) -> None:
        self._voters = voters
        self._node = node
        self._replicas = replicas
        self._flusher = flusher
        self._link = link
        link.handle(rpc.SYNC, self._serve)

    async def flush(self, topic: Topic) -> None:
        """Return once every entry committed before the call is synced on a majority of its
        replicas. Raises `NoQuorum`. A topic acked by majority fsync has nothing to wait for."""
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
                told = {n: indexes[group] for n, indexes in answers.items() if n in voters}
                target = targets.setdefault(group, max(told.values(), default=0))
                synced = sum(index >= target for index in told.values())
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
    ) -> dict[NodeId, dict[GroupId, int]]:
        answers = await asyncio.gather(*(self._ask(node, groups) for node in nodes))
        return {
            node: dict(zip(groups, indexes, strict=True))
            for node, indexes in zip(nodes, answers, strict=True)
            if indexes is not None
        }

    async def _ask(self, node: NodeId, groups: list[GroupId]) -> list[int] | None:
        if node == self._node:
            return await self._sync(groups)
        request = rpc.encode(rpc.GroupsRequest([group.pack() for group in groups]))
        try:
            answer = await self._link.request(node, rpc.SYNC, request, ASK_TIMEOUT_S)
        except (GoQueueError, RemoteError):
            return None
        indexes = rpc.decode_sync(answer).indexes
        return indexes if len(indexes) == len(groups) else None

    async def _serve(self, _peer: NodeId, payload: bytes) -> bytes:
        request = rpc.decode_request(payload, rpc.GroupsRequest)
        groups = [GroupId.unpack(group) for group in request.groups]
        return rpc.encode(rpc.SyncAnswer(await self._sync(groups)))

    async def _sync(self, groups: list[GroupId]) -> list[int]:
        """Of each group, the committed entry through which it is synced here; 0 for none."""
        hosts = [self._replicas.find(group) for group in groups]
        committed = [
            Index(0) if host is None else Index(min(host.group.commit_index, host.log.last_index))
            for host in hosts
        ]
        await self._flusher.sync()
        return list(committed)
