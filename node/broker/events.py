"""Events of a partition, asked of its leader: a part of the broker."""

from __future__ import annotations

from msgspec import structs

from goqueue.wire.errors import UnknownPartition
from goqueue.wire.types import GroupId, NodeId
from node.api.traces import EventsView, EventsWanted
from node.cluster.topic_finder import TopicFinder
from node.lookup.event_reader import EventReader
from node.peers.forwarding import Forwarder
from node.peers.link import PeerLink
from node.replicas.partition_service import PartitionService
from node.rpc import partitions as rpc
from node.rpc import queue as queue_rpc

EVENTS = "events"
DEADLINE_S = 10.0
"""Beside what is waited for events that are to come."""


class EventsRequest(rpc.GroupRequest, array_like=True, frozen=True):
    """Of a partition's leader."""

    group: bytes
    wanted: EventsWanted

    def packed_groups(self) -> tuple[bytes, ...]:
        return (self.group,)


class EventBrokerNode:
    """Implements `events` of `node.api.traces.Traces`. Loop thread only."""

    def __init__(
        self, finder: TopicFinder, service: PartitionService, forwarder: Forwarder, link: PeerLink
    ) -> None:
        self._event_topics = finder
        self._event_service = service
        self._event_forward = forwarder
        self._event_reader = EventReader()
        link.handle(EVENTS, self._serve_events)

    async def events(
        self, topic: str, partition: int, wanted: EventsWanted
    ) -> tuple[str, EventsView]:
        found = await self._event_topics.find(topic, partition + 1)
        if not 0 <= partition < len(found.partitions):
            raise UnknownPartition(topic, partition)
        group = GroupId(found.id, partition)
        request = EventsRequest(group.pack(), wanted)

        def with_wait(left_s: float) -> EventsRequest:
            wait_s = min(wanted.wait_s, max(0.0, left_s - DEADLINE_S))
            return EventsRequest(request.group, structs.replace(wanted, wait_s=wait_s))

        view = await self._event_forward.call(
            group,
            local=lambda left_s: self._events_here(with_wait(left_s)),
            method=EVENTS,
            payload=lambda left_s: rpc.encode(with_wait(left_s)),
            decode=lambda answer: queue_rpc.decode_answer(answer, EventsView),
            deadline_s=DEADLINE_S + wanted.wait_s,
        )
        return str(found.id), view

    async def _serve_events(self, _peer: NodeId, payload: bytes) -> bytes:
        return rpc.encode(await self._events_here(rpc.decode_request(payload, EventsRequest)))

    async def _events_here(self, request: EventsRequest) -> EventsView:
        host = await self._event_service.confirmed(GroupId.unpack(request.group))
        return await self._event_reader.read(host, request.wanted)
