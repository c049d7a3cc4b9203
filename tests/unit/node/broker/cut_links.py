"""Links of nodes in this process that carry nothing for a while, though they stay open."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

import pytest

from goqueue.wire.errors import Timeout
from goqueue.wire.types import NodeId, PartitionId
from raft.frames import HEARTBEAT_GROUP
from raft.link import PeerMesh


class CutLinks:
    """What is sent between cut nodes is lost, and what is asked is never answered. Make it before
    the nodes are started."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.lost = 0
        """Requests that nobody will answer."""
        self._between: set[frozenset[str]] = set()
        self._entries_of: set[tuple[PartitionId, str]] = set()
        send, request = PeerMesh.send, PeerMesh.request

        def may_send(
            mesh: PeerMesh,
            node: NodeId,
            partition_id: PartitionId,
            parts: Sequence[bytes | memoryview],
        ) -> bool:
            if self._is_cut(mesh, node) or (partition_id, node) in self._entries_of:
                return True
            return send(mesh, node, partition_id, parts)

        async def may_ask(
            mesh: PeerMesh, node: NodeId, method: str, payload: bytes, timeout_s: float
        ) -> bytes:
            if not self._is_cut(mesh, node):
                return await request(mesh, node, method, payload, timeout_s)
            self.lost += 1
            await asyncio.sleep(timeout_s)
            raise Timeout(f"{node} is silent", outcome="unknown")

        monkeypatch.setattr(PeerMesh, "send", may_send)
        monkeypatch.setattr(PeerMesh, "request", may_ask)

    def cut(self, name: str, others: Iterable[str]) -> None:
        """Nothing goes between a node and these others."""
        self._between.update(frozenset((name, other)) for other in others)

    def starve(self, partition_id: PartitionId, name: str) -> None:
        """A node gets no entries of the group, but hears of its leader and may ask it."""
        assert partition_id != HEARTBEAT_GROUP
        self._entries_of.add((partition_id, name))

    def heal(self) -> None:
        self._between.clear()
        self._entries_of.clear()

    def _is_cut(self, mesh: PeerMesh, node: NodeId) -> bool:
        return frozenset((mesh.node, node)) in self._between
