"""All Raft groups of one node: dispatch, one timer, coalesced heartbeats, the peer windows."""

from __future__ import annotations

import logging
import random
import struct
from collections.abc import Callable, Sequence

from goqueue.wire.types import GroupId, Incarnation, Lsn, NodeId, Voter
from raft import frames
from raft.config import RaftConfig
from raft.frames import HEARTBEAT_GROUP, FrameKind
from raft.group import RaftGroup
from raft.interfaces import Handle, LogStore, Network, Scheduler, StateMachine
from raft.voters import creating_entry

logger = logging.getLogger("raft")

NEVER = float("inf")


class RaftHost:
    """The groups of a node, in the loop's thread. Takes `store.on_durable` for itself.

    `on_failed(group, error)` is called when a replica has stopped itself; `on_snapshot_due(group)`
    when enough was applied that `group.take_snapshot()` is worth running.
    """

    def __init__(
        self,
        node: NodeId,
        incarnation: Incarnation,
        store: LogStore,
        network: Network,
        scheduler: Scheduler,
        rng: random.Random,
        clock_ms: Callable[[], int],
        config: RaftConfig | None = None,
        *,
        peers_clock_offset_ms: Callable[[], float | None] | None = None,
        group_type: type[RaftGroup] = RaftGroup,
    ) -> None:
        self.node = node
        self.incarnation = incarnation
        self.config = config or RaftConfig()
        self.on_failed: Callable[[RaftGroup, Exception], None] | None = None
        self.on_snapshot_due: Callable[[RaftGroup], None] | None = None
        self._store = store
        self._network = network
        self._scheduler = scheduler
        self._rng = rng
        self._clock_ms = clock_ms
        self._peers_clock_offset_ms = peers_clock_offset_ms
        self._group_type = group_type
        self._groups: dict[GroupId, RaftGroup] = {}
        self._by_key: dict[bytes, RaftGroup] = {}
        self._keys: dict[GroupId, bytes] = {}
        self._leading: dict[GroupId, RaftGroup] = {}
        self._connected: dict[NodeId, None] = {}
        self._awake: dict[GroupId, None] = {}
        self._undurable: dict[GroupId, None] = {}
        self._inflight: dict[NodeId, int] = {}
        self._short: dict[NodeId, dict[GroupId, None]] = {}
        self._timer: Handle | None = None
        self._timer_at = NEVER
        self._beat_at = NEVER
        self._stopped = False
        store.on_durable = self.on_durable

    # -- groups

    def start_group(
        self,
        id: GroupId,
        voters: Sequence[Voter],
        state: StateMachine,
        learners: Sequence[NodeId] = (),
        bootstrap: bool = False,
        *,
        created_ms: int = 0,
        preferred: NodeId | None = None,
    ) -> RaftGroup:
        """Starts this node's replica of a group, from what its log and snapshot hold.

        `bootstrap`: the group is being created; if this very data directory is named in `voters`
        and its log is empty, it writes the creating entry, with `created_ms`, which must be the
        same on all nodes. `preferred` wins the first election if it is there. Raises ValueError if
        the group runs already, ConfigurationMismatch, Unsafe.
        """
        if id in self._groups or id == HEARTBEAT_GROUP:
            raise ValueError(f"group {id} runs already, or is not a group")
        log = self._store.group(id) if id in self._store.groups() else self._store.create_group(id)
        if bootstrap and log.last_index == 0 and Voter(self.node, self.incarnation) in voters:
            log.append([creating_entry(voters, created_ms)])
        group = self._group_type(
            id=id,
            node=self.node,
            incarnation=self.incarnation,
            voters=voters,
            learners=learners,
            log=log,
            network=self._network,
            scheduler=self._scheduler,
            rng=self._rng,
            clock_ms=self._clock_ms,
            state=state,
            config=self.config,
            host=self,
            peers_clock_offset_ms=self._peers_clock_offset_ms,
            preferred=preferred,
        )
        key = id.pack()
        self._groups[id] = self._by_key[key] = group
        self._keys[id] = key
        try:
            group.start()
        except BaseException:
            self._forget(id)
            raise
        for node in self._connected:
            group.peer_connected(node)
        return group

    def stop_group(self, id: GroupId) -> None:
        """Stops the replica, if it runs, answering whoever waits; its log stays."""
        group = self._groups.get(id)
        if group is not None:
            group.stop()
            self._forget(id)

    def _forget(self, id: GroupId) -> None:
        group = self._groups.pop(id)
        for peer in group.peers.values():
            self.release(peer.node, peer.reset())
        self._by_key.pop(self._keys.pop(id))
        for table in (self._leading, self._awake, self._undurable):
            table.pop(id, None)

    def stop(self) -> None:
        """Stops all replicas and the timer; idempotent."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for id in list(self._groups):
            self.stop_group(id)

    def fail(self, error: Exception) -> None:
        """The store has failed: every replica stops itself, so that others can take over."""
        for group in list(self._groups.values()):
            group.fail(error)

    def group(self, id: GroupId) -> RaftGroup:
        """A running replica. Raises KeyError."""
        return self._groups[id]

    def groups(self) -> list[RaftGroup]:
        """All running replicas, in the order they were started."""
        return list(self._groups.values())

    # -- events from outside

    def receive(self, node: NodeId, group: GroupId, frame: memoryview | bytes) -> None:
        """A frame from the link; whatever is malformed or unknown is dropped."""
        if not isinstance(frame, memoryview):
            frame = memoryview(frame)
        if group == HEARTBEAT_GROUP:
            self._on_heartbeats(node, frame)
            return
        known = self._groups.get(group)
        if known is not None:
            known.receive(node, frame)

    def peer_connected(self, node: NodeId) -> None:
        """A link to this node is up."""
        self._connected[node] = None
        for group in list(self._groups.values()):
            group.peer_connected(node)

    def peer_disconnected(self, node: NodeId) -> None:
        """The link to this node is closed: evidence against whatever it leads."""
        self._connected.pop(node, None)
        for group in list(self._groups.values()):
            group.peer_disconnected(node)

    def on_durable(self, _lsn: Lsn) -> None:
        """A sync has completed: whatever waited for it is told."""
        waiting, self._undurable = self._undurable, {}
        for id in waiting:
            group = self._groups.get(id)
            if group is not None:
                group.on_durable()

    # -- what groups ask for

    def wake(self, group: GroupId) -> None:
        if not self._awake:
            self._scheduler.call_soon(self._flush)
        self._awake[group] = None

    def _flush(self) -> None:
        awake, self._awake = self._awake, {}
        for id in awake:
            group = self._groups.get(id)
            if group is not None:
                group.flush()

    def await_durable(self, group: GroupId) -> None:
        self._undurable[group] = None

    def led(self, group: GroupId, leads: bool) -> None:
        if not leads:
            self._leading.pop(group, None)
            return
        self._leading[group] = self._groups[group]
        if self._beat_at == NEVER:
            self._beat_at = self._scheduler.now() + self.config.heartbeat_s
            self._arm(self._beat_at)

    def reserve(self, node: NodeId, group: GroupId, size: int) -> bool:
        """Takes bytes of the peer's window; a frame always fits into an empty one."""
        used = self._inflight.get(node, 0)
        limit = self.config.peer_window_bytes
        if (used and used + size > limit) or self._network.backlog_bytes(node) > limit:
            self._short.setdefault(node, {})[group] = None
            return False
        self._inflight[node] = used + size
        return True

    def release(self, node: NodeId, size: int) -> None:
        if size:
            self._inflight[node] -= size
            self._wake_short(node)

    def _wake_short(self, node: NodeId) -> None:
        short = self._short.pop(node, None)
        for group in short or ():
            self.wake(group)

    def failed(self, group: GroupId, error: Exception) -> None:
        if self.on_failed is not None:
            self.on_failed(self._groups[group], error)

    def snapshot_due(self, group: GroupId) -> None:
        if self.on_snapshot_due is not None:
            self.on_snapshot_due(self._groups[group])

    # -- time: one timer for all

    def set_deadline(self, group: GroupId, at: float) -> None:
        if at < self._timer_at:
            self._arm(at)

    def _arm(self, at: float) -> None:
        if at >= self._timer_at or self._stopped:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = at
        self._timer = self._scheduler.call_later(
            max(0.0, at - self._scheduler.now()), self._on_timer
        )

    def _on_timer(self) -> None:
        now = self._scheduler.now()
        late = now - self._timer_at
        self._timer, self._timer_at = None, NEVER
        if self._stopped:
            return
        if late > self.config.heartbeat_s:
            logger.warning("the loop was stalled for %.3f s", late)
            for group in list(self._groups.values()):
                group.forgive(now)
        for group in list(self._groups.values()):
            if group.deadline <= now:
                group.on_deadline(now)
        if self._beat_at <= now:
            self._beat(now)
        due = min((group.deadline for group in self._groups.values()), default=NEVER)
        self._arm(min(due, self._beat_at))

    # -- heartbeats

    def _beat(self, now: float) -> None:
        """One frame a peer for all groups led here, and each leader's own look at the time."""
        for group in list(self._leading.values()):
            group.on_tick(now)
        items: dict[NodeId, list[bytes]] = {node: [] for node in self._connected}
        for id, group in self._leading.items():
            key = self._keys[id]
            for node, peer in group.peers.items():
                if peer.connected and node in items:
                    items[node].append(frames.beat_item(key, *group.beat_for(peer)))
        for node, beats in items.items():
            self._send_items(node, FrameKind.HEARTBEATS, beats)
            self._wake_short(node)
        self._beat_at = now + self.config.heartbeat_s if self._leading else NEVER

    def _send_items(self, node: NodeId, kind: FrameKind, items: list[bytes]) -> None:
        for at in range(0, len(items), frames.ITEMS_MAX):
            parts = frames.heartbeats(kind, items[at : at + frames.ITEMS_MAX])
            self._network.send(node, HEARTBEAT_GROUP, parts)

    def _on_heartbeats(self, node: NodeId, frame: memoryview) -> None:
        try:
            kind, items = frames.parse_heartbeats(frame)
        except struct.error as error:
            logger.warning("bad heartbeats from %s dropped: %s", node, error)
            return
        if kind == FrameKind.HEARTBEAT_ANSWERS:
            for key, term, round_, last in items:
                group = self._by_key.get(key)
                if group is not None:
                    group.receive_beat_answer(node, term, round_, last)
        elif kind == FrameKind.HEARTBEATS:
            answers = []
            for key, term, commit, round_ in items:
                group = self._by_key.get(key)
                answer = group.receive_beat(node, term, commit, round_) if group else None
                if answer is not None:
                    answers.append(frames.beat_item(key, *answer))
            self._send_items(node, FrameKind.HEARTBEAT_ANSWERS, answers)
