"""Partitions by topic and number, and the way to whoever leads them."""

from __future__ import annotations

from dataclasses import dataclass

from goqueue.wire.errors import UnknownPartition
from goqueue.wire.types import PartitionId
from node.cluster.topic_finder import TopicFinder
from node.peers.forwarding import Forwarder
from node.peers.link import PeerLink
from node.replicas.partition_service import PartitionService


@dataclass(frozen=True, slots=True)
class Partitions:
    """What parts of the broker stand on that ask a partition's leader: `service` answers where that
    is this node, and `forwarder` asks another one over the `link`."""

    finder: TopicFinder
    service: PartitionService
    forwarder: Forwarder
    link: PeerLink

    async def named(self, topic: str, partition: int) -> PartitionId:
        """Raises `UnknownTopic`, `UnknownPartition`."""
        found = await self.finder.find(topic, partition + 1)
        if not 0 <= partition < len(found.partitions):
            raise UnknownPartition(topic, partition)
        return PartitionId(found.id, partition)
