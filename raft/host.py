"""All Raft groups of one node: dispatch, one timer, coalesced heartbeats, the peer windows."""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypeVar, TypeVarTuple

from goqueue.wire.types import Incarnation, Lsn, NodeId, PartitionId, Term, Voter
from log.errors import EntryDamaged
from raft import frames
from raft.configuration import creating_entry
from raft.frames import HEARTBEAT_GROUP, FrameKind
from raft.group import RaftGroup
from raft.interfaces import Environment, Handle, LogStore, StateMachine
from raft.peer import FlowControl
from raft.rest.beats import NodeBeats
from raft.rest.handle import GroupHandle

logger = logging.getLogger("raft")

NEVER = float("inf")
WORD_S = 0.0002
"""How long it takes at most to tell, and to hear, who leads one of many groups."""
_NODE_BEATS = frozenset((FrameKind.NODE_BEAT, FrameKind.NODE_BEAT_ANSWER))
Args = TypeVarTuple("Args")
Result = TypeVar("Result")


class RaftHost:
    """The groups of a node, in the loop's thread. Takes `store.on_durable` for itself.

    `on_failed(raft_group, error)` is called when a replica has stopped itself;
    `on_snapshot_due(raft_group)` when enough was applied that `apply.take_snapshot()` is worth
    running; `on_configured(raft_group)` when another configuration is in force, or the one in force
    has committed; `on_roused(id)` when a group rests no more, before anything of it changes, or
    rests on with other nodes than before.
    `copies_to_learners(raft_group)` says whether learners that hold nothing begin
    with a copy that the node makes; they are `behind` until they have it, and are sent what
    follows.
    """

    def __init__(
        self,
        environment: Environment,
        store: LogStore,
        *,
        raft_group_type: type[RaftGroup] = RaftGroup,
    ) -> None:
        self.node = environment.me.node
        self.config = environment.config
        self.on_failed: Callable[[RaftGroup, Exception], None] | None = None
        self.on_snapshot_due: Callable[[RaftGroup], None] | None = None
        self.on_configured: Callable[[RaftGroup], None] | None = None
        self.on_roused: Callable[[PartitionId], None] | None = None
        self.copies_to_learners: Callable[[RaftGroup], bool] | None = None
        self._environment = environment
        self._me = environment.me
        self._store = store
        self._network = environment.network
        self._scheduler = environment.scheduler
        self._raft_group_type = raft_group_type
        self.undurable: dict[GroupHandle, None] = {}
        self._handles: dict[PartitionId, GroupHandle] = {}
        self._by_key: dict[bytes, GroupHandle] = {}
        self._leading: dict[GroupHandle, None] = {}
        """Those that beats are sent for: they lead, and do not rest."""
        self._timed: dict[GroupHandle, None] = {}
        """Those that may have a deadline."""
        self._awake: dict[GroupHandle, None] = {}
        self._connected: dict[NodeId, Incarnation | None] = {}
        self._flow_control = FlowControl(self._network, self.config.peer_window_bytes)
        now = self._scheduler.now()
        self.node_beats = NodeBeats(self._network, self.config, self._by_key.get, now)
        self._timer: Handle | None = None
        self._timer_at = NEVER
        self._beat_at = NEVER
        self.forgives = True
        """Whether a timer that comes late means that the node stood still: not where time leaps."""
        self._tells_from = -NEVER
        self._stopped = False
        store.on_durable = self.on_durable

    # -- groups

    def start_raft_group(
        self,
        id: PartitionId,
        voters: Sequence[Voter],
        state: StateMachine,
        bootstrap: bool = False,
        *,
        created_ms: int = 0,
        preferred: NodeId | None = None,
    ) -> RaftGroup:
        """Starts this node's replica of a group, from what its log and snapshot hold.

        `voters` are those of the creating entry, or none: then the replica learns from its log and
        from leaders who belongs to the group. `bootstrap`: the group is being created; if this very
        data directory is named in `voters` and its log is empty and was never retired, it writes
        the creating entry, with `created_ms`, which must be the same on all nodes. Every other
        empty replica joins: it neither votes nor campaigns until it is a voter that has caught up.
        `preferred` wins the first election if it is there. Raises ValueError if the group runs
        already, ConfigurationMismatch, Unsafe.
        """
        if id in self._handles or id == HEARTBEAT_GROUP:
            raise ValueError(f"group {id} runs already, or is not a group")
        log = (
            self._store.partition_log(id) if self._store.has_log(id) else self._store.create_log(id)
        )
        empty = log.last_index == 0 and not log.quarantined
        founds = bootstrap and not log.suspect and self._me in voters
        if empty and founds:
            log.append([creating_entry(voters, created_ms)])
        elif empty:
            log.mark_suspect()
        key = id.pack()
        handle = GroupHandle(self, key, self._flow_control)
        handle.raft_group = raft_group = self._raft_group_type(
            id,
            self._environment,
            log,
            state,
            handle,
            voters=voters,
            preferred=preferred,
        )
        self._handles[id] = self._by_key[key] = handle
        try:
            raft_group.start()
        except BaseException:
            self._forget(id)
            raise
        for node in self._connected:
            raft_group.election.peer_connected(node, self._patience_s)
        self.node_beats.started(handle, self._scheduler.now())
        return raft_group

    def stop_raft_group(self, id: PartitionId) -> None:
        """Stops the replica, if it runs, answering whoever waits; its log stays."""
        handle = self._handles.get(id)
        if handle is not None:
            handle.raft_group.stop()
            self._forget(id)

    def retire_raft_group(self, id: PartitionId) -> None:
        """Drops this replica's entries for good, once its removal has committed.

        Its term and vote stay, and that it may have acknowledged what it no longer holds: should
        this data directory join the group again, no promise is forgotten. Deleting the group from
        the store is for groups that are deleted everywhere.
        """
        self.stop_raft_group(id)
        if not self._store.has_log(id):
            return
        log = self._store.partition_log(id)
        hard, newest = log.hard_state, Term(0)
        with suppress(EntryDamaged):  # it can't be read, and the saved term is no older
            newest = log.last_term
        self._store.remove_log(id)
        log = self._store.create_log(id)
        log.save_hard_state(max(hard.term, newest), hard.vote if hard.term >= newest else None)
        log.mark_suspect()

    def _forget(self, id: PartitionId) -> None:
        handle = self._handles.pop(id)
        self.node_beats.rouse(handle)
        handle.vacate()
        self._by_key.pop(handle.key)
        for table in (self._leading, self._timed, self._awake, self.undurable):
            table.pop(handle, None)

    def stop(self) -> None:
        """Stops all replicas and the timer; idempotent."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for id in list(self._handles):
            self.stop_raft_group(id)

    def raft_group(self, id: PartitionId) -> RaftGroup:
        """A running replica. Raises KeyError."""
        return self._handles[id].raft_group

    def raft_groups(self) -> list[RaftGroup]:
        """All running replicas, in the order they were started."""
        return [handle.raft_group for handle in self._handles.values()]

    def leading(self) -> list[RaftGroup]:
        """The groups that are led here, and do not rest."""
        return [handle.raft_group for handle in self._leading]

    # -- events from outside

    def receive(self, node: NodeId, partition_id: PartitionId, frame: memoryview | bytes) -> None:
        """A frame from the link; whatever is malformed or unknown is dropped."""
        if not isinstance(frame, memoryview):
            frame = memoryview(frame)
        self.node_beats.heard(node, self._scheduler.now())
        handle = self._handles.get(partition_id)
        if handle is not None:
            self.node_beats.rouse(handle)
            self._guard(handle, handle.raft_group.receive, node, frame)
        elif partition_id == HEARTBEAT_GROUP:
            self._on_heartbeats(node, frame)

    def peer_connected(self, node: NodeId, incarnation: Incarnation | None = None) -> None:
        """A link to this node is up; with the data directory that it has proven, if it has.

        A group whose configuration names the node with another one has no link to that replica: who
        begins anew must not answer for what was promised before.
        """
        self._connected[node] = incarnation
        patience_s = self._patience_s
        for raft_group in self.raft_groups():
            raft_group.election.peer_connected(node, patience_s)

    @property
    def _patience_s(self) -> float:
        """How long leaders may need to tell of all groups over a link that was just made."""
        return min(self.config.election_min_s, len(self._handles) * WORD_S)

    def peer_disconnected(self, node: NodeId) -> None:
        """The link to this node is closed: evidence against whatever it leads."""
        self._connected.pop(node, None)
        self.node_beats.disconnected(node)
        for raft_group in self.raft_groups():
            raft_group.election.peer_disconnected(node)

    def on_durable(self, _lsn: Lsn) -> None:
        """A sync has completed: whatever waited for it is told."""
        waiting, self.undurable = self.undurable, {}
        for handle in waiting:
            self._guard(handle, handle.raft_group.on_durable)

    def _guard(
        self, handle: GroupHandle, call: Callable[[*Args], Result], *args: *Args
    ) -> Result | None:
        """An error nobody expected stops this replica, loudly, and no other."""
        try:
            return call(*args)
        except Exception as error:
            logger.exception("group %s on %s: unexpected", handle.raft_group.id, self.node)
            handle.raft_group.fail(error)
            return None

    def is_connected(self, node: NodeId, incarnation: Incarnation | None = None) -> bool:
        """Whether a link to this node is up; and not one to another data directory than this."""
        proven = self._connected.get(node)
        other = None not in (proven, incarnation) and proven != incarnation
        return node in self._connected and not other

    # -- what groups ask for, through their seats

    def wake(self, handle: GroupHandle) -> None:
        """Flushes this group at the end of the turn. A leader that rests has something to do."""
        if handle.rests and handle.raft_group.is_leader:
            self.node_beats.rouse(handle)
        if not self._awake:
            self._scheduler.call_soon(self._flush)
        self._awake[handle] = None

    def _flush(self) -> None:
        """Flushes who is awake, as long as the slice of time lasts; the others come next turn."""
        awake, self._awake = self._awake, {}
        until = self._scheduler.now() + self.config.apply_slice_s
        handles = iter(awake)
        for handle in handles:
            self._guard(handle, handle.raft_group.flush)
            if self._scheduler.now() >= until:
                break
        rest = dict.fromkeys(handles)
        if rest:
            if not self._awake:
                self._scheduler.call_soon(self._flush)
            self._awake = {**rest, **self._awake}

    def led(self, handle: GroupHandle, leads: bool) -> None:
        """This group began or ceased to lead."""
        if not leads:
            self.node_beats.rouse(handle)
            self._leading.pop(handle, None)
            return
        self.send_beats_for(handle)

    def rest_with(self, handle: GroupHandle, node: NodeId) -> None:
        """A group that rests, and is led here, has a replica there that can be reached again."""
        self.node_beats.peer_connected(handle, node, self._scheduler.now())
        self._beat_on()

    def send_beats_for(self, handle: GroupHandle) -> None:
        """This group leads, and does not rest."""
        self._leading[handle] = None
        self._beat_on()

    def _beat_on(self) -> None:
        if self._beat_at == NEVER:
            self._beat_at = self._scheduler.now() + self.config.heartbeat_s
            self.arm(self._beat_at)

    # -- time: one timer for all

    def set_deadline(self, handle: GroupHandle, at: float) -> None:
        """This group has a deadline, or none any more."""
        if at == NEVER:
            self._timed.pop(handle, None)
        else:
            self._timed[handle] = None
            self.arm(at)

    def arm(self, at: float) -> None:
        """The timer fires at this time, or earlier."""
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
        if self.forgives and late > self.config.heartbeat_s / 2:
            if late > self.config.heartbeat_s and now >= self._tells_from:
                self._tells_from = now + 2 * self.config.election_max_s
                logger.warning("the loop was stalled for %.3f s", late)
            self.node_beats.forgive(late, now)
            for handle in list({**self._timed, **self._leading}):
                handle.raft_group.election.forgive(late, now)
        self.node_beats.look(now)
        for handle in list(self._timed):
            if handle.raft_group.deadline <= now:
                self._guard(handle, handle.raft_group.election.on_deadline, now)
        if self._beat_at <= now:
            self._beat(now)
        due = min((handle.raft_group.deadline for handle in self._timed), default=NEVER)
        self.arm(min(due, self._beat_at, self.node_beats.deadline))

    # -- heartbeats

    def _beat(self, now: float) -> None:
        """One frame a peer for all groups led here, and each leader's own look at the time."""
        self.node_beats.rouse_unanswered(now)
        for handle in list(self._leading):
            self._guard(handle, handle.raft_group.on_tick, now)
        if self._environment.rests():
            for handle in list(self._leading):
                if self._guard(handle, handle.rest.is_due):
                    del self._leading[handle]
                    self.node_beats.put_to_rest(handle, now)
        items: dict[NodeId, list[bytes]] = {node: [] for node in self._connected}
        for handle in self._leading:
            raft_group = handle.raft_group
            for node, peer in raft_group.peers.items():
                if peer.connected and node in items:
                    items[node].append(
                        frames.beat_item(handle.key, *raft_group.heartbeats.beat_for(peer))
                    )
        for node, beats in items.items():
            self._send_items(node, FrameKind.HEARTBEATS, beats)
            self._flow_control.wake(node)
        self.node_beats.send()
        goes_on = self._leading or self.node_beats.is_busy
        self._beat_at = now + self.config.heartbeat_s if goes_on else NEVER

    def _send_items(self, node: NodeId, kind: FrameKind, items: list[bytes]) -> None:
        for at in range(0, len(items), frames.ITEMS_MAX):
            parts = frames.heartbeats(kind, items[at : at + frames.ITEMS_MAX])
            self._network.send(node, HEARTBEAT_GROUP, parts)

    def _on_node_beat(self, node: NodeId, frame: memoryview) -> None:
        now, led = self._scheduler.now(), len(self._leading)
        if frame[0] == FrameKind.NODE_BEAT:
            self.node_beats.on_beat(node, frame, now)
            self.arm(self.node_beats.deadline)
        else:
            self.node_beats.on_answer(node, frame, now)
        if len(self._leading) > led:
            # Who was roused there watches its deadline from when it heard of its leader last.
            self._beat_at = now
            self.arm(now)

    def _on_heartbeats(self, node: NodeId, frame: memoryview) -> None:
        try:
            if frame and frame[0] in _NODE_BEATS:
                self._on_node_beat(node, frame)
                return
            kind, items = frames.parse_heartbeats(frame)
        except struct.error as error:
            logger.warning("bad heartbeats from %s dropped: %s", node, error)
            return
        if kind == FrameKind.HEARTBEAT_ANSWERS:
            for key, term, round_, last in items:
                handle = self._by_key.get(key)
                if handle is not None:
                    if term > handle.raft_group.term:
                        self.node_beats.rouse(handle)
                    self._guard(
                        handle, handle.raft_group.receive_beat_answer, node, term, round_, last
                    )
        elif kind == FrameKind.HEARTBEATS:
            answers = []
            for key, term, commit, round_ in items:
                handle = self._by_key.get(key)
                if handle is None:
                    continue
                self.node_beats.rouse(handle)
                answer = self._guard(
                    handle, handle.raft_group.receive_beat, node, term, commit, round_
                )
                if answer is not None:
                    answers.append(frames.beat_item(key, *answer))
            self._send_items(node, FrameKind.HEARTBEAT_ANSWERS, answers)
