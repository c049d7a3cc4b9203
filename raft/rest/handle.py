"""A group's place in the host that carries it beside the node's other groups."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from goqueue.wire.types import Incarnation, NodeId
from raft.group import RaftGroup
from raft.peer import FlowControl
from raft.rest.replica import Rest

if TYPE_CHECKING:
    from raft.host import RaftHost


class GroupHandle:
    """A group's place in its host, the `RaftGroupHost` that it sees; compared by identity."""

    __slots__ = ("_flow_control", "_host", "key", "raft_group")

    raft_group: RaftGroup

    def __init__(self, host: RaftHost, key: bytes, flow_control: FlowControl) -> None:
        self._host = host
        self._flow_control = flow_control
        self.key = key

    def wake(self) -> None:
        self._host.wake(self)

    def await_durable(self) -> None:
        self._host.undurable[self] = None

    def set_deadline(self, at: float) -> None:
        self._host.set_deadline(self, at)

    def led(self, leads: bool) -> None:
        self._host.led(self, leads)

    def rest_with(self, node: NodeId) -> None:
        self._host.rest_with(self, node)

    def is_connected(self, node: NodeId, incarnation: Incarnation | None = None) -> bool:
        return self._host.is_connected(node, incarnation)

    def heard_at(self, node: NodeId) -> float:
        return self._host.node_beats.heard_at(node)

    def answered_at(self, node: NodeId) -> float:
        return self._host.node_beats.answered_at(node)

    def reserve(self, node: NodeId, size: int) -> bool:
        return self._flow_control.take(node, self, size)

    def release(self, node: NodeId, size: int) -> None:
        self._flow_control.give_back(node, size)

    def configured(self) -> None:
        if self._host.on_configured is not None:
            self._host.on_configured(self.raft_group)

    def copies_to_learners(self) -> bool:
        copies = self._host.copies_to_learners
        return copies is not None and copies(self.raft_group)

    def failed(self, error: Exception) -> None:
        self._host.node_beats.rouse(self)
        if self._host.on_failed is not None:
            self._host.on_failed(self.raft_group, error)

    def snapshot_due(self) -> None:
        if self._host.on_snapshot_due is not None:
            self._host.on_snapshot_due(self.raft_group)

    # as `raft.rest.beats` sees it

    @property
    def rests(self) -> bool:
        return self.raft_group.rests

    @property
    def rest(self) -> Rest:
        return self.raft_group.rest

    @property
    def term(self) -> int:
        return self.raft_group.term

    @property
    def peers_there(self) -> Iterable[NodeId]:
        return [node for node, peer in self.raft_group.peers.items() if peer.connected]

    @property
    def last_index(self) -> int:
        return self.raft_group.state.log.last_index

    def roused(self) -> None:
        if self.raft_group.is_leader:
            self._host.send_beats_for(self)
        self.changed()

    def rests_too(self, node: NodeId) -> None:
        self.raft_group.replication.rests_too(node)
        self.changed()

    def changed(self) -> None:
        if self._host.on_roused is not None:
            self._host.on_roused(self.raft_group.id)

    def vacate(self) -> None:
        """The group is gone: what it held and waited for is let go."""
        for peer in self.raft_group.peers.values():
            self.release(peer.node, peer.reset())
