"""The cluster as this node sees it: who is in it, who leads, and whether it is well."""

from __future__ import annotations

from aiohttp import web
from msgspec import Struct

from node.api.node import ClusterView, NodeView
from node.api.times import format_time
from node.http.request.call import Call, answer


class NodeAnswer(Struct):
    id: str
    status: str
    role: str
    http_url: str
    peer_address: str
    zone: str
    version: str
    leaders: int
    replicas: int
    incarnation: str
    joined_at: str | None
    last_heartbeat: str | None
    labels: dict[str, str]
    state: str


class ClusterAnswer(Struct):
    """The cluster in short."""

    cluster_id: str
    node_id: str
    controller: str | None
    controller_epoch: int
    metadata_version: int
    has_quorum: bool
    nodes: int
    nodes_alive: int
    topics: int
    partitions: int
    under_replicated_partitions: int
    leaderless_partitions: int
    voters: list[str]


class NodesAnswer(Struct):
    nodes: list[NodeAnswer]


class ClusterHealth(Struct):
    """`healthy`, `degraded` (serves, but a further death may stop it) or `unavailable`. `warnings`
    are of the node that answers."""

    status: str
    has_quorum: bool
    nodes: dict[str, str]
    under_replicated_partitions: int
    leaderless_partitions: int
    problems: list[str]
    warnings: list[str] = []


class Address(Struct):
    host: str
    port: int


class GoQueueNode(Struct):
    id: str
    client_address: Address
    cluster_address: Address
    status: str
    role: str
    joined_at: str | None
    last_heartbeat: str | None
    version: str


class ClusterState(Struct):
    version: int
    controller_id: str
    controller_epoch: int
    nodes: dict[str, GoQueueNode]


class StateAnswer(Struct):
    cluster_state: ClusterState


async def info(call: Call) -> web.Response:
    view = call.broker.node.cluster_view()
    return answer(
        ClusterAnswer(
            cluster_id=view.cluster_id,
            node_id=view.node,
            controller=view.controller,
            controller_epoch=view.epoch,
            metadata_version=view.version,
            has_quorum=view.has_quorum,
            nodes=len(view.nodes),
            nodes_alive=sum(node.status == "alive" for node in view.nodes),
            topics=view.topics,
            partitions=view.partitions,
            under_replicated_partitions=view.under_replicated,
            leaderless_partitions=view.leaderless,
            voters=list(view.voters),
        )
    )


async def nodes(call: Call) -> web.Response:
    view = call.broker.node.cluster_view()
    return answer(NodesAnswer([_node(node, view) for node in view.nodes]))


async def health(call: Call) -> web.Response:
    """Always 200: this tells of the cluster, `/readyz` of the node that answers."""
    view = call.broker.node.cluster_view()
    return answer(
        ClusterHealth(
            health_status(view),
            view.has_quorum,
            {node.node: node.status for node in view.nodes},
            view.under_replicated,
            view.leaderless,
            list(view.problems),
            list(view.warnings),
        )
    )


def health_status(view: ClusterView) -> str:
    """See `ClusterHealth`."""
    well = not view.problems and all(node.status == "alive" for node in view.nodes)
    if not view.has_quorum or view.leaderless:
        return "unavailable"
    return "healthy" if well and not view.under_replicated else "degraded"


async def state(call: Call) -> web.Response:
    """In the shape that GoQueue's own cluster port has."""
    view = call.broker.node.cluster_view()
    nodes = {node.node: _goqueue_node(node, view) for node in view.nodes}
    state = ClusterState(view.version, view.controller or "", view.epoch, nodes)
    return answer(StateAnswer(state))


def _node(node: NodeView, view: ClusterView) -> NodeAnswer:
    return NodeAnswer(
        id=node.node,
        status=node.status,
        role="controller" if node.node == view.controller else "broker",
        http_url=node.http_url,
        peer_address=node.peer_address,
        zone=node.zone,
        version=node.version,
        leaders=node.leaders,
        replicas=node.replicas,
        incarnation=f"{node.incarnation:016x}",
        joined_at=_time(node.joined_at_ms),
        last_heartbeat=_time(node.last_heartbeat_ms),
        labels=dict(node.labels),
        state=node.state,
    )


def _goqueue_node(node: NodeView, view: ClusterView) -> GoQueueNode:
    return GoQueueNode(
        id=node.node,
        client_address=_address(node.http_url.rpartition("//")[2].rstrip("/")),
        cluster_address=_address(node.peer_address),
        status=node.status,
        role="controller" if node.node == view.controller else "follower",
        joined_at=_time(node.joined_at_ms),
        last_heartbeat=_time(node.last_heartbeat_ms),
        version=node.version,
    )


def _address(text: str) -> Address:
    host, _, port = text.rpartition(":")
    return Address(host, int(port)) if port.isdigit() else Address(text, 0)


def _time(time_ms: int) -> str | None:
    return format_time(time_ms) if time_ms else None
