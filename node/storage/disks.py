"""The disks of this node and its peers: who has room, who can write at all, who is quick, and who
has applied what it found there.

Publishes need a majority with room, so that what others must still write always has some: settles,
deliveries, votes. Where a majority can write nothing any more, those are refused too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from goqueue.wire.types import NodeId
from log.store.directory import Store
from node.metrics import Metrics
from node.storage.flusher import Flusher
from node.storage.space_watch import DISK_LOW, ROOM_BYTES, SpaceWatch

DISK_STUCK = "disk_stuck"
DISK_SLOW = "disk_slow"
"""The names under which peers are told, beside `DISK_LOW`."""
REPLAYING, STOPPING = "replaying", "stopping"
"""Likewise, by those that still apply what their disks held when they started, and by those that
are about to stop."""
ROOMY = 1 << 62
"""The room of a disk that nothing is known of."""
_NOTHING = frozenset({DISK_STUCK})
_LITTLE = _NOTHING | {DISK_LOW}
_ANY = _LITTLE | {DISK_SLOW}


class Disks:
    """What the disks allow. Loop thread only; answers from what was last seen and heard."""

    def __init__(
        self,
        me: NodeId,
        store: Store,
        flusher: Flusher,
        space: SpaceWatch,
        hellos: Callable[[], Mapping[NodeId, Mapping[str, Any]]],
        metrics: Metrics,
    ) -> None:
        self._me = me
        self._store = store
        self._flusher = flusher
        self._space = space
        self._hellos = hellos
        self._metrics = metrics
        self._peers: Mapping[NodeId, Mapping[str, Any]] = {}
        self._troubles: set[str] = set()
        """What any peer has told of its disk."""
        metrics.before_render(self._set_gauges)

    def look(self) -> None:
        """Take notice of what peers have told: to be called again and again."""
        self._peers = self._hellos()
        told = self._peers.values()
        self._troubles = {flag for flag in _ANY if any(peer.get(flag) is True for peer in told)}

    def hello(self) -> dict[str, Any]:
        """What peers are told."""
        return {
            DISK_LOW: self._space.is_low,
            DISK_STUCK: self._store.stalled is not None,
            DISK_SLOW: self._flusher.pace.is_slow,
        }

    def lack_room(self, voters: Iterable[NodeId]) -> bool:
        """Whether no majority of these can be reached that has room for more messages."""
        return self._no_majority(voters, _LITTLE)

    def least_room(self, voters: Iterable[NodeId]) -> tuple[int, NodeId]:
        """The room of the fullest of these disks, and whose it is. Who is away does not count."""
        rooms = {node: self._room_bytes(node) for node in voters}
        node = min(rooms, key=lambda node: rooms[node], default=self._me)
        return rooms.get(node, ROOMY), node

    def are_stuck(self, voters: Iterable[NodeId]) -> bool:
        """Whether no majority of these can be reached that can write at all."""
        return self._no_majority(voters, _NOTHING)

    def should_lead(self, node: NodeId) -> bool:
        """Whether nothing is known of its disk that makes others the better leaders, nor, of a
        peer, that what it led would wait until it has applied its log, or move on at once."""
        return self._is_free_of(node, _ANY | {REPLAYING, STOPPING})

    @property
    def problems(self) -> list[str]:
        """What an operator should know of this node's disk."""
        found = []
        if self._space.is_low:
            found.append(f"{self._me} is short of disk space: publishes are refused")
        if self._store.stalled is not None:
            found.append(f"the disk of {self._me} is full: nothing is confirmed until it has room")
        if self._flusher.pace.is_slow:
            found.append(f"the disk of {self._me} is slow: other nodes lead")
        return found

    # private

    def _told(self, node: NodeId) -> Mapping[str, Any] | None:
        return self.hello() if node == self._me else self._peers.get(node)

    def _room_bytes(self, node: NodeId) -> int:
        if node == self._me:
            return self._space.room_bytes
        told = self._hellos().get(node, {}).get(ROOM_BYTES)
        return told if isinstance(told, int) else ROOMY

    def _no_majority(self, voters: Iterable[NodeId], flags: frozenset[str]) -> bool:
        mine = self._store.stalled is not None or (DISK_LOW in flags and self._space.is_low)
        if not mine and flags.isdisjoint(self._troubles):
            return False  # nobody is in trouble: whether a majority is there, Raft knows
        nodes = list(voters)
        able = sum(self._is_free_of(node, flags) for node in nodes)
        return able * 2 <= len(nodes)

    def _is_free_of(self, node: NodeId, flags: frozenset[str]) -> bool:
        told = self._told(node)
        return told is not None and not any(told.get(flag) is True for flag in flags)

    def _set_gauges(self) -> None:
        self._metrics.storage.disk_stuck.set(self._store.stalled is not None)
        self._metrics.storage.disk_slow.set(self._flusher.pace.is_slow)
        self._metrics.storage.flush_waiting.set(self._flusher.pace.waiting_s)
