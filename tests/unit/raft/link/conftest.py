"""Meshes on loopback that write down what they are told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import uvloop

from goqueue.wire.types import Incarnation, NodeId, PartitionId, TopicId
from log.levels import Levels
from raft.link import Address, Endpoint, LinkEvents, LinkLimits, PeerMesh, PeerTls
from raft.link.charge import Charge, free
from tests.ports import free_ports

SECRET = b"a cluster secret of the tests"
GROUP = PartitionId(TopicId(7, 9), 3)
QUICK = LinkLimits(
    status_interval_s=0.05, silence_s=2.0, handshake_s=2.0, redial_first_s=0.01, redial_max_s=0.05
)
"""Quick to dial. Silence and handshakes are longer than a busy machine makes anybody wait."""


async def eventually(condition: Callable[[], bool], deadline_s: float = 30.0) -> None:
    """Wait until the condition holds; fail when it does not in time."""
    async with asyncio.timeout(deadline_s):
        while not condition():  # noqa: ASYNC110 - the condition is any state at all
            await asyncio.sleep(0.005)


@dataclass
class Node:
    """One mesh and its diary."""

    id: NodeId
    mesh: PeerMesh = field(init=False)
    frames: list[tuple[NodeId, PartitionId, bytes]] = field(default_factory=list)
    events: list[tuple[str, NodeId]] = field(default_factory=list)
    statuses: list[tuple[NodeId, dict[str, Any]]] = field(default_factory=list)
    hello: dict[str, Any] = field(default_factory=dict)

    @property
    def ups(self) -> int:
        return sum(kind == "up" for kind, _ in self.events)

    def is_up(self, *others: Node) -> bool:
        return all(other.id in self.mesh.connected() for other in others)


class Cluster:
    """Makes nodes that know each other's addresses."""

    def __init__(self) -> None:
        self.addresses: dict[NodeId, Address] = {}
        self.nodes: list[Node] = []

    def node(
        self,
        name: str,
        *,
        secret: bytes = SECRET,
        limits: LinkLimits = QUICK,
        tls: PeerTls | None = None,
        incarnation: int = 1,
        host: str = "127.0.0.1",
        peers: dict[NodeId, Address] | None = None,
        levels: Levels | None = None,
        charge: Charge = free,
    ) -> Node:
        id = NodeId(name)
        if id not in self.addresses:
            self.addresses[id] = (host, free_ports(1)[0])
        node = Node(id)
        address = self.addresses[id]
        node.mesh = PeerMesh(
            Endpoint(id, Incarnation(incarnation), address, secret, tls, levels or Levels()),
            self.addresses if peers is None else peers,
            LinkEvents(
                hello=lambda: {"name": name, **node.hello},
                on_frame=lambda peer, partition_id, frame: node.frames.append(
                    (peer, partition_id, bytes(frame))
                ),
                on_up=lambda peer, _hello: node.events.append(("up", peer)),
                on_down=lambda peer: node.events.append(("down", peer)),
                on_status=lambda peer, status: node.statuses.append((peer, status)),
            ),
            limits=limits,
            charge=charge,
        )
        self.nodes.append(node)
        return node

    def reserve(self, *names: str) -> None:
        for name in names:
            self.addresses[NodeId(name)] = ("127.0.0.1", free_ports(1)[0])

    async def started(self, *names: str, **options: Any) -> list[Node]:
        self.reserve(*names)
        nodes = [self.node(name, **options) for name in names]
        for node in nodes:
            await node.mesh.start()
        for node in nodes:
            others = [other for other in nodes if other is not node]
            await eventually(lambda node=node, others=others: node.is_up(*others))
        return nodes


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The loop that nodes run on; for the mesh asyncio's too: they treat dead sockets apart."""
    uv = {"uvloop": uvloop.new_event_loop}
    return uv | {"asyncio": asyncio.new_event_loop} if item.path.stem == "test_mesh" else uv


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    made = Cluster()
    yield made
    for node in made.nodes:
        await node.mesh.stop()
