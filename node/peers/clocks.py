"""How far the peers' clocks are from ours, as their statuses tell."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from goqueue.wire.types import NodeId
from raft.log_time import majority_offset_ms

WALL_MS = "wall_ms"
"""The name under which a node tells its clock."""


class PeerClocks:
    """Remembers each connected peer's newest difference; the link's delay is part of it. Only
    those count that are among `nodes`: the cluster's, this one included."""

    def __init__(self, wall_ms: Callable[[], int], nodes: Callable[[], Collection[NodeId]]) -> None:
        self._wall_ms = wall_ms
        self._nodes = nodes
        self._ahead_ms: dict[NodeId, float] = {}

    def told(self, node: NodeId, status: Mapping[str, Any]) -> None:
        """A peer's status arrived just now."""
        theirs = status.get(WALL_MS)
        if isinstance(theirs, int):
            self._ahead_ms[node] = float(theirs - self._wall_ms())

    def gone(self, node: NodeId) -> None:
        self._ahead_ms.pop(node, None)

    def offset_ms(self) -> float | None:
        """By how much the time that a majority of all nodes agrees on is ahead of our clock; None
        where no majority is known to agree."""
        nodes = self._nodes()
        theirs = [ahead for node, ahead in self._ahead_ms.items() if node in nodes]
        return majority_offset_ms(theirs, len(nodes))
