"""Where the partitions of a topic begin and end, gathered from the nodes that know."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from coordinator.state import Topic
from goqueue.wire.errors import GoQueueError
from goqueue.wire.types import GroupId, NodeId
from node import rpc
from node.partition_service import PartitionService
from node.peer_link import PeerLink
from node.topology import Topology
from raft.link import RemoteError

ASK_TIMEOUT_S = 2.0
ROUNDS = 3
"""Leaders are asked again, where they moved, this often."""
PAUSE_S = 0.1


class EndsCollector:
    """Asks each leader once for all its partitions of a topic."""

    def __init__(
        self,
        node: NodeId,
        topology: Topology,
        service: PartitionService,
        link: PeerLink,
    ) -> None:
        self._node = node
        self._topology = topology
        self._service = service
        self._link = link

    async def collect(self, topic: Topic, *, linear: bool) -> dict[int, rpc.PartitionEnds]:
        """By partition. With `linear`, as of a moment after the call, and partitions that can't
        say are missing; else as well as is known, which may be a moment old."""
        wanted = {GroupId(topic.id, number) for number in range(len(topic.partitions))}
        found: dict[GroupId, rpc.PartitionEnds] = {}
        for attempt in range(ROUNDS if linear else 1):
            if attempt:
                await asyncio.sleep(PAUSE_S)
            for ends in await self._round(sorted(wanted - set(found)), linear=linear):
                found[GroupId.unpack(ends.group)] = ends
            if len(found) == len(wanted):
                break
        if not linear:
            for ends in await self._service.ends(sorted(wanted - set(found)), linear=False):
                found[GroupId.unpack(ends.group)] = ends
        return {group.partition: ends for group, ends in sorted(found.items())}

    async def sizes(self, groups: Sequence[GroupId]) -> dict[GroupId, int]:
        """Bytes of one replica of each partition, of any topics, where its leader tells."""
        found = await self._round(groups, linear=False)
        return {GroupId.unpack(ends.group): ends.size_bytes for ends in found}

    async def _round(self, groups: Sequence[GroupId], *, linear: bool) -> list[rpc.PartitionEnds]:
        by_leader: dict[NodeId, list[GroupId]] = {}
        for group in groups:
            leader = self._topology.leader(group)
            if leader is not None:
                by_leader.setdefault(leader, []).append(group)
        answers = await asyncio.gather(
            *(self._ask(node, asked, linear) for node, asked in by_leader.items())
        )
        return [ends for answer in answers for ends in answer if ends.is_leader or not linear]

    async def _ask(
        self, node: NodeId, groups: list[GroupId], linear: bool
    ) -> list[rpc.PartitionEnds]:
        if node == self._node:
            return await self._service.ends(groups, linear=linear)
        request = rpc.GroupsRequest([group.pack() for group in groups], linear)
        try:
            answer = await self._link.request(node, rpc.ENDS, rpc.encode(request), ASK_TIMEOUT_S)
        except (GoQueueError, RemoteError):
            return []
        return rpc.decode_ends(answer).ends
