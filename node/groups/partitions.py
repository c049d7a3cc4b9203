"""What coordinating a group needs of its partitions' leaders: to name owners, and to know what a
member has in flight."""

from __future__ import annotations

from coordinator.groups.coordinator import Drain, Naming
from delivery.entries.ops import Own, OwnedResult
from goqueue.wire.errors import UnknownGroup
from goqueue.wire.types import NodeId, PartitionId
from node.cluster.host import ClusterHost
from node.peers.forwarding import Forwarder
from node.peers.link import PeerLink
from node.queue.calls import QueueCalls
from node.queue.group_admin import group_ref
from node.replicas.partition_service import PartitionService
from node.rpc import groups as group_rpc
from node.rpc import partitions as rpc
from node.rpc import queue as queue_rpc
from node.rpc.groups import InFlightAnswer, InFlightRequest

DEADLINE_S = 5.0
"""After it the coordinator looks again at what is still to be done."""

Owner = tuple[str, int, int]
"""(member, generation, how many leases of others ended)."""


class GroupPartitions:
    """Any node may ask; this one answers for the partitions that it leads."""

    def __init__(
        self,
        cluster: ClusterHost,
        partitions: PartitionService,
        calls: QueueCalls,
        forwarder: Forwarder,
        link: PeerLink,
    ) -> None:
        self._cluster = cluster
        self._partitions = partitions
        self._calls = calls
        self._forwarder = forwarder
        link.handle(group_rpc.IN_FLIGHT, self._serve_in_flight)

    async def name_owner(self, naming: Naming) -> Owner:
        """Put an owner entry into the partition's log; whom the log names after it. The group is
        opened there where it isn't. Raises GoQueueError."""
        group = self._cluster.state.group_of(naming.group)
        if group is None:
            raise UnknownGroup(str(naming.group))
        own = Own(naming.group, naming.member, naming.generation, naming.fence)
        answer = await self._calls.operations.put(
            naming.partition, [own], opens=group_ref(group), deadline_s=DEADLINE_S
        )
        owned = answer.results[0]
        if not isinstance(owned, OwnedResult):
            raise UnknownGroup(group.name)  # deleted there meanwhile
        return owned.member, owned.generation, owned.ended

    async def in_flight(self, drain: Drain) -> int:
        """How many messages the member has in flight in the partition. Raises GoQueueError."""
        request = InFlightRequest(drain.partition.pack(), drain.group, drain.member)

        async def here(_left_s: float) -> int:
            return await self._count(request)

        return await self._forwarder.call(
            drain.partition,
            local=here,
            method=group_rpc.IN_FLIGHT,
            payload=lambda _left_s: rpc.encode(request),
            decode=lambda answer: queue_rpc.decode_answer(answer, InFlightAnswer).count,
            deadline_s=DEADLINE_S,
        )

    async def _count(self, request: InFlightRequest) -> int:
        host = await self._partitions.confirmed(PartitionId.unpack(request.partition))
        group = host.state.queue.groups.get(request.group)
        return 0 if group is None else group.leases.count_of(request.member)

    async def _serve_in_flight(self, _peer: NodeId, payload: bytes) -> bytes:
        request = rpc.decode_request(payload, InFlightRequest)
        return rpc.encode(InFlightAnswer(await self._count(request)))
