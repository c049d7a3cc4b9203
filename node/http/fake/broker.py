"""A broker in memory, for testing the front alone and for developing clients without a cluster.

It keeps the contract of `Broker` (dense offsets, log time never back, duplicates by producer
sequence, and by message id for ever) and nothing survives it.
`python -m node.http.fake.broker --port 8080` serves one.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from coordinator.cluster.state import ClusterState
from goqueue.wire.batch import RecordBatch
from goqueue.wire.errors import (
    BadRequest,
    GoQueueError,
    KeyRequired,
    NotFound,
    NullValue,
    OffsetOutOfRange,
    ProducerFenced,
    TopicExists,
    UnknownPartition,
    UnknownTopic,
)
from goqueue.wire.types import Offset
from node.api.node import Check, ClusterView, Readiness, StatsView, TopicStats
from node.api.records import AppendResult, Slice, Visibility
from node.api.shares import TenantShares
from node.api.topics import PartitionView, TopicView
from node.api.traces import MessageTrace, TraceEvent
from node.api.upgrade import VersionView
from node.broker.upgrade import NodeUpgrade
from node.cluster.tenant_quotas import Shares
from node.http.fake.archive import FakeArchive
from node.http.fake.compaction import FakeCompaction
from node.http.fake.events import FakeEvents
from node.http.fake.partition import FakePartition
from node.http.fake.placement import FakePlacement
from node.http.fake.scrub import FakeScrub
from node.http.fake.search import FakeSearch
from node.http.fake.why import FakeWhy

PARTITIONS_MAX = 1024
BATCHES_KEPT = 100_000
DEFAULTS: dict[str, object] = {
    "partitions": 6,
    "replication_factor": 1,
    "retention_ms": 168 * 3600 * 1000,
    "retention_bytes": 10 * 2**30,
    "durability": "majority",
    "flush_interval_ms": 50,
    "lanes": 5,
    "max_message_bytes": 2**20,
    "ttl_ms": 0,
    "delay_ms_max": 168 * 3600 * 1000,
    "delayed_max": 100_000,
    "dedup_window_ms": 300_000,
    "dedup_max": 1_000_000,
    "dedup_producers_bytes": 32 * 2**20,
    "dedup_requests_bytes": 24 * 2**20,
    "dead_retention_ms": 14 * 24 * 3600 * 1000,
    "cleanup": "delete",
    "delete_retention_ms": 24 * 3600 * 1000,
    "min_compaction_lag_ms": 0,
    "min_cleanable_ratio": 0.5,
    "require_archive": False,
    "compression": "none",
    "labels": {},
}


@dataclass(slots=True)
class _Topic:
    id: str
    config: dict[str, object]
    partitions: list[FakePartition]


class FakeBroker(
    FakeArchive,
    FakeEvents,
    FakePlacement,
    FakeScrub,
    FakeCompaction,
    FakeWhy,
    FakeSearch,
    NodeUpgrade,
):
    """Implements `Broker` in memory. Tests set `append_error` and `not_alive` to inject faults."""

    topics = records = queue = receipts = polls = groups = members = positions = figures = property(
        lambda self: self
    )
    letters = redriving = delays = scheduling = lookup = traces = placement = compactions = topics
    archives = scrubs = upgrade = node = topics
    """Every part is the fake itself."""

    def __init__(
        self,
        node_id: str = "node-1",
        *,
        auto_create: bool = True,
        batches_kept: int = BATCHES_KEPT,
        clock_ms: Callable[[], int] = lambda: int(time.time() * 1000),
    ) -> None:
        super().__init__(node_id, clock_ms)
        NodeUpgrade.__init__(self, self.cluster, self._nodes)
        self.shares: TenantShares = Shares(ClusterState, 1)  # nothing is there, nobody has a share
        self.append_error: GoQueueError | None = None
        self.not_alive: str | None = None
        self.not_ready: str | None = None
        self._auto_create = auto_create
        self._batches_kept = batches_kept
        self._topics: dict[str, _Topic] = {}
        self._transactional: dict[str, tuple[int, int]] = {}
        self._next_producer = 1
        self._created = 0
        self._started_ms = clock_ms()
        self._lagging: dict[tuple[str, int], tuple[int, int]] = {}

    # topics

    async def create_topic(self, name: str, overrides: Mapping[str, object]) -> TopicView:
        if name in self._topics:
            raise TopicExists(name)
        config = {**DEFAULTS, **overrides}
        count = config["partitions"]
        if not isinstance(count, int) or not 1 <= count <= PARTITIONS_MAX:
            raise BadRequest(f"partitions must be between 1 and {PARTITIONS_MAX}")
        self._created += 1
        partitions = [FakePartition(self._batches_kept) for _ in range(count)]
        self._topics[name] = _Topic(f"{1:016x}-{self._created:x}", config, partitions)
        self._put_replicas(name, count, config["replication_factor"])
        self._topics_changed()
        return await self.topic(name)

    async def alter_topic(self, name: str, changes: Mapping[str, object]) -> TopicView:
        topic = self._topic(name)
        if changes.get("partitions", len(topic.partitions)) != len(topic.partitions):
            raise BadRequest("the number of partitions cannot be changed")
        factor = changes.get("replication_factor", topic.config["replication_factor"])
        if isinstance(factor, int) and factor != topic.config["replication_factor"]:
            await self.set_replication_factor(name, factor)
        topic.config.update(changes)
        return await self.topic(name)

    async def delete_topic(self, name: str) -> None:
        self._topic(name)
        del self._topics[name]
        self._drop_replicas(name)
        self._topics_changed()

    def list_topics(self) -> list[str]:
        return sorted(self._topics)

    async def topic(self, name: str) -> TopicView:
        topic = self._topic(name)
        views = tuple(self._seen(name, n) for n in range(len(topic.partitions)))
        return TopicView(name, topic.id, dict(topic.config), views)

    def partition_count(self, topic: str) -> int:
        return len(self._topic(topic).partitions)

    def max_message_bytes(self, topic: str) -> int:
        bound = self._topic(topic).config["max_message_bytes"]
        assert isinstance(bound, int)
        return bound

    def delay_ms_max(self, topic: str) -> int:
        bound = self._topic(topic).config["delay_ms_max"]
        assert isinstance(bound, int)
        return bound

    def is_compacted(self, topic: str) -> bool:
        return self._topic(topic).config["cleanup"] != "delete"

    def compression(self, topic: str) -> str:
        return str(self._topic(topic).config["compression"])

    def ttl_ms(self, topic: str) -> int:
        ttl_ms = self._topic(topic).config["ttl_ms"]
        assert isinstance(ttl_ms, int)
        return ttl_ms

    def topic_id(self, topic: str) -> str:
        return self._topic(topic).id

    async def ensure_topic(self, name: str) -> None:
        if name not in self._topics:
            if not self._auto_create:
                raise UnknownTopic(name)
            await self.create_topic(name, {})

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
        log = self._partition(topic, partition)
        if not self.is_compacted(topic) and RecordBatch.parse(batch).nulls():
            raise NullValue
        if self.is_compacted(topic) and not RecordBatch.parse(batch).has_all_keys():
            raise KeyRequired
        if self.append_error is not None:
            raise self.append_error
        parsed = RecordBatch.parse(batch)
        if not validated:
            parsed.validate()
        durability = str(self._topic(topic).config["durability"])
        return log.append(batch, parsed, self._clock_ms(), durability)

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
        log = self._partition(topic, partition)
        start = max(int(offset), log.start)
        if (hidden := self._hidden(topic, partition)) is not None:
            return self._read_hidden(log, start, hidden, max_records, max_bytes, current)
        if start > log.next:
            raise OffsetOutOfRange(start, log.start, log.next)
        if start == log.next and wait_s > 0:
            await log.wait(wait_s)
        found, following = log.read(start, max_records, max_bytes, to_time_ms)
        seen = None
        if visible:
            cancelled = sorted(self._log(topic, partition).cancelled)
            seen = Visibility(self._clock_ms(), self.ttl_ms(topic), cancelled)
        return Slice(found, Offset(following), Offset(log.start), Offset(log.next), seen)

    def hide(self, topic: str, partition: int, end: int, answers: int) -> None:
        """So many answers come from a replica that has come to `end`, and no leader confirms it."""
        self._lagging[topic, partition] = (end, answers)

    def _seen(self, topic: str, partition: int) -> PartitionView:
        view, end = self._partition_view(topic, partition), self._hidden(topic, partition)
        return view if end is None else replace(view, next=Offset(end), stale=True)

    def _hidden(self, topic: str, partition: int) -> int | None:
        end, answers = self._lagging.pop((topic, partition), (0, 0))
        if answers > 1:
            self._lagging[topic, partition] = (end, answers - 1)
        return end if answers else None

    @staticmethod
    def _read_hidden(
        log: FakePartition, start: int, end: int, max_records: int, max_bytes: int, current: bool
    ) -> Slice:
        found, following = log.read(start, max_records, max_bytes, None)
        found = [stored for stored in found if stored.base_offset < end]
        following = min(following, end)
        stale = current or following >= end
        return Slice(found, Offset(following), Offset(log.start), Offset(end), stale=stale)

    async def offset_at(self, topic: str, partition: int, time_ms: int) -> Offset:
        log = self._partition(topic, partition)
        at = bisect_left(log.times_ms, time_ms)
        return Offset(log.bases[at] if at < len(log.bases) else log.next)

    async def end_offsets(self, topic: str) -> dict[int, tuple[Offset, Offset]]:
        partitions = self._topic(topic).partitions
        return {n: (Offset(p.start), Offset(p.next)) for n, p in enumerate(partitions)}

    async def flush(self, topic: str) -> None:
        self._topic(topic)

    async def message_trace(self, topic: str, partition: int, offset: Offset) -> MessageTrace:
        log = self._partition(topic, partition)
        if not log.start <= offset < log.next:
            raise NotFound("no such message", topic=topic, partition=partition, offset=offset)
        at = bisect_right(log.bases, offset) - 1
        row = offset - log.bases[at]
        message_id = RecordBatch.parse(log.batches[at].batch).message_ids()[row]
        retention_ms = self._topic(topic).config["retention_ms"]
        assert isinstance(retention_ms, int)
        time_ms = log.times_ms[at]
        events = (
            TraceEvent(time_ms, "PUBLISHED", {}),
            TraceEvent(time_ms, "REPLICATED", {"nodes": [self.node_id]}),
            TraceEvent(time_ms, "RETAINED", {"expires_ms": time_ms + retention_ms}),
        )
        return MessageTrace(topic, partition, offset, message_id, events)

    # producers

    async def init_producer(self, transactional_id: str | None) -> tuple[int, int]:
        if transactional_id is not None and transactional_id in self._transactional:
            producer, epoch = self._transactional[transactional_id]
            self._transactional[transactional_id] = (producer, epoch + 1)
            return producer, epoch + 1
        producer = self._next_producer
        self._next_producer += 1
        if transactional_id is not None:
            self._transactional[transactional_id] = (producer, 0)
        return producer, 0

    async def check_producer(self, producer_id: int, epoch: int) -> None:
        if not 0 < producer_id < self._next_producer:
            raise NotFound(f"no producer {producer_id}", producer_id=producer_id)
        current = max((e for p, e in self._transactional.values() if p == producer_id), default=0)
        if epoch < current:
            raise ProducerFenced(f"producer {producer_id} has epoch {current}", epoch=current)

    # the node itself

    def cluster_view(self) -> ClusterView:
        partitions = sum(len(t.partitions) for t in self._topics.values())
        return ClusterView(
            cluster_id=f"{1:016x}",
            node=self.node_id,
            controller=self.node_id,
            epoch=1,
            version=self._created,
            has_quorum=True,
            nodes=tuple(self._nodes()),
            topics=len(self._topics),
            partitions=partitions,
            under_replicated=0,
            leaderless=0,
        )

    def stats(self) -> StatsView:
        topics = {
            name: TopicStats(
                len(t.partitions),
                sum(p.next - p.start for p in t.partitions),
                sum(p.size_bytes for p in t.partitions),
            )
            for name, t in self._topics.items()
        }
        return StatsView((self._clock_ms() - self._started_ms) / 1000, topics)

    async def confirmed_stats(self) -> StatsView:
        return self.stats()

    def alive(self) -> str | None:
        return self.not_alive

    def ready(self) -> Readiness:
        check = Check("pass") if self.not_ready is None else Check("fail", self.not_ready)
        return Readiness(self.not_ready is None, {"broker": check, "storage": Check("pass")})

    def version(self) -> VersionView:
        return VersionView("fake", level=self.cluster.state.layout.brokers.level)

    def _grow(self, name: str, count: int) -> None:
        topic = self._topic(name)
        while len(topic.partitions) < count:
            topic.partitions.append(FakePartition(self._batches_kept))
        topic.config["partitions"] = count
        self._topics_changed()

    def _topic(self, name: str) -> _Topic:
        topic = self._topics.get(name)
        if topic is None:
            raise UnknownTopic(name)
        return topic

    def _partition(self, name: str, partition: int) -> FakePartition:
        partitions = self._topic(name).partitions
        if not 0 <= partition < len(partitions):
            raise UnknownPartition(name, partition)
        return partitions[partition]


def main() -> None:
    from node.http.server.app import HttpFront

    parser = argparse.ArgumentParser(description="Serve a GoQueue broker kept in memory.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8080)
    arguments = parser.parse_args()

    async def serve() -> None:
        broker = FakeBroker()
        broker.cluster.arrivals = 1
        front = HttpFront(broker, host=arguments.host, port=arguments.port)
        await front.start()
        print(f"ready http://{arguments.host}:{front.port}", flush=True)
        await asyncio.Event().wait()

    asyncio.run(serve())


if __name__ == "__main__":
    main()
