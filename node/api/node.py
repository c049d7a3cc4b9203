"""What the HTTP front asks of the node about itself and its cluster: `Node`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from node.api.rules.rule import free, scoped
from node.api.rules.scope import Scope


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


def _stats(scope: Scope, method: Callable[[], StatsView]) -> Any:
    return lambda: _covered(scope, method())


def _confirmed_stats(scope: Scope, method: Callable[[], Awaitable[StatsView]]) -> Any:
    async def seen() -> StatsView:
        return _covered(scope, await method())

    return seen


def _covered(scope: Scope, view: StatsView) -> StatsView:
    mine = {name: one for name, one in view.topics.items() if scope.principal.covers(name)}
    extra = view.extra if scope.principal.is_everywhere else dict[str, object]()
    return replace(view, topics=mine, extra=extra)


def _cluster_view(scope: Scope, method: Callable[[], ClusterView]) -> Any:
    """Its problems name partitions, its warnings say how the node could be attacked."""

    def seen() -> ClusterView:
        view = method()
        if scope.principal.is_everywhere:
            return view
        return replace(view, problems=(), warnings=())

    return seen


class Node(Protocol):
    """The node that is asked, and the cluster as it sees it."""

    @property
    @scoped(free)
    def node_id(self) -> str: ...

    @property
    @scoped(free)
    def is_drained(self) -> bool:
        """Whether what this node holds goes to others, or has gone: clients are better there."""
        ...

    @property
    @scoped(free)
    def uptime_s(self) -> float: ...

    @scoped(_cluster_view)
    def cluster_view(self) -> ClusterView: ...

    @scoped(_stats)
    def stats(self) -> StatsView:
        """Of this node's replicas, as far as they have applied."""
        ...

    @scoped(_confirmed_stats)
    async def confirmed_stats(self) -> StatsView:
        """As `stats`, with messages as the partitions' leaders count them now; what they don't
        tell in time is `stale`."""
        ...

    @scoped(free)
    def alive(self) -> str | None:
        """None, or why this process should be restarted (its log failed)."""
        ...

    @scoped(free)
    def ready(self) -> Readiness: ...
