"""Figures of replicas for Prometheus, gathered one after another when someone looks.

A leader tells how its partition stands, its queue and its groups; every replica tells of its disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from goqueue.wire.types import GroupId, NodeId
from node.lag_metrics import tell_lag
from node.log_metrics import LogFigures
from node.metrics import Metrics
from node.partition import PartitionHost
from node.queue_metrics import tell_queue


class Hosts(Protocol):
    """The replicas of this node; `node.replicas.Replicas` is one."""

    def all(self) -> list[PartitionHost]: ...


class ReplicaFigures:
    """Loop thread only."""

    def __init__(
        self,
        node: NodeId,
        hosts: Hosts,
        metrics: Metrics,
        is_under_replicated: Callable[[PartitionHost], bool],
    ) -> None:
        self._node = node
        self._hosts = hosts
        self._metrics = metrics
        self._is_under_replicated = is_under_replicated
        self._logs = LogFigures(metrics)
        self._in_sync: dict[GroupId, frozenset[str]] = {}
        self._replicated: dict[GroupId, int] = {}

    def tell(self) -> Iterator[None]:
        """All replicas of this node; between any two the loop may be given back."""
        hosts = self._hosts.all()
        stored_bytes, under_replicated = 0, 0
        led: set[GroupId] = set()
        for host in hosts:
            stored_bytes += self._logs.tell(host)
            self._tell_replica(host)
            yield
            if host.is_leader:
                led.add(host.id)
                under_replicated += self._is_under_replicated(host)
                self._tell_leader(host)
                host.count_queue()
                yield from tell_queue(self._metrics, host)
                yield from tell_lag(self._metrics, host)
            yield
        cluster = self._metrics.cluster
        cluster.leaders_per_node.labels(self._node).set(len(led))
        cluster.followers_per_node.labels(self._node).set(len(hosts) - len(led))
        cluster.under_replicated_partitions.set(under_replicated)
        self._metrics.storage.stored_bytes.set(stored_bytes)
        self._forget({host.id for host in hosts}, led)

    def note_in_sync(self) -> Iterator[None]:
        """Count who fell out of sync, or came back, since this was noted last."""
        for host in self._hosts.all():
            if host.is_leader:
                self._note_in_sync(host)
            yield

    # private

    def _tell_replica(self, host: PartitionHost) -> None:
        cluster, group = self._metrics.cluster, host.group
        place = (host.topic, str(host.id.partition))
        cluster.high_watermark.put(host.end_offset, *place)
        cluster.apply_lag.put(max(0, group.commit_index - group.applied_index), *place)
        more = group.replicated_bytes - self._replicated.get(host.id, 0)
        if more:
            cluster.bytes_replicated.labels(host.topic).inc(max(0, more))
            self._replicated[host.id] = group.replicated_bytes

    def _tell_leader(self, host: PartitionHost) -> None:
        metrics, group = self._metrics, host.group
        topic, partition = host.topic, str(host.id.partition)
        cluster, storage = metrics.cluster, metrics.storage
        cluster.term.put(group.term, topic, partition)
        last = host.log.last_index
        cluster.commit_lag.put(max(0, last - group.commit_index), topic, partition)
        cluster.isr_size.put(len(self._note_in_sync(host)), topic, partition)
        cluster.isr_shrinks.labels(topic, partition)
        cluster.isr_expands.labels(topic, partition)
        for node in group.peers:
            lag = max(0, last - group.match_of(node))
            cluster.replication_lag.put(lag, topic, partition, node)
        end, start = host.end_offset, host.state.log_start_offset
        storage.log_end_offset.put(end, topic, partition)
        storage.latest_offset.put(end, topic, partition)
        storage.log_start_offset.put(start, topic, partition)
        storage.earliest_offset.put(start, topic, partition)

    def _note_in_sync(self, host: PartitionHost) -> frozenset[str]:
        """Who is in sync now. What a leader finds as it begins is no change."""
        now = frozenset(host.in_sync())
        before = self._in_sync.get(host.id, now)
        if now != before:
            cluster, place = self._metrics.cluster, (host.topic, str(host.id.partition))
            if before - now:
                cluster.isr_shrinks.labels(*place).inc(len(before - now))
            if now - before:
                cluster.isr_expands.labels(*place).inc(len(now - before))
        self._in_sync[host.id] = now
        return now

    def _forget(self, living: set[GroupId], led: set[GroupId]) -> None:
        """Replicas that left, and leaderships that are over: a next one begins anew."""
        self._in_sync = {id: known for id, known in self._in_sync.items() if id in led}
        self._replicated = {id: sent for id, sent in self._replicated.items() if id in living}
        self._logs.forget(living)
