"""The parts of one node, wired: who knows whom, and in which order they start."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

from goqueue.background import TaskSet
from goqueue.wire.types import CLUSTER_GROUP, NodeId, PartitionId
from log.levels import Feature, Levels
from log.store.directory import Store
from node.broker.node import NodeBroker
from node.broker_assembly import BrokerBase, broker_of
from node.cluster.host import FINISHED_LEVEL, ClusterHost
from node.cluster.membership import BrokerMembership
from node.cluster.topic_finder import TopicFinder
from node.cluster.voters import ClusterMembers
from node.config.node import NodeConfig
from node.factories import (
    cluster_maintenance,
    level_known,
    own_voter,
    peer_certificates,
    peer_link,
    ports_of,
    raft_config,
    spans_of,
)
from node.http.budget.memory import Budgets
from node.http.server.app import HttpFront
from node.kubernetes.pod import Pod, PodParts, pod_of
from node.listeners_assembly import ClientPorts, Listeners, client_ports
from node.metrics import Metrics
from node.observe.cluster_metrics import ClusterFigures
from node.observe.node_metrics import NodeFigures
from node.observe.replica_metrics import ReplicaFigures
from node.observe.status import NodeStatus
from node.partition.append_queue import ByteBudget
from node.partition.host import NodeParts, PartitionSettings
from node.partition.indexer import indexers
from node.partition.reading.message_reader import BatchCache
from node.peers.clocks import WALL_MS, PeerClocks
from node.peers.forwarding import Forwarder
from node.peers.link import PeerLink
from node.peers.runs import RUN, Runs
from node.placement.leadership_shedder import LeadershipShedder
from node.placement.maintenance import Maintenance
from node.placement.moves import ReplicaMoves
from node.placement.steps import MovingPartitions
from node.queue.redrive_worker import RedriveRunner
from node.queue.schedule_worker import ScheduleRunner
from node.queue_assembly import (
    QueueBase,
    QueueParts,
    TimedParts,
    group_services,
    node_tasks,
    queue_parts,
    stream_services,
)
from node.replicas.local import Replicas, partition_hosts
from node.replicas.orphans import OrphanReplicas
from node.replicas.partition_service import PartitionService
from node.replicas.reconciler import Reconciler
from node.replicas.topology import Topology
from node.runtime.clock import Clock, SystemClock, system_random
from node.runtime.closing import RaftService, StoreService
from node.runtime.loop_lag import LoopLag
from node.runtime.scheduler import LoopScheduler
from node.runtime.service import ServiceStack
from node.storage.copying.copies import Copies, is_copied
from node.storage.disks import Disks
from node.storage.flusher import Flusher
from node.storage.parts import StorageParts
from node.storage.repair.healer import Healer
from node.storage.repair.whole_replicas import Repair
from node.storage.space_watch import SpaceWatch
from raft.group import RaftGroup
from raft.host import RaftHost
from raft.interfaces import Environment

STOP_PART_S = 12.0
WORKERS = 2
BATCHES_BYTES = 8 << 20
"""Decoded batches kept at hand for the next receives."""


@dataclass(frozen=True, slots=True)
class NodeAssembly:
    """A wired node; by name, the parts that stopping in order needs, and whoever moves its time."""

    services: ServiceStack
    front: HttpFront
    listeners: Listeners
    maintenance: Maintenance
    status: NodeStatus
    broker: NodeBroker
    raft: RaftHost
    link: PeerLink
    metrics: Metrics
    timed: TimedParts


class _Base:
    """What every part stands on: clocks, metrics, threads, the disk, the link, and Raft.

    The link and Raft call back into parts that are made later: `cluster`, `membership` and `status`
    are set before anything is started.
    """

    cluster: ClusterHost
    membership: BrokerMembership
    status: NodeStatus

    def __init__(
        self,
        config: NodeConfig,
        store: Store,
        on_failure: Callable[[Exception], None],
        levels: Levels,
        on_outdated: Callable[[], None],
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self.levels, self.config, self.store, self.clock = levels, config, store, clock
        self.rng = rng
        self.metrics = Metrics(config.limits.metric_series)
        self.me = own_voter(config, store)
        self.workers = ThreadPoolExecutor(WORKERS, thread_name_prefix="goqueue-worker")
        self.runs = Runs(rng.getrandbits(64))
        self.clocks = PeerClocks(self.clock.wall_ms, lambda: self.cluster.nodes)
        self.flusher = Flusher(
            store,
            self.metrics,
            checkpoint_interval_s=config.storage.checkpoint_interval_ms / 1000,
            on_failure=on_failure,
            on_loop=config.embedded,
        )
        self.peer_certificates = peer_certificates(config, self.metrics)
        self.budgets = Budgets()
        self.link = peer_link(config, self.me, self.peer_certificates, self, self.budgets)
        levels.on_known = partial(level_known, levels, self.link, on_outdated)
        self.space = SpaceWatch(store, self.metrics)
        environment = Environment(
            self.me,
            self.link,
            LoopScheduler(asyncio.get_running_loop(), clock.now_s),
            self.rng,
            self.clock.wall_ms,
            raft_config(config),
            rests=partial(levels.speaks, Feature.RESTING_GROUPS),
            peers_clock_offset_ms=self.clocks.offset_ms,
        )
        self.raft = RaftHost(environment, store)
        self.storage = StorageParts(store, self.flusher, self.link, self.raft, self.metrics)
        self.disks = Disks(
            self.me.node, store, self.flusher, self.space, self.link.connected, self.metrics
        )

    # what the link tells

    def hello(self) -> dict[str, Any]:
        wall_ms = self.clock.wall_ms()
        own = {FINISHED_LEVEL: self.levels.known, RUN: self.runs.own}
        return {**self.membership.hello(), **self.status.hello(), **own, WALL_MS: wall_ms}

    def frame(self, node: NodeId, partition_id: PartitionId, frame: memoryview) -> None:
        self.membership.frame(node, partition_id, frame)

    def told(self, node: NodeId, hello: dict[str, Any]) -> None:
        self.clocks.told(node, hello)
        self.runs.told(node, hello)
        self.cluster.level_told(hello)
        self.status.heard(node, self.clock.wall_ms())
        self.membership.peer_told(node, hello)

    def down(self, node: NodeId) -> None:
        self.clocks.gone(node)
        self.membership.peer_down(node)


class _Groups:
    """The Raft groups of a node and the way to their leaders."""

    def __init__(self, base: _Base) -> None:
        config, node = base.config, base.me.node
        self.cluster = cluster = ClusterHost(
            base.me,
            on_change=self._changed,
            configured=map(NodeId, config.members),
            levels=base.levels,
        )
        base.cluster = cluster
        settings = PartitionSettings(
            config.limits.partition_pending_bytes,
            config.limits.entry_bytes,
            config.limits.read_waiters,
            config.timelines.enabled,
        )
        parts = NodeParts(
            node,
            ByteBudget(config.limits.node_pending_bytes),
            base.metrics,
            base.workers,
            base.disks.lack_room,
            base.disks.least_room,
            base.disks.are_stuck,
            lambda: base.store.backpressure,
            lambda id, leader: self.forwarder.leader_changed(id, leader),
            BatchCache(BATCHES_BYTES),
            cluster.has_directory,
            base.levels,
        )
        self.replicas = Replicas(
            base.me,
            store=base.store,
            raft=base.raft,
            make=partition_hosts(settings, parts),
            pending_bytes=lambda: parts.budget.used,
        )
        base.raft.on_roused = self.replicas.roused
        self.reconciler = Reconciler(cluster, self.replicas)
        self.topology = Topology(
            node,
            state=lambda: cluster.state,
            cluster_voters=lambda: tuple(cluster.voters),
            cluster_group=lambda: cluster.raft_group,
            find=self.replicas.find,
            is_present=cluster.is_present,
        )
        self.forwarder = Forwarder(node, self.topology, base.link, base.rng, base.metrics)
        cluster.use(self.forwarder, base.link)
        cluster.are_stuck = base.disks.are_stuck
        self.maintenance = Maintenance(
            node,
            config=config,
            cluster=cluster,
            replicas=self.replicas,
            flusher=base.flusher,
            metrics=base.metrics,
            should_lead=base.disks.should_lead,
        )
        base.raft.on_snapshot_due = self.maintenance.snapshot_due
        base.raft.on_configured = self._configured
        base.raft.copies_to_learners = lambda raft_group: is_copied(base.store, raft_group.id)
        self.healer = self._healer(base)
        self.copies = self._copies(base)
        self.repair = self._repair(base)
        self.partitions = PartitionService(node, self.replicas, base.link)
        moving = self._moving_partitions(base)
        self.moves = self._moves(base, moving)
        self.orphans = OrphanReplicas(base.me, self.replicas, lambda: cluster.state, moving.ask)
        self._base = base

    def _copies(self, base: _Base) -> Copies:
        """What copies whole replicas to and from here."""
        return Copies(
            base.storage,
            self,
            rng=base.rng,
            bytes_per_s=base.config.raft.copy_bytes_per_s,
            bound_bytes_s=lambda id: self.cluster.state.layout.throttle_bytes_s(id),
            room_bytes=lambda: base.space.room_bytes,
            prepare=self.maintenance.snapshot,
            renew=lambda id: self.repair.renew_snapshot(id),
        )

    def _healer(self, base: _Base) -> Healer:
        """What brings damaged entries back."""
        return Healer(
            base.store,
            base.flusher,
            base.link,
            on_damaged=lambda id: self.repair.give_way(id),
            on_healed=self._healed,
            on_hopeless=lambda id: self.repair.copy(id),
        )

    def _repair(self, base: _Base) -> Repair:
        """What finds damage, and makes good more than entries."""
        return Repair(
            base.me,
            base.storage,
            self.cluster,
            self.replicas,
            self.copies.transfers,
            base.config.storage,
            base.clock.wall_ms,
        )

    def _moving_partitions(self, base: _Base) -> MovingPartitions:
        """What changes the replicas of partitions, and tells how they are."""
        return MovingPartitions(
            self.cluster,
            self.partitions,
            self.forwarder,
            base.link,
            base.metrics,
            base.me,
            self.copies.source.left_bytes,
        )

    def _moves(self, base: _Base, moving: MovingPartitions) -> ReplicaMoves:
        """What moves replicas where the cluster's state wants them."""
        looks = self.replicas.looks()
        return ReplicaMoves(self.cluster, moving, looks, self.forwarder, base.link, base.metrics)

    def _changed(self) -> None:
        """The cluster's state is another one."""
        self.reconciler.changed()
        self.moves.changed()
        self._base.membership.cluster_changed()

    def _configured(self, raft_group: RaftGroup) -> None:
        """Other replicas take part in a group, or it is certain now that they do."""
        self.moves.configured()

    # what a copy of a whole replica asks for

    def hold(self, partition_id: PartitionId) -> bool:
        if partition_id != CLUSTER_GROUP:
            return self.replicas.hold(partition_id)
        self._base.membership.hold()
        return True

    def release(self, partition_id: PartitionId) -> None:
        if partition_id == CLUSTER_GROUP:
            self._base.membership.release()
            return
        self.replicas.release(partition_id)
        self._healed(partition_id)

    def sources(self, partition_id: PartitionId) -> list[NodeId]:
        """Who votes in the group, as far as is known; its leader first. Where the cluster group
        has nothing here to begin from, anybody may know it."""
        host = self.replicas.find(partition_id)
        leader = None if host is None else host.raft_group.leader
        others = {*self.topology.replicas(partition_id), *([leader] if leader else [])}
        if partition_id == CLUSTER_GROUP and not others:
            others = set(self._base.link.connected())
        others.discard(self._base.me.node)
        return sorted(others, key=lambda node: (node != leader, node))

    def _healed(self, id: PartitionId) -> None:
        if id == CLUSTER_GROUP:
            self._base.membership.healed()
        self.replicas.healed(id)
        self.reconciler.changed()


