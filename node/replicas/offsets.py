"""Where the partitions of a topic begin and end, gathered from the nodes that know."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress

from coordinator.cluster.state import Topic
from goqueue.wire.errors import GoQueueError
from goqueue.wire.types import GroupId, NodeId
from node.peers.leaders import ask_leaders
from node.peers.link import PeerLink
from node.replicas.partition_service import PartitionService
from node.replicas.topology import Topology
from node.rpc import partitions as rpc
from raft.link import RemoteError

ASK_TIMEOUT_S = 2.0
ROUNDS = 4
"""Leaders are asked again, where they moved, this often."""
TELL_S = 1.0
"""What leaders have not told by then is told as what others know."""

Ends = dict[GroupId, rpc.PartitionEnds]


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

    async def confirmed(self, topic: Topic) -> dict[int, rpc.PartitionEnds]:
        """By partition, as of a moment after the call; partitions that can't say are missing."""
        found: Ends = {}
        await self._round(_partitions(topic), found, linear=True, rounds=ROUNDS)
        return {group.partition: ends for group, ends in sorted(found.items())}

    async def known(self, topic: Topic) -> tuple[dict[int, rpc.PartitionEnds], set[int]]:
        """By partition, and which of them are stale: their leaders did not tell within a moment,
        so that it is what others know, this node first, or nothing."""
        wanted = _partitions(topic)
        found = await self.told(wanted)
        stale = wanted - found.keys()
        for ends in await self._service.ends(sorted(stale), linear=False):
            found[GroupId.unpack(ends.group)] = ends
        if left := wanted - found.keys():
            with suppress(TimeoutError):
                async with asyncio.timeout(TELL_S):
                    await self._round(left, found, linear=False, rounds=1)
        known = {group.partition: ends for group, ends in sorted(found.items())}
        return known, {group.partition for group in stale}

    async def told(self, groups: Iterable[GroupId]) -> Ends:
        """What leaders tell within a moment, as of after the call; the others are missing."""
        found: Ends = {}
        with suppress(TimeoutError):
            async with asyncio.timeout(TELL_S):
                await self._round(groups, found, linear=True, rounds=ROUNDS)
        return dict(found)

    async def sizes(self, groups: Sequence[GroupId]) -> dict[GroupId, int]:
        """Bytes of one replica of each partition, of any topics, where its leader tells."""
        found: Ends = {}
        await self._round(groups, found, linear=False, rounds=1)
        return {group: ends.size_bytes for group, ends in found.items()}

    async def _round(
        self, groups: Iterable[GroupId], found: Ends, *, linear: bool, rounds: int
    ) -> None:
        """Adds what leaders tell; where none does, and without `linear`, what others tell."""

        async def ask(node: NodeId, asked: list[GroupId]) -> Iterable[GroupId]:
            told = {GroupId.unpack(e.group): e for e in await self._ask(node, asked, linear)}
            leads = {group for group, ends in told.items() if ends.is_leader}
            for group, ends in told.items():
                if group in leads or not (linear or group in led):
                    found[group] = ends
            led.update(leads)
            return leads

        led: set[GroupId] = set()
        await ask_leaders(self._topology, groups, ask, rounds)

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


def _partitions(topic: Topic) -> set[GroupId]:
    return {GroupId(topic.id, number) for number in range(len(topic.partitions))}
