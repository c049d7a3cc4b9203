"""How far the peers' clocks are from ours, as their statuses tell."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from statistics import median
from typing import Any

from goqueue.wire.types import NodeId

WALL_MS = "wall_ms"
"""The name under which a node tells its clock."""


class PeerClocks:
    """Remembers each connected peer's newest difference; the link's delay is part of it."""

    def __init__(self, wall_ms: Callable[[], int], nodes: int) -> None:
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
        """By how much the peers are ahead of us, their median; None without a majority of all
        nodes, this one included."""
        if (len(self._ahead_ms) + 1) * 2 <= self._nodes or not self._ahead_ms:
            return None
        return median(self._ahead_ms.values())
