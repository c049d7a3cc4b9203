"""A node's configuration: frozen dataclasses, one a part; every field says unit and reason.

Built once by `node.config.file.load_config` from a YAML file, the environment and flags. Nothing
below reads the environment.
"""

# ruff: noqa: RUF009 - `option` is `dataclasses.field` with a description

from __future__ import annotations

from dataclasses import dataclass, field

from node.config.accepted import GrpcConfig
from node.config.audit import AuditConfig
from node.config.auth import AuthConfig
from node.config.engine import LimitsConfig, RaftOptions, StorageOptions, TopicDefaults
from node.config.kubernetes import KubernetesConfig
from node.config.listeners import ListenersConfig
from node.config.option import (
    Address,
    address,
    duration_ms,
    flag,
    labels,
    names,
    node_name,
    option,
    origins,
    peers,
    size_bytes,
    text,
)
from node.config.otlp import TracingConfig
from node.config.queue import QueueDefaults

MIB = 1 << 20
LOOPBACK = "127.0.0.1"
ANYWHERE = ("0.0.0.0", "::")


@dataclass(frozen=True, slots=True)
class TlsConfig:
    """Certificates of the HTTP listener."""

    enabled: bool = option(False, key="tls.enabled", parse=flag, why="a laptop has no certificates")
    cert_file: str = option("", key="tls.certFile", parse=text, why="PEM chain of this node")
    key_file: str = option("", key="tls.keyFile", parse=text, why="PEM key of this node")
    ca_file: str = option(
        "",
        key="tls.caFile",
        parse=text,
        why="PEM authorities; when set, clients need certificates, but for probes",
    )


@dataclass(frozen=True, slots=True)
class ClusterTlsConfig:
    """Certificates of the peer link: mutual TLS when enabled, else the secret's challenge."""

    enabled: bool = option(
        False, key="cluster.tls.enabled", parse=flag, why="the secret alone authenticates peers"
    )
    cert_file: str = option(
        "", key="cluster.tls.certFile", parse=text, why="PEM chain, for both directions"
    )
    key_file: str = option("", key="cluster.tls.keyFile", parse=text, why="PEM key of this node")
    ca_file: str = option(
        "", key="cluster.tls.caFile", parse=text, why="PEM authorities that peers must be signed by"
    )


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """Who this node is and where its data lives."""

    node_id: str = option(
        "node-1",
        key="broker.nodeId",
        env="GOQUEUE_BROKER_NODEID",
        parse=node_name,
        why="the name by which replicas know this node; never reuse one for another machine",
    )
    data_dir: str = option(
        "./data",
        key="broker.dataDir",
        env="GOQUEUE_BROKER_DATADIR",
        parse=text,
        why="created when missing; locked by one process",
    )
    zone: str = option(
        "", key="broker.zone", parse=text, why="replicas of a partition are spread over zones"
    )
    labels: dict[str, str] = option(
        {}, key="broker.labels", parse=labels, why="shown with the node; they decide nothing yet"
    )
    auto_create_topics: bool = option(
        False,
        key="broker.autoCreateTopics",
        parse=flag,
        why="a mistyped topic should be an error in production; `dev` turns it on",
    )


@dataclass(frozen=True, slots=True)
class HttpConfig:
    """The HTTP listener."""

    listen: Address = option(
        (LOOPBACK, 8080),
        key="broker.listeners.http",
        env="GOQUEUE_LISTENERS_HTTP",
        parse=address,
        why="loopback until told otherwise: who listens beyond it should ask for API keys",
    )
    body_bytes_max: int = option(
        16 * MIB,
        key="limits.bodyBytes",
        parse=size_bytes,
        unit="bytes",
        low=1024,
        high=24 * MIB,
        why="a larger body is 413; bounds one request's memory, and fits the peer link's 32 MiB",
    )
    slow_sender_ms: int = option(
        10_000,
        key="limits.slowSender",
        parse=duration_ms,
        unit="ms",
        low=100,
        why="a request whose head or body dribbles longer is cut",
    )
    request_timeout_ms: int = option(
        15_000,
        key="limits.requestTimeout",
        parse=duration_ms,
        unit="ms",
        low=100,
        why="below the 30 s most HTTP clients wait, above two elections",
    )
    long_poll_max_ms: int = option(
        60_000,
        key="limits.longPoll",
        parse=duration_ms,
        unit="ms",
        low=0,
        why="GoQueue's longest poll",
    )
    stream_silence_ms: int = option(
        10_000,
        key="limits.streamSilence",
        parse=duration_ms,
        unit="ms",
        low=2_000,
        why="a stream's client of which nothing is heard for so long is lost, and what it has in"
        " flight goes to others; it is pinged after half of it. A WebSocket that has nothing and"
        " is no member's has four times as long for both",
    )
    console: bool = option(
        True,
        key="http.console",
        parse=flag,
        why="pages at /ui that show what the API tells anyway; only dead letters can be changed"
        " there, and only from this machine",
    )
    cors_origins: list[str] = option(
        [],
        key="http.corsOrigins",
        parse=origins,
        why="none: pages of other sites may not use the API. https://tools.example.com, or *",
    )
    hosts: list[str] = option(
        [],
        key="http.hosts",
        parse=names,
        why="names of this node beside loopback's, where it listens on loopback only: any other is"
        " 403, so that no page elsewhere passes for one of this machine",
    )
    hsts_ms: int = option(
        180 * 86_400_000,
        key="http.hstsMaxAge",
        parse=duration_ms,
        unit="ms",
        low=0,
        why="browsers that came by TLS come by nothing else for so long, to any port of this name"
        " (HSTS); 0 where another port of the name serves plain HTTP to browsers",
    )
    tls: TlsConfig = field(default_factory=TlsConfig)

    @property
    def host(self) -> str:
        return self.listen[0]

    @property
    def port(self) -> int:
        return self.listen[1]


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    """The other nodes and the link to them."""

    peers: dict[str, Address] = option(
        {},
        key="cluster.peers",
        parse=peers,
        why="whom to ask for the cluster: its founders' list names all founders, that of a node"
        " that joins any of its nodes. Empty: a cluster of its own, which others may join. May"
        " name this node",
    )
    listen: Address = option(
        (LOOPBACK, 7000),
        key="broker.listeners.internal",
        env="GOQUEUE_LISTENERS_INTERNAL",
        parse=address,
        why="the port peers dial; opened only with peers, a secret or cluster TLS",
    )
    advertise: str = option(
        "",
        key="cluster.advertise",
        parse=text,
        why="host:port that peers dial; empty: what this node's own list says, or the listener",
    )
    client_advertise: str = option(
        "",
        key="cluster.clientAdvertise",
        parse=text,
        why="URL that clients use; empty: made from the HTTP listener",
    )
    secret: str = option(
        "",
        key="cluster.secret",
        parse=text,
        why="proves membership by challenge; never sent. Needed with peers unless TLS is on",
    )
    secret_file: str = option(
        "", key="cluster.secretFile", parse=text, why="the secret from a file, as pods mount it"
    )
    auto_finish: bool = option(
        False,
        key="cluster.autoFinish",
        parse=flag,
        why="finish a new feature level as soon as all brokers speak it: then there is no way back"
        " to the version before, so it is left to `goqueue-cli cluster upgrade`; `dev` turns it on",
    )
    tls: ClusterTlsConfig = field(default_factory=ClusterTlsConfig)

    @property
    def host(self) -> str:
        return self.listen[0]

    @property
    def port(self) -> int:
        return self.listen[1]


