"""The link to other nodes as the node's parts use it, and the link of a node that takes none."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

from goqueue.wire.types import NodeId, PartitionId
from raft.link import Address, FailedHandshakes, LinkDown, Traffic

Handler = Callable[[NodeId, bytes], Awaitable[bytes]]


class PeerLink(Protocol):
    """What `raft.link.PeerMesh` is to a node."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    def send(
        self, node: NodeId, partition_id: PartitionId, parts: Sequence[bytes | memoryview]
    ) -> bool: ...

    def backlog_bytes(self, node: NodeId) -> int: ...

    @property
    def traffic(self) -> Mapping[NodeId, Traffic]: ...

    @property
    def failed_handshakes(self) -> FailedHandshakes: ...

    def set_peers(self, peers: dict[NodeId, Address]) -> None: ...

    def connected(self) -> Mapping[NodeId, Mapping[str, Any]]: ...

    def tell_levels(self) -> None: ...

    def handle(self, method: str, handler: Handler) -> None: ...

    async def request(
        self, node: NodeId, method: str, payload: bytes, timeout_s: float
    ) -> bytes: ...


class NoPeers:
    """The link of a node that can have no peers, as it has no secret: nobody is ever there."""

    async def start(self) -> None:
        return None

    async def stop(self) -> None:
        return None

    def send(
        self, node: NodeId, partition_id: PartitionId, parts: Sequence[bytes | memoryview]
    ) -> bool:
        return False

    def backlog_bytes(self, node: NodeId) -> int:
        return 0

    @property
    def traffic(self) -> Mapping[NodeId, Traffic]:
        return {}

    @property
    def failed_handshakes(self) -> FailedHandshakes:
        return FailedHandshakes()

    def set_peers(self, peers: dict[NodeId, Address]) -> None:
        return None

    def connected(self) -> Mapping[NodeId, Mapping[str, Any]]:
        return {}

    def tell_levels(self) -> None:
        return None

    def handle(self, method: str, handler: Handler) -> None:
        return None

    async def request(self, node: NodeId, method: str, payload: bytes, timeout_s: float) -> bytes:
        raise LinkDown(node, sent=False)
