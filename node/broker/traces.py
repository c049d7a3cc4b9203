"""What happened to messages, and why not more, asked of their partition's leader: a part of the
broker."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from msgspec import structs

from delivery.lookup.verdict import Fact, Reason, Verdict
from goqueue.wire.errors import NoQuorum, Timeout
from goqueue.wire.types import NodeId, Offset, PartitionId
from node.api.traces import EventsView, EventsWanted, MessageTrace, WhyView
from node.broker.partitions import Partitions
from node.broker.reads import READ_DEADLINE_S, READ_PATIENCE_S
from node.cluster.host import ClusterHost
from node.lookup.event_reader import EventReader
from node.lookup.why import WHY, WhyRequest, explain
from node.partition.host import PartitionHost
from node.partition.trace import trace_from_answer, trace_message
from node.queue.group_admin import GroupsBroker, group_ref
from node.queue.lag import TakingPart
from node.replicas.local import Replicas
from node.replicas.topology import Topology
from node.rpc import partitions as rpc
from node.rpc import queue as queue_rpc

WHY_DEADLINE_S = 5.0
WHY_PATIENCE_S = 0.3
"""How long a majority may be out of reach before that is the answer."""
EVENTS = "events"
EVENTS_DEADLINE_S = 10.0
"""Beside what is waited for events that are to come."""


class EventsRequest(rpc.PartitionRequest, array_like=True, frozen=True):
    """Of a partition's leader."""

    partition: bytes
    wanted: EventsWanted

    def packed_partitions(self) -> tuple[bytes, ...]:
        return (self.partition,)


@dataclass(frozen=True, slots=True)
class TraceParts:
    """What questions about messages stand on."""

    node: NodeId
    partitions: Partitions
    cluster: ClusterHost
    replicas: Replicas
    topology: Topology
    groups: GroupsBroker
    taking_part: TakingPart


class NodeTraces:
    """Implements `node.api.traces.Traces`, and serves peers as leader. Loop thread only."""

    def __init__(self, parts: TraceParts) -> None:
        self._parts = parts
        self._event_reader = EventReader()
        parts.partitions.link.handle(WHY, self._serve_why)
        parts.partitions.link.handle(EVENTS, self._serve_events)

    async def message_trace(self, topic: str, partition: int, offset: Offset) -> MessageTrace:
        parts = self._parts
        partition_id = await parts.partitions.named(topic, partition)

        async def here(_left_s: float) -> rpc.TraceAnswer:
            return await parts.partitions.service.trace(partition_id, offset)

        stale = False
        try:
            answer = await parts.partitions.forwarder.call(
                partition_id,
                local=here,
                method=rpc.TRACE,
                payload=lambda _left_s: rpc.encode(rpc.OffsetRequest(partition_id.pack(), offset)),
                decode=rpc.decode_trace,
                deadline_s=READ_DEADLINE_S,
                patience_s=READ_PATIENCE_S,
            )
        except (NoQuorum, Timeout):
            host = parts.replicas.find(partition_id)
            if host is None or offset >= host.end_offset:  # it may be there all the same
                raise
            answer = await trace_message(host, offset)  # as much as this replica has applied
            stale = True
        found = trace_from_answer(topic, partition, offset, answer)
        return dataclasses.replace(found, stale=stale)

    # why

    async def message_why(
        self, topic: str, partition: int, offset: Offset, group: str | None
    ) -> WhyView:
        parts = self._parts
        id = await parts.partitions.named(topic, partition)
        ref = None if group is None else group_ref(await parts.groups.find(group))
        request = WhyRequest(id.pack(), offset, ref)

        async def here(_left_s: float) -> WhyView:
            return await self.explain(request)

        try:
            return await parts.partitions.forwarder.call(
                id,
                local=here,
                method=WHY,
                payload=lambda _left_s: rpc.encode(request),
                decode=lambda answer: queue_rpc.decode_answer(answer, WhyView),
                deadline_s=WHY_DEADLINE_S,
                patience_s=WHY_PATIENCE_S,
            )
        except (NoQuorum, Timeout):
            return await self._without_leader(id, request)

    async def explain(self, request: WhyRequest) -> WhyView:
        """As leader: no older than the question, the groups and their members included. Raises
        `NotLeader`."""
        await self._parts.cluster.refresh()
        host = await self._parts.partitions.service.confirmed(PartitionId.unpack(request.partition))
        view = await self._explain(host, request)
        view.leader = self._parts.node
        return view

    async def _explain(self, host: PartitionHost, request: WhyRequest) -> WhyView:
        taking_part = self._parts.taking_part.ids_in(host.id.topic)
        return await explain(host, self._parts.cluster.state, request, taking_part)

    async def _without_leader(self, id: PartitionId, request: WhyRequest) -> WhyView:
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

    async def _serve_why(self, _peer: NodeId, payload: bytes) -> bytes:
        return rpc.encode(await self.explain(rpc.decode_request(payload, WhyRequest)))

    # events

    async def events(
        self, topic: str, partition: int, wanted: EventsWanted
    ) -> tuple[str, EventsView]:
        partition_id = await self._parts.partitions.named(topic, partition)
        request = EventsRequest(partition_id.pack(), wanted)

        def with_wait(left_s: float) -> EventsRequest:
            wait_s = min(wanted.wait_s, max(0.0, left_s - EVENTS_DEADLINE_S))
            return EventsRequest(request.partition, structs.replace(wanted, wait_s=wait_s))

        view = await self._parts.partitions.forwarder.call(
            partition_id,
            local=lambda left_s: self._events_here(with_wait(left_s)),
            method=EVENTS,
            payload=lambda left_s: rpc.encode(with_wait(left_s)),
            decode=lambda answer: queue_rpc.decode_answer(answer, EventsView),
            deadline_s=EVENTS_DEADLINE_S + wanted.wait_s,
        )
        return str(partition_id.topic), view

    async def _serve_events(self, _peer: NodeId, payload: bytes) -> bytes:
        return rpc.encode(await self._events_here(rpc.decode_request(payload, EventsRequest)))

    async def _events_here(self, request: EventsRequest) -> EventsView:
        host = await self._parts.partitions.service.confirmed(PartitionId.unpack(request.partition))
        return await self._event_reader.read(host, request.wanted)