@dataclass(frozen=True, slots=True)
class TimelinesConfig:
    """What a node does for the timelines of messages."""

    enabled: bool = option(
        True,
        key="timelines.enabled",
        parse=flag,
        why="false: entries are not indexed, and a timeline that is asked for is 409 timeline_off",
    )


@dataclass(frozen=True, slots=True)
class LoggingConfig:
    """Where a node's words go: standard error."""

    level: str = option(
        "info",
        key="logging.level",
        parse=text,
        choices=("debug", "info", "warning", "error"),
        why="a day at info is under a hundred lines",
    )
    format: str = option(
        "auto",
        key="logging.format",
        parse=text,
        choices=("auto", "json", "human"),
        why="auto: human on a terminal, JSON elsewhere",
    )


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """Everything one node process is told. `warnings` are for the log, at start."""

    broker: BrokerConfig = field(default_factory=BrokerConfig)
    http: HttpConfig = field(default_factory=HttpConfig)
    cluster: ClusterConfig = field(default_factory=ClusterConfig)
    topic_defaults: TopicDefaults = field(default_factory=TopicDefaults)
    queue_defaults: QueueDefaults = field(default_factory=QueueDefaults)
    storage: StorageOptions = field(default_factory=StorageOptions)
    raft: RaftOptions = field(default_factory=RaftOptions)
    limits: LimitsConfig = field(default_factory=LimitsConfig)
    logging: LoggingConfig = field(default_factory=LoggingConfig)
    timelines: TimelinesConfig = field(default_factory=TimelinesConfig)
    tracing: TracingConfig = field(default_factory=TracingConfig)
    kubernetes: KubernetesConfig = field(default_factory=KubernetesConfig)
    grpc: GrpcConfig = field(default_factory=GrpcConfig)
    listeners: ListenersConfig = field(default_factory=ListenersConfig)
    auth: AuthConfig = field(default_factory=AuthConfig)
    audit: AuditConfig = field(default_factory=AuditConfig)
    warnings: tuple[str, ...] = ()
    embedded: bool = False
    """Not an option: the node runs in a program's own process, and listens nowhere."""

    @property
    def node_id(self) -> str:
        return self.broker.node_id

    @property
    def data_dir(self) -> str:
        return self.broker.data_dir

    @property
    def others(self) -> dict[str, Address]:
        """The peers but this node."""
        return {name: at for name, at in self.cluster.peers.items() if name != self.node_id}

    @property
    def members(self) -> tuple[str, ...]:
        """Names of all configured nodes, this one included, sorted."""
        return tuple(sorted({self.node_id, *self.cluster.peers}))

    @property
    def takes_peers(self) -> bool:
        """Whether other nodes may prove themselves here: without a secret and TLS nobody can."""
        return bool(self.others or self.cluster.secret or self.cluster.tls.enabled)

    @property
    def http_url(self) -> str:
        """Where clients reach this node, as told to others."""
        if self.cluster.client_advertise:
            url = self.cluster.client_advertise
            return url if "://" in url else f"{self.http_scheme}://{url}"
        host = LOOPBACK if self.http.host in ANYWHERE else self.http.host
        return f"{self.http_scheme}://{host}:{self.http.port}"

    @property
    def peer_address(self) -> str:
        """host:port at which peers reach this node; empty where nobody can, or can know."""
        if self.cluster.advertise or not self.takes_peers:
            return self.cluster.advertise
        host, port = self.cluster.peers.get(self.node_id, self.cluster.listen)
        return "" if host in ANYWHERE else f"{host}:{port}"

    @property
    def http_scheme(self) -> str:
        return "https" if self.http.tls.enabled else "http"