def assemble(
    config: NodeConfig,
    store: Store,
    *,
    on_failure: Callable[[Exception], None],
    begin_anew: Callable[[], None] = lambda: None,
    levels: Levels | None = None,
    on_outdated: Callable[[], None] = lambda: None,
    clock: Clock | None = None,
    rng: random.Random | None = None,
) -> NodeAssembly:
    """Wire a node over its open store, on the running loop; nothing is started yet."""
    clock, rng, levels = clock or SystemClock(), rng or system_random(), levels or Levels()
    base = _Base(config, store, on_failure, levels, on_outdated, clock, rng)
    groups = _Groups(base)
    cluster, replicas, node = groups.cluster, groups.replicas, base.me.node
    lag = LoopLag(base.metrics, base.flusher.pace.ticked)
    base.status = status = _status(base, groups, lag)
    base.membership = _membership(base, cluster)
    base.raft.on_failed = status.replica_failed
    finder, background_tasks = TopicFinder(cluster), node_tasks()
    queue_base = _queue_base(base, groups, finder, background_tasks)
    parts = queue_parts(queue_base)
    for_groups = group_services(queue_base, parts)
    progress, snapshot = groups.moves.ask_progress, groups.maintenance.snapshot
    own = BrokerBase(config, status, base.flusher, groups.repair.scrub, progress, snapshot)
    broker = broker_of(own, queue_base, parts, for_groups.signs)
    spans = spans_of(config)
    ports = ports_of(config, cluster, broker, base.metrics, base.rng, base.clock.wall_ms)
    clients = client_ports(config, broker, base.metrics, spans, ports, base.budgets)
    figures, pod = _figures(base, groups, clients, parts), _pod(base, groups, broker, begin_anew)
    runner = ScheduleRunner(cluster, broker.records)
    timed = TimedParts(replicas, for_groups.sessions, runner, base.flusher)
    services = ServiceStack(
        [
            ("store", StoreService(store, base.workers, base.flusher)),
            ("flusher", base.flusher),
            ("loop_lag", lag),
            ("space", base.space),
            ("raft", RaftService(base.raft)),
            *([("peer_certificates", peer)] if (peer := base.peer_certificates) else []),
            ("link", base.link),
            ("replicas", groups.reconciler),
            ("healer", groups.healer),
            ("cluster", base.membership),
            ("cluster_members", ClusterMembers(cluster, base.clock.now_s)),
            ("copies", groups.copies),
            ("repair", groups.repair),
            ("upkeep", groups.maintenance),
            *indexers(replicas.looks, enabled=base.config.timelines.enabled),
            ("yielding", LeadershipShedder(node, base.disks, groups.maintenance.led)),
            ("errands", background_tasks),
            ("replica_moves", groups.moves),
            ("strays", groups.orphans),
            ("group_sessions", for_groups.sessions),
            ("group_signs", for_groups.signs),
            ("redrives", RedriveRunner(cluster, parts.source)),
            ("schedules", runner),
            *cluster_maintenance(config, cluster, broker),
            ("figures", figures),
            *([("spans", spans)] if spans else []),
            *([("pod", pod)] if pod else []),
            *stream_services(queue_base, broker),
            *ports.services,
            *clients.services,
        ],
        stop_timeout_s=STOP_PART_S,
    )
    of_its_own = (services, clients.front, clients.listeners, groups.maintenance, status, broker)
    return NodeAssembly(*of_its_own, base.raft, base.link, base.metrics, timed)


