"""What the HTTP front asks of the node beneath it, and the views that come back.

The node implements this Protocol over the cluster (`node.broker.node`);
a broker in memory does so for tests. Every method may raise a `GoQueueError`, which the front
renders as it is; any other exception is a fault of the node and answers 500.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from goqueue.wire.types import Offset, TopicId
from node.api.archive import ArchiveBroker, PartitionArchive
from node.api.compaction import CompactionBroker
from node.api.events import EventBroker
from node.api.members import MemberBroker
from node.api.owners import OwnerBroker
from node.api.placement import PlacementBroker
from node.api.queue import QueueBroker
from node.api.scrub import ScrubBroker
from node.api.search import SearchBroker
from node.api.shares import ShareBroker
from node.api.upgrade import UpgradeBroker
from node.api.why import WhyBroker


@dataclass(frozen=True, slots=True)
class PartitionView:
    """One partition as the cluster sees it; `next` is the offset the next message will get.

    `replicas` should hold it, `voters` and `learners` do; `isr` are the voters that are caught up.
    """

    partition: int
    leader: str | None
    replicas: tuple[str, ...]
    isr: tuple[str, ...]
    earliest: Offset
    next: Offset
    size_bytes: int = 0
    voters: tuple[str, ...] = ()
    learners: tuple[str, ...] = ()
    archive: PartitionArchive | None = None
    """None where nothing waits for an archive, and none was told of."""
    stale: bool = False
    """Its leader did not confirm the figures in time: they are those of some replica, or 0."""

    @property
    def messages(self) -> int:
        return self.next - self.earliest


@dataclass(frozen=True, slots=True)
class TopicView:
    """A topic; `config` holds every field of its configuration under the field's own name."""

    name: str
    id: str
    config: Mapping[str, object]
    partitions: tuple[PartitionView, ...]
    warnings: tuple[str, ...] = ()
    is_current: bool = True
    """Whether it holds all that was acknowledged before it was asked for; not where the cluster
    group has no leader within reach."""

    @property
    def stale(self) -> bool:
        """Whether a change, or messages, may be missing."""
        return not self.is_current or any(one.stale for one in self.partitions)


MAJORITY, RELAXED = "majority", "relaxed"
"""How durable what was appended is; as a topic's `durability`."""


@dataclass(frozen=True, slots=True)
class AppendResult:
    """Where a batch stands in its partition's log.

    It is durable there as `durability` says: `majority` (fsynced by a majority) or `relaxed`
    (written by a majority), whatever the topic is set to by the time of the answer. A
    duplicate carries the offset of the original. `time_ms` is the log time of the entry, which is
    the `timestamp` of its messages. `duplicate` says that nothing was stored: all of it was there.
    `rows` is given where message ids decided: (offset, duplicate) of each message in turn. Where it
    is None they follow each other from `base_offset` on.
    """

    base_offset: Offset
    count: int
    duplicate: bool
    time_ms: int
    durability: str
    rows: tuple[tuple[Offset, bool], ...] | None = None


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """An encoded record batch as stored: its rows are `base_offset`, `base_offset + 1`, ..."""

    base_offset: Offset
    time_ms: int
    batch: bytes | memoryview


@dataclass(frozen=True, slots=True)
class Visibility:
    """What a reader who wants visible messages only must know beside the stored batches."""

    time_ms: int
    """Log time at the replica that answers, by which messages are due or have expired."""
    ttl_ms: int = 0
    """How long messages live that say nothing of it; 0 for ever."""
    withdrawn: Sequence[int] = ()
    """Offsets in the slice that were cancelled or have expired."""


@dataclass(frozen=True, slots=True)
class Slice:
    """Whole stored batches, in order, that cover what was asked for.

    The first batch may begin below the asked offset and the last may reach past `max_records`: the
    front cuts rows. `next_offset` is the offset after the last batch, or the first offset from
    which reading goes on when there are none. Only applied (committed) entries are ever here.
    `visibility` is given where it was asked for. `topic_id` is of the topic that was read, which
    need not be the one that has the name by now.

    `end_offset` is no older than the question where `next_offset` has reached it, or where that
    was asked for (`current`); unless the slice is `stale`. Else there is more, and the end is as
    far as the replica that answered has come.
    """

    batches: Sequence[StoredBatch]
    next_offset: Offset
    log_start: Offset
    end_offset: Offset
    visibility: Visibility | None = None
    topic_id: TopicId | None = None
    stale: bool = False
    """No leader has confirmed in time that there is no more: what was acknowledged may be missing
    behind `next_offset`."""

    @property
    def is_at_end(self) -> bool:
        """Whether reading goes on where the log ends, as far as this slice tells."""
        return self.next_offset >= self.end_offset


