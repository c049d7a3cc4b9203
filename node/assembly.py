"""The parts of one node, wired: who knows whom, and in which order they start."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from goqueue.wire.types import GroupId, NodeId, Voter
from log.store import Store
from node.append_queue import ByteBudget
from node.broker import NodeBroker
from node.clock import SystemClock, system_random
from node.cluster import ClusterHost
from node.config import NodeConfig
from node.ends import EndsCollector
from node.flusher import Flusher
from node.forwarding import Forwarder
from node.http.app import HttpFront
from node.http.limits import HttpLimits
from node.loop_lag import LoopLag
from node.membership import Membership
from node.metrics import Metrics
from node.partition import NodeParts, PartitionSettings
from node.partition_service import PartitionService
from node.peer_link import NoPeers, PeerLink
from node.reconciler import Reconciler
from node.replicas import Replicas
from node.scheduler import LoopScheduler
from node.service import ServiceStack
from node.space_watch import SpaceWatch
from node.status import NodeStatus
from node.sync import TopicSync
from node.topology import Topology
from node.upkeep import Upkeep
from raft.config import RaftConfig
from raft.host import RaftHost
from raft.link import PeerMesh, PeerTls

STOP_PART_S = 12.0
WORKERS = 2


@dataclass(frozen=True, slots=True)
class NodeAssembly:
    """A wired node; the parts that stopping in order needs by name."""

    services: ServiceStack
    front: HttpFront
    upkeep: Upkeep
    status: NodeStatus
    broker: NodeBroker


class _RaftService:
    """Stops all groups before what is beneath them stops."""

    def __init__(self, host: RaftHost) -> None:
        self._host = host

    async def start(self) -> None:
        return None

    async def stop(self) -> None:
        self._host.stop()


class _StoreService:
    """The store was opened before the loop ran; it closes with it."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def start(self) -> None:
        return None

    async def stop(self) -> None:
        await asyncio.get_running_loop().run_in_executor(None, self._store.close)


class _Wiring:
    """What peers' messages reach, bound once everything exists."""

    membership: Membership
    status: NodeStatus

    def __init__(self, clock: SystemClock) -> None:
        self._clock = clock

    def hello(self) -> dict[str, Any]:
        return {**self.membership.hello(), **self.status.hello(), "wall_ms": self._clock.wall_ms()}

    def frame(self, node: NodeId, group: GroupId, frame: memoryview) -> None:
        self.membership.frame(node, group, frame)

    def up(self, node: NodeId, hello: dict[str, Any]) -> None:
        self.status.heard(node, self._clock.wall_ms())
        self.membership.peer_told(node, hello)

    def down(self, node: NodeId) -> None:
        self.membership.peer_down(node)


