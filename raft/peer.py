"""What a replica knows of another replica of its group, and how much may be on its way there."""

from __future__ import annotations

from goqueue.wire.types import NodeId
from raft.interfaces import Network, RaftGroupHost
from raft.syncobj import Node


class Peer(Node):
    """A PySyncObj node with the leader's flow control beside it.

    Compared by identity: a group keeps one `Peer` per other replica. While `probing`, one frame is
    out at a time and `paused` until it is answered; otherwise frames are pipelined up to a window
    of bytes, and `inflight` holds (last index, bytes) of each. `goal` is what a learner is to reach
    in the present round of catching up.
    """

    __setattr__ = object.__setattr__
    __eq__ = object.__eq__
    __ne__ = object.__ne__
    __hash__ = object.__hash__

    def __init__(self, node: NodeId, *, voter: bool) -> None:
        super().__init__(node)
        self.node = node
        self.voter = voter
        self.connected = False
        self.probing = True
        self.paused = False
        self.behind = False
        self.inflight: list[tuple[int, int]] = []
        self.inflight_bytes = 0
        self.sent_at = 0.0
        self.heard_at = float("-inf")
        self.round = 0
        self.commit_told = 0
        self.goal: int | None = None
        self.goal_since = 0.0
        self.caught_up = False

    def __repr__(self) -> str:
        return f"Peer({self.node!r})"

    def reset(self) -> int:
        """Forgets what is in flight, and probes again; the bytes that are no longer out."""
        freed, self.inflight_bytes = self.inflight_bytes, 0
        self.inflight.clear()
        self.probing = True
        self.paused = False
        self.behind = False
        self.commit_told = 0
        self.goal = None
        self.caught_up = False
        return freed

    def acknowledged(self, match: int) -> int:
        """Takes what is matched out of the window; the bytes freed."""
        inflight = self.inflight
        freed = count = 0
        for last, size in inflight:
            if last > match:
                break
            freed += size
            count += 1
        del inflight[:count]
        self.inflight_bytes -= freed
        return freed


class FlowControl:
    """Unacknowledged bytes per peer, over all groups of the node."""

    def __init__(self, network: Network, limit: int) -> None:
        self._network = network
        self._limit = limit
        self._taken: dict[NodeId, int] = {}
        self._short: dict[NodeId, dict[RaftGroupHost, None]] = {}

    def take(self, node: NodeId, group: RaftGroupHost, size: int) -> bool:
        """False where there is no room: the group is woken later. One frame always fits."""
        taken = self._taken.get(node, 0)
        full = taken and taken + size > self._limit
        if full or self._network.backlog_bytes(node) > self._limit:
            self._short.setdefault(node, {})[group] = None
            return False
        self._taken[node] = taken + size
        return True

    def give_back(self, node: NodeId, size: int) -> None:
        """These bytes were acknowledged, or are lost."""
        if size:
            self._taken[node] -= size
            self.wake(node)

    def wake(self, node: NodeId) -> None:
        """Lets all groups try again that found no room."""
        for group in self._short.pop(node, ()):
            group.wake()