@dataclass(frozen=True, slots=True)
class TraceEvent:
    """One event in a message's life: PUBLISHED, REPLICATED, RETAINED, ..."""

    time_ms: int
    type: str
    attributes: Mapping[str, object] = field(default_factory=dict[str, object])


@dataclass(frozen=True, slots=True)
class GroupTrace:
    """Where a message stands in one group: delayed, ready, in_flight, retrying, acked, dead,
    cancelled or expired; the times are 0, and texts empty, for what there is none of."""

    group: str
    state: str
    attempts: int
    consumer: str = ""
    visible_until_ms: int = 0
    retry_at_ms: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class MessageTrace:
    """The timeline of one message, oldest event first."""

    topic: str
    partition: int
    offset: Offset
    message_id: str | None
    events: tuple[TraceEvent, ...]
    delivery_attempts: int = 0
    status: str = "in_progress"
    """in_progress, completed, failed, retrying, delayed, cancelled or expired."""
    groups: tuple[GroupTrace, ...] = ()
    exact: bool = True
    """False where the log does not tell all of its past any more."""
    stale: bool = False
    """No leader answered in time: it is what this node's replica knows, and more may have happened
    since."""


@dataclass(frozen=True, slots=True)
class Check:
    """One readiness check; `status` is `pass` or `fail`."""

    status: str
    message: str = ""
    latency_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether this node may be sent work, and why not."""

    ready: bool
    checks: Mapping[str, Check]


@dataclass(frozen=True, slots=True)
class NodeView:
    """A broker of the cluster as this node sees it."""

    node: str
    status: str  # alive | dead | wiped
    http_url: str
    peer_address: str
    zone: str
    version: str
    leaders: int  # partitions it leads
    replicas: int  # partitions it holds
    incarnation: int = 0
    joined_at_ms: int = 0
    last_heartbeat_ms: int = 0
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    state: str = "active"  # active | draining | drained
    room_bytes: int | None = None
    """What may still be stored there before publishes are refused, as it last said; None: it did
    not."""


@dataclass(frozen=True, slots=True)
class ClusterView:
    """The cluster from this node; `controller` is the leader of the cluster group."""

    cluster_id: str
    node: str
    controller: str | None
    epoch: int  # term of the cluster group
    version: int  # applied index of the cluster group
    has_quorum: bool
    nodes: tuple[NodeView, ...]
    topics: int
    partitions: int
    under_replicated: int
    leaderless: int
    problems: tuple[str, ...] = ()
    voters: tuple[str, ...] = ()
    """Who votes in the cluster group; all other nodes follow it."""
    warnings: tuple[str, ...] = ()
    """What should be changed about the node that answers; the cluster is well meanwhile."""


@dataclass(frozen=True, slots=True)
class TopicStats:
    """Totals of one topic."""

    partitions: int
    messages: int
    size_bytes: int
    stale: bool = False
    """Some of it is of replicas whose leaders did not confirm it in time."""


@dataclass(frozen=True, slots=True)
class StatsView:
    """Figures of this node; `extra` holds whatever the floors beneath want shown in /stats."""

    uptime_s: float
    topics: Mapping[str, TopicStats]
    extra: Mapping[str, object] = field(default_factory=dict[str, object])


class Broker(
    QueueBroker,
    MemberBroker,
    PlacementBroker,
    ScrubBroker,
    CompactionBroker,
    ArchiveBroker,
    EventBroker,
    SearchBroker,
    WhyBroker,
    UpgradeBroker,
    Protocol,
):
    """One node of the cluster. Any node serves any request, forwarding where it must.

    All coroutines run on the node's event loop. A call that is cancelled after it sent something
    may still take effect: its outcome is unknown.
    """

    @property
    def node_id(self) -> str: ...

    @property
    def owners(self) -> OwnerBroker:
        """Whose groups are whose."""
        ...

    @property
    def shares(self) -> ShareBroker:
        """What tenants may hold."""
        ...

    # topics: answered from, or replicated by, the cluster group

    async def create_topic(self, name: str, overrides: Mapping[str, object]) -> TopicView:
        """Create, and answer once the topic's partitions can be led. Raises `TopicExists`,
        `BadName`, `BadRequest` (a value out of range), `NoQuorum`."""
        ...

    async def alter_topic(self, name: str, changes: Mapping[str, object]) -> TopicView: ...

    async def delete_topic(self, name: str) -> None: ...

    def list_topics(self) -> list[str]:
        """Names, sorted, from the applied cluster state of this node."""
        ...

    async def topic(self, name: str) -> TopicView: ...

    def partition_count(self, topic: str) -> int:
        """From the cached cluster state; raises `UnknownTopic`. Called for every publish."""
        ...

    def max_message_bytes(self, topic: str) -> int:
        """Bound on key + value + headers of one message; raises `UnknownTopic`."""
        ...

    def delay_ms_max(self, topic: str) -> int:
        """Bound on how far ahead a message may be delayed; raises `UnknownTopic`."""
        ...

    def is_compacted(self, topic: str) -> bool:
        """Whether the topic keeps the last value of each key; raises `UnknownTopic`."""
        ...

    def compression(self, topic: str) -> str:
        """The codec that messages are stored with which came as JSON; raises `UnknownTopic`."""
        ...

    async def ensure_topic(self, name: str) -> None:
        """Create the topic with defaults where auto-creation is on and it is missing; concurrent
        calls agree. Raises `UnknownTopic` where auto-creation is off."""
        ...

    # records

    async def append(
        self,
        topic: str,
        partition: int,
        batch: bytes,
        *,
        deadline_s: float,
        validated: bool = False,
    ) -> AppendResult:
        """Append one encoded record batch and answer when it is as durable as the topic promises.

        `validated`: every column of this batch was checked, or the batch was encoded, by this
        process. Batches of one caller to one partition are appended in the order of the calls.
        Raises `UnknownTopic`, `UnknownPartition`, `OutOfOrder`, `ProducerFenced`, `NoQuorum`,
        `DiskFull`, `Busy`, `PayloadTooLarge`, `DelayTooLong`, `TooManyDelayed`; `Timeout` and
        `OutcomeUnknown` when it may or may not have happened.
        """
        ...

    async def read(
        self,
        topic: str,
        partition: int,
        offset: Offset,
        *,
        max_records: int,
        max_bytes: int,
        wait_s: float,
        to_time_ms: int | None = None,
        visible: bool = False,
        current: bool = False,
    ) -> Slice:
        """Stored batches from `offset` on; at least one batch if any is there, however large.

        With nothing at `offset` yet, waits up to `wait_s` for an append. An offset below the log
        start is served from the log start on. One beyond the end raises `OffsetOutOfRange`.
        `to_time_ms`: only entries with log time below it; a batch at or after it ends the wait.
        `visible` asks for the slice's `visibility`; the batches are the same. With `current` the
        slice's end is no older than the call, also where the slice does not reach it. Where no
        leader confirms an end in time, it is what this node has, and the slice is `stale`.
        """
        ...

    async def offset_at(self, topic: str, partition: int, time_ms: int) -> Offset:
        """First offset with log time >= `time_ms`; the log's end, as its leader confirms it, if
        there is none. Raises `NoQuorum`, `Timeout` where no leader tells."""
        ...

    async def end_offsets(self, topic: str) -> dict[int, tuple[Offset, Offset]]:
        """(earliest, next) of each partition, linearizable; a partition that can't answer is
        missing."""
        ...

    async def flush(self, topic: str) -> None:
        """Answer once everything acked so far on the topic is synced on a majority."""
        ...

    async def message_trace(self, topic: str, partition: int, offset: Offset) -> MessageTrace:
        """Raises `NotFound` where no such message exists (any more)."""
        ...

    # producers

    async def init_producer(self, transactional_id: str | None) -> tuple[int, int]:
        """A producer id and epoch from the cluster group; the same transactional id gets the same
        producer id with the next epoch."""
        ...

    async def check_producer(self, producer_id: int, epoch: int) -> None:
        """Raises `NotFound` for an id never given out, `ProducerFenced` for an epoch that a newer
        `init_producer` has replaced; from the applied cluster state of this node."""
        ...

    # the node itself

    def cluster_view(self) -> ClusterView: ...

    def stats(self) -> StatsView:
        """Of this node's replicas, as far as they have applied."""
        ...

    async def confirmed_stats(self) -> StatsView:
        """As `stats`, with messages as the partitions' leaders count them now; what they don't
        tell in time is `stale`."""
        ...

    def alive(self) -> str | None:
        """None, or why this process should be restarted (its log failed)."""
        ...

    def ready(self) -> Readiness: ...