def assemble(
    config: NodeConfig, store: Store, *, on_failure: Callable[[Exception], None]
) -> NodeAssembly:
    """Wire a node over its open store, on the running loop; nothing is started yet."""
    loop = asyncio.get_running_loop()
    clock, rng, metrics = SystemClock(), system_random(), Metrics()
    me = Voter(NodeId(config.node_id), store.incarnation)
    workers = ThreadPoolExecutor(WORKERS, thread_name_prefix="goqueue-worker")
    flusher = Flusher(
        store,
        metrics,
        checkpoint_interval_s=config.storage.checkpoint_interval_ms / 1000,
        on_failure=on_failure,
    )
    wiring = _Wiring(clock)
    link = _peer_link(config, me, wiring)
    raft = RaftHost(
        me.node,
        me.incarnation,
        store,
        link,
        LoopScheduler(loop),
        rng,
        clock.wall_ms,
        _raft_config(config),
    )
    space = SpaceWatch(store, metrics, link.connected, len(config.members))
    cluster = ClusterHost(me, on_change=lambda: reconciler.changed())
    replicas = Replicas(
        me,
        store=store,
        raft=raft,
        settings=PartitionSettings(
            config.limits.partition_pending_bytes,
            config.limits.entry_bytes,
            config.limits.read_waiters,
        ),
        parts=NodeParts(
            me.node,
            ByteBudget(config.limits.node_pending_bytes),
            metrics,
            workers,
            space.refuses,
            lambda: store.backpressure,
            clock.wall_ms,
        ),
    )
    reconciler = Reconciler(cluster, replicas)
    topology = Topology(
        me.node,
        state=lambda: cluster.state,
        cluster_voters=lambda: tuple(cluster.voters),
        cluster_group=lambda: cluster.group,
        find=replicas.find,
        is_present=cluster.is_present,
    )
    forwarder = Forwarder(me.node, topology, link, rng, metrics)
    cluster.use(forwarder, link)
    service = PartitionService(me.node, replicas, link)
    ends = EndsCollector(me.node, topology, service, link)
    lag = LoopLag(metrics)
    wiring.status = status = NodeStatus(
        config=config,
        store=store,
        cluster=cluster,
        replicas=replicas,
        topology=topology,
        lag=lag,
        space=space,
        metrics=metrics,
    )
    wiring.membership = membership = Membership(
        me,
        config=config,
        store=store,
        raft=raft,
        cluster=cluster,
        peer_address=lambda: config.peer_address,
    )
    upkeep = Upkeep(
        me.node,
        config=config,
        cluster=cluster,
        replicas=replicas,
        flusher=flusher,
    )
    raft.on_snapshot_due = upkeep.snapshot_due
    raft.on_failed = status.replica_failed
    broker = NodeBroker(
        config=config,
        cluster=cluster,
        replicas=replicas,
        service=service,
        forwarder=forwarder,
        ends=ends,
        sync=TopicSync(me.node, replicas, flusher, link),
        status=status,
        rng=rng,
    )
    front = _front(config, broker, metrics)
    services = ServiceStack(
        [
            ("store", _StoreService(store)),
            ("flusher", flusher),
            ("loop_lag", lag),
            ("space", space),
            ("raft", _RaftService(raft)),
            ("link", link),
            ("replicas", reconciler),
            ("cluster", membership),
            ("upkeep", upkeep),
            ("http", front),
        ],
        stop_timeout_s=STOP_PART_S,
    )
    return NodeAssembly(services, front, upkeep, status, broker)


def _peer_link(config: NodeConfig, me: Voter, wiring: _Wiring) -> PeerLink:
    if not config.others:
        return NoPeers()
    tls = config.cluster.tls
    return PeerMesh(
        node=me.node,
        incarnation=me.incarnation,
        listen=config.cluster.listen,
        peers={NodeId(name): address for name, address in config.others.items()},
        secret=config.cluster.secret.encode(),
        tls=PeerTls(tls.cert_file, tls.key_file, tls.ca_file) if tls.enabled else None,
        hello=wiring.hello,
        on_frame=wiring.frame,
        on_up=wiring.up,
        on_down=wiring.down,
        on_status=wiring.up,
    )


def _raft_config(config: NodeConfig) -> RaftConfig:
    return RaftConfig(
        heartbeat_s=config.raft.heartbeat_ms / 1000,
        election_min_s=config.raft.election_min_ms / 1000,
        election_max_s=config.raft.election_max_ms / 1000,
        quorum_s=config.raft.election_min_ms / 1000,
        snapshot_entries=config.storage.snapshot_entries,
    )


def _front(config: NodeConfig, broker: NodeBroker, metrics: Metrics) -> HttpFront:
    http = config.http
    context = None
    if http.tls.enabled:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(http.tls.cert_file, http.tls.key_file)
        if http.tls.ca_file:
            context.load_verify_locations(http.tls.ca_file)
            context.verify_mode = ssl.CERT_REQUIRED
    limits = HttpLimits(
        body_bytes_max=http.body_bytes_max,
        header_deadline_s=http.slow_sender_ms / 1000 * 0.8,
        body_grace_s=http.slow_sender_ms / 1000 * 0.8,
        append_deadline_s=http.request_timeout_ms / 1000,
        long_poll_s_max=http.long_poll_max_ms / 1000,
    )
    return HttpFront(
        broker, host=http.host, port=http.port, ssl_context=context, limits=limits, metrics=metrics
    )
