"""Whether this node has been drained since somebody last looked."""

from __future__ import annotations

from typing import Protocol


class Drainable(Protocol):
    """A node, as `Broker.node` shows it."""

    @property
    def is_drained(self) -> bool: ...


class DrainWatch:
    """Streams go to other nodes when theirs is drained. Who comes to a node that is drained already
    stays: it may know no other. Loop thread only."""

    def __init__(self, node: Drainable) -> None:
        self._node = node
        self._was_drained = node.is_drained

    def has_begun(self) -> bool:
        """Whether a drain began since the watch was made, or since this was asked last."""
        was_drained, self._was_drained = self._was_drained, self._node.is_drained
        return self._was_drained and not was_drained
