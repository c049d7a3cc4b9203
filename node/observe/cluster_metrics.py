"""The cluster and this node for Prometheus, as this node sees them when someone looks."""

from __future__ import annotations

import time
from collections.abc import Iterator

from coordinator.brokers.health import Standing
from goqueue.wire.types import NodeId, PartitionId
from log.store.directory import Store
from node.cluster.host import ClusterHost
from node.metrics import Metrics
from node.partition.host import PartitionHost
from node.replicas.local import Replicas
from node.replicas.topology import Topology

STATES = ("healthy", "draining", "wiped", "dead")
PARTITIONS_A_STEP = 100
"""Partitions looked at before the loop may be given back."""


class ClusterFigures:
    """Loop thread only."""

    def __init__(
        self,
        node: NodeId,
        cluster: ClusterHost,
        replicas: Replicas,
        topology: Topology,
        store: Store,
        metrics: Metrics,
    ) -> None:
        self._node = node
        self._cluster = cluster
        self._replicas = replicas
        self._topology = topology
        self._store = store
        self._metrics = metrics
        self._leads_since_s: float | None = None
        self._leaderships = 0

    def tell(self) -> Iterator[None]:
        """All of it; from time to time the loop may be given back."""
        state, metrics = self._cluster.state, self._metrics
        metrics.forget("topic", state.topics.__contains__)
        metrics.forget("consumer_group", state.groups.__contains__)
        metrics.forget("group", state.groups.__contains__)
        yield
        self._tell_nodes()
        self._tell_controller()
        self._tell_store()
        yield
        yield from self._tell_topics()

    def _tell_nodes(self) -> None:
        cluster, figures = self._cluster, self._metrics.cluster
        states = {node: self._state(node) for node in sorted(cluster.nodes)}
        figures.nodes_total.set(len(states))
        figures.nodes_healthy.set(sum(map(cluster.is_present, states)))
        for node, state in states.items():
            for told in STATES:
                figures.node_state.put(state == told, node, told)
        figures.connected_peers.set(len(cluster.hellos))
        known = cluster.state.layout.brokers
        figures.finished_level.set(known.level)
        for broker in known.by_name.values():
            figures.broker_level.put(broker.highest_level, broker.node)

    def _state(self, node: NodeId) -> str:
        standing = self._cluster.standing(node)
        if standing is Standing.WIPED:
            return "wiped"
        if standing is Standing.DOWN:
            return "dead"
        broker = self._cluster.state.brokers.get(node)
        return "healthy" if broker is None or broker.state == "active" else "draining"

    def _tell_controller(self) -> None:
        raft_group, figures = self._cluster.raft_group, self._metrics.cluster
        begun = self._cluster.leaderships
        if begun > self._leaderships:
            figures.controller_elections.inc(begun - self._leaderships)
            self._leaderships, self._leads_since_s = begun, time.monotonic()
        leads = raft_group is not None and raft_group.is_leader
        if not leads or self._leads_since_s is None:
            self._leads_since_s = time.monotonic() if leads else None
        figures.is_controller.set(leads)
        since_s = self._leads_since_s
        figures.controller_age.set(0 if since_s is None else time.monotonic() - since_s)
        if raft_group is not None:
            figures.cluster_term.set(raft_group.term)
            figures.cluster_commit_index.set(raft_group.commit_index)

    def _tell_store(self) -> None:
        storage, store = self._metrics.storage, self._store
        self._metrics.broker.pending_bytes.set(self._replicas.pending_bytes)
        storage.wal_files.set(store.wal_files)
        storage.wal_bytes.set(store.wal_files * store.config.wal_file_bytes)

    def _tell_topics(self) -> Iterator[None]:
        metrics, leads = self._metrics, self._leads_since_s is not None
        topics = list(self._cluster.state.topics.values())
        partitions = offline = elsewhere = 0
        for topic in topics:
            if leads:
                metrics.broker.topic_partitions.put(len(topic.partitions), topic.name)
            for number, placement in enumerate(topic.partitions):
                partition_id = PartitionId(topic.id, number)
                host = self._replicas.find(partition_id)
                offline += self._is_offline(partition_id, host)
                if host is not None and host.is_leader:
                    elsewhere += placement.preferred not in (None, self._node)
                partitions += 1
                if partitions % PARTITIONS_A_STEP == 0:
                    yield
        metrics.broker.topic_count.set(len(topics))
        metrics.cluster.partition_count.set(partitions)
        metrics.cluster.offline_partitions.set(offline)
        metrics.cluster.preferred_leader_imbalance.set(elsewhere)

    def _is_offline(self, partition_id: PartitionId, host: PartitionHost | None) -> bool:
        """Whether nobody leads it, as far as can be known here."""
        if host is not None and not host.raft_group.is_learner:
            return host.raft_group.leader is None
        voters = self._topology.replicas(partition_id)
        return self._topology.reachable(partition_id) * 2 <= len(voters)
