"""Figures of replicas for Prometheus, gathered one after another when someone looks.

A leader tells how its partition stands, its queue and its groups; every replica tells of its disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from delivery.group.state import GroupState
from goqueue.wire.types import NodeId, PartitionId
from node.metrics import Metrics
from node.observe.lag_metrics import tell_lag
from node.observe.log_metrics import Counted, LogFigures
from node.partition.host import PartitionHost
from node.partition.queue_metrics import tell_queue

FORGOTTEN_A_STEP = 100


class Hosts(Protocol):
    """The replicas of this node; `node.replicas.local.Replicas` is one."""

    def all(self) -> list[PartitionHost]: ...


@dataclass(slots=True)
class _Seen:
    """What had been counted of a replica when it was looked at last."""

    look: int = 0
    in_sync: list[str] | None = None
    replicated_bytes: int = 0
    log: Counted = field(default_factory=Counted)


class ReplicaFigures:
    """Loop thread only."""

    def __init__(
        self,
        node: NodeId,
        hosts: Hosts,
        metrics: Metrics,
        is_under_replicated: Callable[[PartitionHost], bool],
        groups_in: Callable[[PartitionHost], Iterable[GroupState]],
    ) -> None:
        """`groups_in` tells who takes part in a partition's topic, see `node.queue.lag`."""
        self._node = node
        self._hosts = hosts
        self._metrics = metrics
        self._is_under_replicated = is_under_replicated
        self._groups_in = groups_in
        self._logs = LogFigures(metrics)
        self._seen: dict[PartitionId, _Seen] = {}

    def tell(self) -> Iterator[None]:
        """All replicas of this node; between any two the loop may be given back."""
        hosts = self._hosts.all()
        stored_bytes = under_replicated = led = 0
        for host in hosts:
            seen = self._seen.setdefault(host.id, _Seen())
            seen.look = self._metrics.bounds.look
            stored_bytes += self._logs.tell(host, seen.log)
            self._tell_replica(host, seen)
            if not host.is_leader:
                seen.in_sync = None  # a next leadership begins anew
                yield
                continue
            yield
            led += 1
            under_replicated += self._is_under_replicated(host)
            self._tell_leader(host, seen)
            host.count_queue()
            yield
            yield from tell_queue(self._metrics, host)
            yield from tell_lag(self._metrics, host, self._groups_in(host))
            self._tell_archive(host)
            yield
        cluster = self._metrics.cluster
        cluster.leaders_per_node.labels(self._node).set(led)
        cluster.followers_per_node.labels(self._node).set(len(hosts) - led)
        cluster.under_replicated_partitions.set(under_replicated)
        self._metrics.storage.stored_bytes.set(stored_bytes)
        if len(self._seen) > len(hosts):
            yield from self._forget_gone()

    def note_in_sync(self) -> Iterator[None]:
        """Count who fell out of sync, or came back, since this was noted last."""
        for host in self._hosts.all():
            if host.is_leader:
                self._note_in_sync(host, self._seen.setdefault(host.id, _Seen()))
            yield

    # private

    def _tell_replica(self, host: PartitionHost, seen: _Seen) -> None:
        cluster, raft_group = self._metrics.cluster, host.raft_group
        place = (host.topic, str(host.id.partition))
        cluster.high_watermark.put(host.end_offset, *place)
        cluster.apply_lag.put(max(0, raft_group.commit_index - raft_group.applied_index), *place)
        more = raft_group.replication.replicated_bytes - seen.replicated_bytes
        if more:
            cluster.bytes_replicated.labels(host.topic).inc(max(0, more))
            seen.replicated_bytes = raft_group.replication.replicated_bytes

    def _tell_leader(self, host: PartitionHost, seen: _Seen) -> None:
        metrics, raft_group = self._metrics, host.raft_group
        topic, partition = host.topic, str(host.id.partition)
        cluster, storage = metrics.cluster, metrics.storage
        cluster.term.put(raft_group.term, topic, partition)
        cluster.commit_index.put(raft_group.commit_index, topic, partition)
        last = host.log.last_index
        cluster.commit_lag.put(max(0, last - raft_group.commit_index), topic, partition)
        cluster.isr_size.put(len(self._note_in_sync(host, seen)), topic, partition)
        cluster.isr_shrinks.labels(topic, partition)
        cluster.isr_expands.labels(topic, partition)
        for node in raft_group.peers:
            lag = max(0, last - raft_group.replication.match_of(node))
            cluster.replication_lag.put(lag, topic, partition, node)
        end, start = host.end_offset, host.state.log_start_offset
        storage.log_end_offset.put(end, topic, partition)
        storage.latest_offset.put(end, topic, partition)
        storage.log_start_offset.put(start, topic, partition)
        storage.earliest_offset.put(start, topic, partition)

    def _tell_archive(self, host: PartitionHost) -> None:
        found = host.archived()
        if found is not None:
            figures, place = self._metrics.archive, (host.topic, str(host.id.partition))
            figures.position.put(found.position, *place)
            figures.lag_messages.put(found.lag, *place)
            figures.lag_seconds.put(found.lag_ms / 1000, *place)
            figures.required.put(found.required, *place)

    def _note_in_sync(self, host: PartitionHost, seen: _Seen) -> list[str]:
        """Who is in sync now. What a leader finds as it begins is no change."""
        now, before = host.in_sync(), seen.in_sync
        if before is not None and now != before:
            cluster, place = self._metrics.cluster, (host.topic, str(host.id.partition))
            lost, found = len(set(before) - set(now)), len(set(now) - set(before))
            if lost:
                cluster.isr_shrinks.labels(*place).inc(lost)
            if found:
                cluster.isr_expands.labels(*place).inc(found)
        seen.in_sync = now
        return now

    def _forget_gone(self) -> Iterator[None]:
        """Replicas that have left this node."""
        look = self._metrics.bounds.look
        for at, (id, seen) in enumerate(list(self._seen.items())):
            if seen.look != look:
                del self._seen[id]
            if at % FORGOTTEN_A_STEP == 0:
                yield
