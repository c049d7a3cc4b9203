"""Where the partitions of a topic begin and end, gathered from the nodes that know."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress

from coordinator.cluster.state import Topic
from goqueue.wire.errors import GoQueueError
from goqueue.wire.types import NodeId, PartitionId
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

Offsets = dict[PartitionId, rpc.PartitionOffsets]


class OffsetsCollector:
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

    async def confirmed(self, topic: Topic) -> dict[int, rpc.PartitionOffsets]:
        """By partition, as of a moment after the call; partitions that can't say are missing."""
        found: Offsets = {}
        await self._round(_partitions(topic), found, linear=True, rounds=ROUNDS)
        return {partition_id.partition: offsets for partition_id, offsets in sorted(found.items())}

    async def known(self, topic: Topic) -> tuple[dict[int, rpc.PartitionOffsets], set[int]]:
        """By partition, and which of them are stale: their leaders did not tell within a moment,
        so that it is what others know, this node first, or nothing."""
        wanted = _partitions(topic)
        found = await self.told(wanted)
        stale = wanted - found.keys()
        for offsets in await self._service.offsets(sorted(stale), linear=False):
            found[PartitionId.unpack(offsets.partition)] = offsets
        if left := wanted - found.keys():
            with suppress(TimeoutError):
                async with asyncio.timeout(TELL_S):
                    await self._round(left, found, linear=False, rounds=1)
        known = {partition_id.partition: offsets for partition_id, offsets in sorted(found.items())}
        return known, {partition_id.partition for partition_id in stale}

    async def told(self, partition_ids: Iterable[PartitionId]) -> Offsets:
        """What leaders tell within a moment, as of after the call; the others are missing."""
        found: Offsets = {}
        with suppress(TimeoutError):
            async with asyncio.timeout(TELL_S):
                await self._round(partition_ids, found, linear=True, rounds=ROUNDS)
        return dict(found)

    async def sizes(self, partition_ids: Sequence[PartitionId]) -> dict[PartitionId, int]:
        """Bytes of one replica of each partition, of any topics, where its leader tells."""
        found: Offsets = {}
        await self._round(partition_ids, found, linear=False, rounds=1)
        return {partition_id: offsets.size_bytes for partition_id, offsets in found.items()}

    async def _round(
        self, partition_ids: Iterable[PartitionId], found: Offsets, *, linear: bool, rounds: int
    ) -> None:
        """Adds what leaders tell; where none does, and without `linear`, what others tell."""

        async def ask(node: NodeId, asked: list[PartitionId]) -> Iterable[PartitionId]:
            told = {
                PartitionId.unpack(e.partition): e for e in await self._ask(node, asked, linear)
            }
            leads = {partition_id for partition_id, offsets in told.items() if offsets.is_leader}
            for partition_id, offsets in told.items():
                if partition_id in leads or not (linear or partition_id in led):
                    found[partition_id] = offsets
            led.update(leads)
            return leads

        led: set[PartitionId] = set()
        await ask_leaders(self._topology, partition_ids, ask, rounds)

    async def _ask(
        self, node: NodeId, partition_ids: list[PartitionId], linear: bool
    ) -> list[rpc.PartitionOffsets]:
        if node == self._node:
            return await self._service.offsets(partition_ids, linear=linear)
        request = rpc.PartitionsRequest(
            [partition_id.pack() for partition_id in partition_ids], linear
        )
        try:
            answer = await self._link.request(node, rpc.ENDS, rpc.encode(request), ASK_TIMEOUT_S)
        except (GoQueueError, RemoteError):
            return []
        return rpc.decode_offsets(answer).offsets


def _partitions(topic: Topic) -> set[PartitionId]:
    return {PartitionId(topic.id, number) for number in range(len(topic.partitions))}