def _membership(base: _Base, cluster: ClusterHost) -> BrokerMembership:
    config, store, raft = base.config, base.store, base.raft
    return BrokerMembership(
        base.me, config=config, store=store, raft=raft, cluster=cluster, link=base.link
    )


def _pod(
    base: _Base, groups: _Groups, broker: NodeBroker, begin_anew: Callable[[], None]
) -> Pod | None:
    parts = PodParts(
        groups.cluster,
        groups.replicas,
        base.status,
        groups.maintenance,
        broker.placement,
        base.membership,
        base.metrics,
        begin_anew,
    )
    return pod_of(base.config, parts)


def _figures(base: _Base, groups: _Groups, clients: ClientPorts, parts: QueueParts) -> NodeFigures:
    node, status, metrics, taking_part = base.me.node, base.status, base.metrics, parts.taking_part
    is_short = status.in_sync.is_under_replicated
    return NodeFigures(
        ClusterFigures(node, groups.cluster, groups.replicas, groups.topology, base.store, metrics),
        ReplicaFigures(node, groups.replicas, metrics, is_short, taking_part.groups_in),
        link=base.link,
        front=clients.front,
        status=status,
        clock_offset_ms=base.clocks.offset_ms,
        taking_part=taking_part,
        metrics=metrics,
    )


def _status(base: _Base, groups: _Groups, lag: LoopLag) -> NodeStatus:
    status = NodeStatus(
        config=base.config,
        store=base.store,
        cluster=groups.cluster,
        replicas=groups.replicas,
        topology=groups.topology,
        lag=lag,
        space=base.space,
        disks=base.disks,
    )
    status.diverged = groups.repair.comparison.diverged
    return status


def _queue_base(
    base: _Base, groups: _Groups, finder: TopicFinder, background_tasks: TaskSet
) -> QueueBase:
    return QueueBase(
        base.me.node,
        cluster=groups.cluster,
        replicas=groups.replicas,
        partitions=groups.partitions,
        forwarder=groups.forwarder,
        topology=groups.topology,
        link=base.link,
        background_tasks=background_tasks,
        finder=finder,
        # of its own: elections and links draw as the machine's time has it
        rng=random.Random(base.rng.getrandbits(64)),
        metrics=base.metrics,
        wall_ms=base.clock.wall_ms,
        group_defaults=base.config.queue_defaults.group_settings(),
        runs=base.runs,
    )
