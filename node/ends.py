"""Where the partitions of a topic begin and end, gathered from the nodes that know."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from coordinator.state import Topic
from goqueue.wire.errors import GoQueueError
from goqueue.wire.types import GroupId, NodeId
from node import rpc
from node.leaders import ask_leaders
from node.partition_service import PartitionService
from node.peer_link import PeerLink
from node.topology import Topology
from raft.link import RemoteError

ASK_TIMEOUT_S = 2.0
ROUNDS = 3
"""Leaders are asked again, where they moved, this often."""


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
        found = await self._round(wanted, linear=linear, rounds=ROUNDS if linear else 1)
        if not linear:
            for ends in await self._service.ends(sorted(wanted - set(found)), linear=False):
                found[GroupId.unpack(ends.group)] = ends
        return {group.partition: ends for group, ends in sorted(found.items())}

    async def sizes(self, groups: Sequence[GroupId]) -> dict[GroupId, int]:
        """Bytes of one replica of each partition, of any topics, where its leader tells."""
        found = await self._round(groups, linear=False, rounds=1)
        return {group: ends.size_bytes for group, ends in found.items()}

    async def _round(
        self, groups: Iterable[GroupId], *, linear: bool, rounds: int
    ) -> dict[GroupId, rpc.PartitionEnds]:
        """What leaders tell; where none does, and without `linear`, what others tell."""
        led: dict[GroupId, rpc.PartitionEnds] = {}
        others: dict[GroupId, rpc.PartitionEnds] = {}

        async def ask(node: NodeId, asked: list[GroupId]) -> Iterable[GroupId]:
            told = {GroupId.unpack(e.group): e for e in await self._ask(node, asked, linear)}
            leads = {group: ends for group, ends in told.items() if ends.is_leader}
            led.update(leads)
            others.update(told)
            return leads

        await ask_leaders(self._topology, groups, ask, rounds)
        return led if linear else {**others, **led}

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
