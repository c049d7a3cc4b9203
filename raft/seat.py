"""A group's place in its host: what it asks for, noted in tables that all groups share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from goqueue.wire.types import Incarnation, NodeId
from raft.interfaces import Network

if TYPE_CHECKING:
    from raft.group import RaftGroup
    from raft.host import RaftHost


class Windows:
    """Unacknowledged bytes per peer, over all groups of the node."""

    def __init__(self, network: Network, limit: int) -> None:
        self._network = network
        self._limit = limit
        self._taken: dict[NodeId, int] = {}
        self._short: dict[NodeId, dict[Seat, None]] = {}

    def take(self, node: NodeId, seat: Seat, size: int) -> bool:
        """False where there is no room: the group is woken later. One frame always fits."""
        taken = self._taken.get(node, 0)
        full = taken and taken + size > self._limit
        if full or self._network.backlog_bytes(node) > self._limit:
            self._short.setdefault(node, {})[seat] = None
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
        for seat in self._short.pop(node, ()):
            seat.wake()


class Seat:
    """The `GroupHost` of one group; compared by identity."""

    __slots__ = ("_host", "_windows", "group", "key")

    group: RaftGroup

    def __init__(self, host: RaftHost, key: bytes, windows: Windows) -> None:
        self._host = host
        self._windows = windows
        self.key = key

    def wake(self) -> None:
        self._host.wake(self)

    def await_durable(self) -> None:
        self._host.undurable[self] = None

    def set_deadline(self, at: float) -> None:
        self._host.arm(at)

    def led(self, leads: bool) -> None:
        self._host.led(self, leads)

    def is_connected(self, node: NodeId, incarnation: Incarnation | None = None) -> bool:
        return self._host.is_connected(node, incarnation)

    def reserve(self, node: NodeId, size: int) -> bool:
        return self._windows.take(node, self, size)

    def release(self, node: NodeId, size: int) -> None:
        self._windows.give_back(node, size)

    def configured(self) -> None:
        if self._host.on_configured is not None:
            self._host.on_configured(self.group)

    def copies_to_learners(self) -> bool:
        copies = self._host.copies_to_learners
        return copies is not None and copies(self.group)

    def failed(self, error: Exception) -> None:
        if self._host.on_failed is not None:
            self._host.on_failed(self.group, error)

    def snapshot_due(self) -> None:
        if self._host.on_snapshot_due is not None:
            self._host.on_snapshot_due(self.group)

    def vacate(self) -> None:
        """The group is gone: what it held and waited for is let go."""
        for peer in self.group.peers.values():
            self.release(peer.node, peer.reset())
