"""Who is behind in what: one definition of lag, for HTTP, CLI, console, metrics and alerts.

A group takes part in a topic if one of its members subscribes to it, or it has begun in any of the
topic's partitions. Its lag is then counted in all of them: messages that are due and not settled
(`delivery.group.lag`). Where it has not begun yet it is looked at as it would begin there, by its
start position; nothing is opened for that.

Which groups have begun elsewhere is told by the replicas that are here, and for partitions without
a replica here by other nodes, asked every ten seconds once feature level 2 is finished.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol

import msgspec
from msgspec import structs

from coordinator.cluster.state import ClusterState, Topic
from delivery.entries.ops import OpenGroup
from delivery.group.state import GroupState
from delivery.state.partition import PartitionState
from goqueue.wire.errors import GoQueueError
from goqueue.wire.types import NodeId, PartitionId, TopicId
from log.levels import Feature
from node.cluster.host import ClusterHost
from node.peers.link import PeerLink
from node.queue.group_admin import group_ref
from node.rpc import partitions as rpc
from node.rpc.queue import GroupRef
from raft.link import RemoteError

GROUPS_BEGUN = "groups_begun"
REFRESH_S = 10.0
"""Other nodes are asked so often: metrics are looked at every 15 s or so."""
ASK_TIMEOUT_S = 2.0
TABLE_S = 1.0
"""For so long one table of who takes part in what serves all partitions that are looked at."""
PAIRS_MAX = 100_000
"""Groups of topics in one answer, of about 10 bytes each: an answer stays below 2 MiB."""


class BegunAnswer(msgspec.Struct, array_like=True, frozen=True):
    """Topics, each as its first partition's id, and the groups that have begun in them there."""

    begun: list[tuple[bytes, list[int]]]


_decoder = msgspec.msgpack.Decoder(BegunAnswer)


class Queue(Protocol):
    def begins(self, ref: GroupRef) -> int: ...


class Led(Protocol):
    """A partition as lag is measured in it; `node.partition.host.PartitionHost` is one."""

    @property
    def id(self) -> PartitionId: ...

    @property
    def state(self) -> PartitionState: ...

    @property
    def queue(self) -> Queue: ...


class Partitions(Protocol):
    """The replicas that are here; `node.replicas.local.Replicas` is one."""

    def all(self) -> Iterable[Led]: ...


def standing(host: Led, ref: GroupRef, created_ms: int) -> GroupState:
    """The group; or what it would be if it had begun when it was created, without an order that
    takes time to find."""
    group = host.state.queue.groups.get(ref.id)
    if group is not None:
        return group
    config = structs.replace(ref.config, ordering="none")
    opening = OpenGroup(ref.id, ref.name, ref.version, config, host.queue.begins(ref))
    return host.state.queue.begun(opening, created_ms)


class TakingPart:
    """Which groups take part in which topics, as far as this node knows. Loop thread only."""

    def __init__(self, cluster: ClusterHost, replicas: Partitions, link: PeerLink) -> None:
        self._cluster = cluster
        self._replicas = replicas
        self._link = link
        self._told: dict[TopicId, set[int]] = {}
        self._table: Mapping[TopicId, set[int]] = {}
        self._table_until_s = 0.0
        link.handle(GROUPS_BEGUN, self._serve)

    def groups_in(self, host: Led) -> Iterator[GroupState]:
        """Every group that takes part, as it stands or would begin in this partition. They are
        made one by one, so that the loop may be given back between them."""
        state = self._cluster.state
        known = dict(host.state.queue.groups)
        yield from known.values()
        for id in sorted(self._taking_part().get(host.id.topic, set()) - known.keys()):
            group = state.group_of(id)
            if group is not None:
                yield standing(host, group_ref(group), group.created_ms)

    def ids_in(self, topic: TopicId) -> set[int]:
        """The groups that take part in a topic, whether they have begun in a partition or not."""
        return set(self._taking_part().get(topic, ()))

    async def refresh(self) -> None:
        """Learn what other nodes know of topics that are led here, and not whole here."""
        wanted = self._partly_here()
        if not wanted or not self._cluster.levels.speaks(Feature.LAG_EVERYWHERE):
            self._told = {}
            return
        request = rpc.encode(rpc.PartitionsRequest([PartitionId(one, 0).pack() for one in wanted]))
        answers = await asyncio.gather(
            *(self._ask(node, request) for node in sorted(self._link.connected()))
        )
        found: dict[TopicId, set[int]] = {one: set() for one in wanted}
        for answer in answers:
            for packed, groups in () if answer is None else answer.begun:
                found.setdefault(PartitionId.unpack(packed).topic, set()).update(groups)
        if None in answers:  # who does not answer may know of them still
            for topic, before in self._told.items():
                found.get(topic, set()).update(before)
        self._told = found
        self._table_until_s = 0.0

    # private

    def _partly_here(self) -> list[TopicId]:
        here: dict[TopicId, int] = {}
        for host in self._replicas.all():
            here[host.id.topic] = here.get(host.id.topic, 0) + 1
        topics = [self._cluster.state.topic_of(id) for id in here]
        return sorted(
            topic.id for topic in topics if topic and len(topic.partitions) > here[topic.id]
        )

    async def _ask(self, node: NodeId, request: bytes) -> BegunAnswer | None:
        try:
            told = await self._link.request(node, GROUPS_BEGUN, request, ASK_TIMEOUT_S)
            return _decoder.decode(told)
        except (GoQueueError, RemoteError, msgspec.DecodeError):
            return None

    def _taking_part(self) -> Mapping[TopicId, set[int]]:
        now_s = asyncio.get_running_loop().time()
        if now_s >= self._table_until_s:
            self._table_until_s = now_s + TABLE_S
            found = self._begun_here()
            for more in (self._told, subscribed(self._cluster.state)):
                for topic, groups in more.items():
                    found.setdefault(topic, set()).update(groups)
            self._table = found
        return self._table

    def _begun_here(self) -> dict[TopicId, set[int]]:
        found: dict[TopicId, set[int]] = {}
        for host in self._replicas.all():
            groups = host.state.queue.groups
            if groups:
                found.setdefault(host.id.topic, set()).update(groups)
        return found

    async def _serve(self, _peer: NodeId, payload: bytes) -> bytes:
        request = rpc.decode_request(payload, rpc.PartitionsRequest)
        wanted = {PartitionId.unpack(packed).topic for packed in request.partitions}
        rows: list[tuple[bytes, list[int]]] = []
        left = PAIRS_MAX
        for topic, groups in self._begun_here().items():
            if topic in wanted:
                rows.append((PartitionId(topic, 0).pack(), sorted(groups)[:left]))
                left -= len(rows[-1][1])
        return rpc.encode(BegunAnswer(rows))


def subscribed(state: ClusterState) -> dict[TopicId, set[int]]:
    """By topic, the groups of which a member subscribes to it. Many members do so alike."""
    found: dict[TopicId, set[int]] = {}
    for id, membership in state.members.by_group.items():
        alike = {member.subscription: member for member in membership.members.values()}
        for member in alike.values():
            topics: Iterable[Topic] = (
                (one for one in state.topics.values() if member.subscribes_to(one.name))
                if member.patterns
                else (state.topics[name] for name in member.topics if name in state.topics)
            )
            for topic in topics:
                found.setdefault(topic.id, set()).add(id)
    return found
