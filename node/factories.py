"""What a node is to the outside, made from its configuration: a voter, a front, spans."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol
from urllib.parse import urlsplit

from goqueue.wire.errors import OverBudget
from goqueue.wire.types import CLUSTER_GROUP, NodeId, PartitionId, Voter
from log.levels import Levels
from log.store.directory import Store
from node.api.auth.hosts import is_loopback
from node.broker.node import NodeBroker
from node.broker.upgrade import LevelFinisher
from node.cluster.host import ClusterHost
from node.config.auth import AuthConfig
from node.config.node import NodeConfig
from node.http.auth.addresses import Addresses
from node.http.auth.authenticator import Authenticator
from node.http.auth.csrf_guard import CsrfGuard
from node.http.auth.failures import Failures
from node.http.budget.limits import HttpLimits
from node.http.budget.memory import Budget, Budgets, Kind, Owner
from node.http.server.app import Entrance, HttpFront, Observers
from node.metrics import Metrics
from node.observe.otel import OtelExport
from node.open_files import allowed, within
from node.peers.link import NoPeers, PeerLink
from node.queue.receipt_keys import ReceiptKeyRotation
from node.runtime.service import Service
from node.runtime.version import VERSION
from node.security.audit import AuditLog
from node.security.auth_service import AuthService
from node.security.certificates import (
    Certificates,
    PeerCertificates,
    h2_context,
    server_context,
)
from raft.config import RaftConfig
from raft.configuration import stored_configuration
from raft.link import Endpoint, LinkEvents, LinkLimits, PeerMesh, PeerTls

LOCAL_CONNECTIONS_MAX = 512
"""Of other processes to an embedded node, beside what else its host has open."""


def own_voter(config: NodeConfig, store: Store) -> Voter:
    """This node as a voter: with its data directory's incarnation.

    A cluster of one goes on as the voter it was, also after damage gave the directory a new
    incarnation: there is nobody who could be misled by what it has forgotten. With
    `storage.acceptLoss` it then serves what is left, instead of waiting for repair by a replica.
    """
    node = NodeId(config.node_id)
    if config.others or not store.has_log(CLUSTER_GROUP):
        return Voter(node, store.incarnation)
    stored = stored_configuration(store.partition_log(CLUSTER_GROUP))
    if [member.node for member in stored.members] != [node]:
        return Voter(node, store.incarnation)
    if config.storage.accept_loss:
        for partition_id in store.partition_ids():
            store.partition_log(partition_id).lift_quarantine()
    return stored.members[0]


class OnLink(Protocol):
    """What the link to other nodes tells, and whom it asks what to tell them."""

    levels: Levels

    def hello(self) -> dict[str, Any]: ...

    def frame(self, node: NodeId, partition_id: PartitionId, frame: memoryview) -> None: ...

    def told(self, node: NodeId, hello: dict[str, Any]) -> None: ...

    def down(self, node: NodeId) -> None: ...


def peer_link(
    config: NodeConfig,
    me: Voter,
    certificates: PeerCertificates | None,
    told: OnLink,
    budgets: Budgets,
) -> PeerLink:
    """The link to other nodes, or of a node that takes none."""
    if not config.takes_peers:
        return NoPeers()
    return PeerMesh(
        Endpoint(
            me.node,
            me.incarnation,
            config.cluster.listen,
            config.cluster.secret.encode(),
            certificates,
            told.levels,
        ),
        {NodeId(name): address for name, address in config.others.items()},
        LinkEvents(told.hello, told.frame, told.told, told.down, told.told),
        limits=LinkLimits(admit_unlisted=True),
        charge=partial(charge_link, budgets[Kind.LINKS]),
    )


def charge_link(budget: Budget, node: NodeId, size: int) -> Callable[[], None] | None:
    """To a peer, which has one link."""
    try:
        return budget.hold(Owner(f"node {node}", node), size).release
    except OverBudget:
        return None


def level_known(levels: Levels, link: PeerLink, on_outdated: Callable[[], None]) -> None:
    """A higher finished level is known here than before: peers are told, or cut."""
    link.tell_levels()
    if levels.problem:
        on_outdated()


def cluster_maintenance(
    config: NodeConfig, cluster: ClusterHost, broker: NodeBroker
) -> list[tuple[str, Service]]:
    """What makes keys for receipts, and finishes feature levels unasked, where that is wanted."""
    maintenance: list[tuple[str, Service]] = [("receipt_keys", ReceiptKeyRotation(cluster))]
    if not config.cluster.auto_finish:
        return maintenance
    levels = cluster.levels

    def is_due() -> bool:
        return levels.finished < levels.highest and cluster.led_time_ms() is not None

    return [*maintenance, ("level_finisher", LevelFinisher(is_due, broker.upgrade))]


def raft_config(config: NodeConfig) -> RaftConfig:
    return RaftConfig(
        heartbeat_s=config.raft.heartbeat_ms / 1000,
        election_min_s=config.raft.election_min_ms / 1000,
        election_max_s=config.raft.election_max_ms / 1000,
        quorum_s=config.raft.election_min_ms / 1000,
        snapshot_entries=config.storage.snapshot_entries,
        relaxed_alone=config.embedded,
    )


def spans_of(config: NodeConfig) -> OtelExport | None:
    otlp = config.tracing.otlp
    if not otlp.enabled:
        return None
    return OtelExport(
        otlp.endpoint,
        node=config.node_id,
        version=VERSION.version,
        service_name=otlp.service_name,
        headers=otlp.headers,
        flush_s=otlp.flush_ms / 1000,
    )


def client_certificates(config: NodeConfig, metrics: Metrics) -> Certificates | None:
    """Of the ports for clients: of HTTP and others, and of HTTP/2; None where they are plain."""
    tls = config.http.tls
    if not tls.enabled:
        return None
    files = (tls.cert_file, tls.key_file, tls.ca_file)
    builds = (lambda: server_context(*files), lambda: h2_context(*files))
    return Certificates("client", files, builds, metrics)


def peer_certificates(config: NodeConfig, metrics: Metrics) -> PeerCertificates | None:
    """Of the peer link; None where the secret alone proves who a peer is."""
    tls = config.cluster.tls
    if not (tls.enabled and config.takes_peers):
        return None
    return PeerCertificates(PeerTls(tls.cert_file, tls.key_file, tls.ca_file), metrics)


@dataclass(frozen=True, slots=True)
class PortServices:
    """What stands before the port for clients."""

    certificates: Certificates | None
    auth_service: AuthService
    audit: AuditLog | None

    @property
    def services(self) -> list[tuple[str, Service]]:
        found: list[tuple[str, Service | None]] = [
            ("door", self.auth_service),
            ("audit", self.audit),
            ("client_certificates", self.certificates),
        ]
        return [(name, service) for name, service in found if service is not None]


def ports_of(
    config: NodeConfig,
    cluster: ClusterHost,
    broker: NodeBroker,
    metrics: Metrics,
    rng: random.Random,
    wall_ms: Callable[[], int],
) -> PortServices:
    secret = config.cluster.secret.encode()
    auth_service = AuthService(config.auth, cluster, wall_ms, rng, metrics.doors, secret)
    audit = None
    if config.audit.is_kept(has_keys=config.auth.enabled):
        audit = AuditLog(
            config.node_id,
            config.audit,
            cluster,
            broker.records,
            metrics.doors,
            wall_ms,
            has_keys=config.auth.enabled,
        )
    return PortServices(client_certificates(config, metrics), auth_service, audit)


def front_of(
    config: NodeConfig,
    broker: NodeBroker,
    metrics: Metrics,
    spans: OtelExport | None,
    ports: PortServices,
    budgets: Budgets,
) -> HttpFront:
    http = config.http
    limits = HttpLimits(
        body_bytes_max=http.body_bytes_max,
        header_deadline_s=http.slow_sender_ms / 1000 * 0.8,
        body_grace_s=http.slow_sender_ms / 1000 * 0.8,
        append_deadline_s=http.request_timeout_ms / 1000,
        long_poll_s_max=http.long_poll_max_ms / 1000,
        stream_silence_s=http.stream_silence_ms / 1000,
    )
    if config.embedded:
        limits = replace(
            limits,
            connections_max=LOCAL_CONNECTIONS_MAX,
            keeps_known=False,
            quick_handover=False,
        )
    return HttpFront(
        broker,
        host=http.host,
        port=None if config.embedded else http.port,
        entrance=Entrance(
            ports.certificates.contexts[0] if ports.certificates else None,
            guard_of(config),
            gate_of(config.auth, ports.auth_service),
            ports.auth_service.key_admin,
        ),
        limits=within(limits, allowed()),
        budgets=budgets,
        observers=Observers(metrics, spans, ports.audit),
        console=http.console,
    )


def gate_of(config: AuthConfig, auth_service: AuthService) -> Authenticator:
    """Everybody passes it where no keys are asked for."""
    return Authenticator(
        auth_service.checks if config.enabled else None,
        metrics_anonymous=config.metrics_anonymous,
        failures=Failures(time.monotonic),
        addresses=Addresses(config.trusted_proxies),
        sessions=auth_service.sessions if config.enabled else None,
        browser_tokens=auth_service.browser_tokens if config.enabled else None,
    )


def guard_of(config: NodeConfig) -> CsrfGuard:
    """Names are judged where only this machine is served, and nobody proves who they are."""
    http = config.http
    advertised = urlsplit(config.http_url).hostname or ""
    judged = is_loopback(http.host)
    return CsrfGuard(
        (*http.hosts, advertised) if judged else None,
        http.cors_origins,
        needs_certificate=http.tls.enabled and bool(http.tls.ca_file),
        hsts_s=http.hsts_ms // 1000,
    )
