"""Why a message is not delivered or settled, asked of its partition's leader: a part of the
broker."""

from __future__ import annotations

from dataclasses import dataclass

from delivery.lookup.verdict import Fact, Reason, Verdict
from goqueue.wire.errors import NoQuorum, Timeout, UnknownPartition
from goqueue.wire.types import GroupId, NodeId, Offset
from node.api.traces import WhyView
from node.cluster.host import ClusterHost
from node.cluster.topic_finder import TopicFinder
from node.lookup.why import WHY, WhyRequest, explain
from node.partition.host import PartitionHost
from node.peers.forwarding import Forwarder
from node.peers.link import PeerLink
from node.queue.group_admin import GroupsBroker, group_ref
from node.queue.lag import TakingPart
from node.replicas.local import Replicas
from node.replicas.partition_service import PartitionService
from node.replicas.topology import Topology
from node.rpc import partitions as rpc
from node.rpc import queue as queue_rpc

DEADLINE_S = 5.0
PATIENCE_S = 0.3
"""How long a majority may be out of reach before that is the answer."""


@dataclass(frozen=True, slots=True)
class WhyParts:
    """What questions about one message stand on."""

    node: NodeId
    cluster: ClusterHost
    replicas: Replicas
    service: PartitionService
    groups: GroupsBroker
    finder: TopicFinder
    forwarder: Forwarder
    topology: Topology
    link: PeerLink
    taking_part: TakingPart


class Whys:
    """Tells why, as `node.api.traces` asks, and serves peers as leader. Loop thread only."""

    def __init__(self, parts: WhyParts) -> None:
        self._parts = parts
        parts.link.handle(WHY, self._serve)

    async def message_why(
        self, topic: str, partition: int, offset: Offset, group: str | None
    ) -> WhyView:
        parts = self._parts
        found = await parts.finder.find(topic, partition + 1)
        if not 0 <= partition < len(found.partitions):
            raise UnknownPartition(topic, partition)
        id = GroupId(found.id, partition)
        ref = None if group is None else group_ref(await parts.groups.find(group))
        request = WhyRequest(id.pack(), offset, ref)

        async def here(_left_s: float) -> WhyView:
            return await self.explain(request)

        try:
            return await parts.forwarder.call(
                id,
                local=here,
                method=WHY,
                payload=lambda _left_s: rpc.encode(request),
                decode=lambda answer: queue_rpc.decode_answer(answer, WhyView),
                deadline_s=DEADLINE_S,
                patience_s=PATIENCE_S,
            )
        except (NoQuorum, Timeout):
            return await self._without_leader(id, request)

    async def explain(self, request: WhyRequest) -> WhyView:
        """As leader: no older than the question, the groups and their members included. Raises
        `NotLeader`."""
        await self._parts.cluster.refresh()
        host = await self._parts.service.confirmed(GroupId.unpack(request.partition))
        view = await self._explain(host, request)
        view.leader = self._parts.node
        return view

    async def _explain(self, host: PartitionHost, request: WhyRequest) -> WhyView:
        taking_part = self._parts.taking_part.ids_in(host.id.topic)
        return await explain(host, self._parts.cluster.state, request, taking_part)

    async def _without_leader(self, id: GroupId, request: WhyRequest) -> WhyView:
        """As much as this node's replica has applied, where it has one."""
        topology, host = self._parts.topology, self._parts.replicas.find(id)
        if host is None:
            view = WhyView(0, None, Verdict("unknown", []), [])
        else:
            view = await self._explain(host, request)
        reachable, replicas = topology.reachable(id), len(topology.replicas(id))
        facts: dict[str, Fact] = {"reachable": reachable, "replicas": replicas}
        if host is None:
            facts["elsewhere"] = True
        reason = Reason("no_leader", 0, facts)
        for verdict in (view.message, *(one.verdict for one in view.groups)):
            verdict.reasons.insert(0, reason)
            verdict.deliverable, verdict.eta_ms, verdict.eta_by = False, 0, ""
        return view

    async def _serve(self, _peer: NodeId, payload: bytes) -> bytes:
        return rpc.encode(await self.explain(rpc.decode_request(payload, WhyRequest)))


class WhyBrokerNode:
    """The part of the broker that answers why."""

    def __init__(self, whys: Whys) -> None:
        self._whys = whys

    async def message_why(
        self, topic: str, partition: int, offset: Offset, group: str | None
    ) -> WhyView:
        return await self._whys.message_why(topic, partition, offset, group)
