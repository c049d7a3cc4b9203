"""The cluster group on this node: its state machine, its commands, and who belongs to it."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from msgspec import structs

from coordinator.brokers.formation import wiped_text
from coordinator.brokers.health import Standing, standing
from coordinator.cluster.state import ClusterState, Topic
from coordinator.commands.codec import (
    Command,
    CreateTopic,
    Result,
    decode_command,
    decode_result,
    encode_command,
    encode_result,
    feature_of,
)
from coordinator.commands.members import MemberCommand
from coordinator.errors import CommandUnreadable
from goqueue.background import TaskSet
from goqueue.wire.errors import (
    BadRequest,
    DiskFull,
    GoQueueError,
    NotLeader,
    OutcomeUnknown,
    Timeout,
    UnknownTopic,
)
from goqueue.wire.types import CLUSTER_GROUP, Incarnation, Index, NodeId, Term, Voter
from log.entry import Entry, EntryKind
from log.levels import Levels, Spoken
from log.partition.log import PartitionLog
from node.cluster.changes import Changes
from node.cluster.newest_state import NewestState
from node.peers.forwarding import Forwarder
from node.peers.link import PeerLink
from node.peers.repetition import may_repeat_command
from node.rpc import partitions as rpc
from node.runtime.logger import get_logger
from raft.errors import Outcome
from raft.group import RaftGroup
from raft.link import LEVELS

APPLY_WAIT_S = 5.0
"""How long a command's answer waits until this node has applied it, too."""

KEPT_ENTRIES = 50_000
"""Of the newest commands, for replicas that were away for a while: who lacks older ones is copied
whole. A command takes 100 to 300 bytes."""

FINISHED_LEVEL = "finished_level"
"""Where a node's status tells the finished level that it knows."""

REFRESH_S = 1.0
REFRESH_POLL_S = 0.005

Answer = tuple[Index, Result]
"""Where a command was applied, and what came of it."""

_INDEX = struct.Struct("<Q")

_log = get_logger("cluster")
REMOVED = "it was removed from the cluster"
"""Why a peer is kept out that somebody took away."""


class ClusterHost:
    """Raft's StateMachine for the cluster group; loop thread only.

    `on_change` is called after entries that change what should run here, and after a restored
    snapshot. `configured` are the nodes that count as the cluster's until it is known.
    """

    def __init__(
        self,
        me: Voter,
        *,
        on_change: Callable[[], None],
        configured: Iterable[NodeId] = (),
        levels: Levels | None = None,
    ) -> None:
        self._me = me
        self.levels = levels or Levels()
        self._on_change = on_change
        self._configured = frozenset({me.node, *configured})
        self.state = ClusterState()
        self.changes = Changes()
        self.leaderships = 0
        """How often this node has begun to lead the cluster group."""
        self.raft_group: RaftGroup | None = None
        self._log: PartitionLog | None = None
        self._newest: NewestState | None = None
        self.hellos: dict[NodeId, Mapping[str, Any]] = {}
        self.reason_not_formed = "the cluster is not formed: waiting for all configured nodes"
        self.wiped = False
        """Whether this data directory is not the one the cluster knows, and not let in yet."""
        self.outcast: GoQueueError | None = None
        """Why this data directory will never be let in again."""
        self._forwarder: Forwarder | None = None
        self._waiters: dict[asyncio.Future[None], Index] = {}
        self._tasks = TaskSet("cluster", "refresh_failed")
        self._refreshing: asyncio.Future[bool] | None = None
        self._refresh_next: asyncio.Future[bool] | None = None
        self.are_stuck: Callable[[Iterable[NodeId]], bool] = lambda _nodes: False
        """Whether the disks of these voters can confirm nothing at all."""

    # the group

    def attach(self, raft_group: RaftGroup, log: PartitionLog) -> None:
        """Take the group that was started with this state machine, and its log."""
        self.raft_group, self._log, self._newest = raft_group, log, NewestState(raft_group, log)

    def detach(self, reason: str) -> None:
        """The group was stopped, and will begin anew from what its log then holds."""
        self.raft_group = self._log = self._newest = None
        self.reason_not_formed = reason

    async def stop(self) -> None:
        """Nobody asks any more whether this node has applied all. Idempotent."""
        await self._tasks.stop()

    def trim(self) -> None:
        """Old commands may go, once the stored snapshots have passed them."""
        if self._log is not None:
            self._log.trim_to(Index(self.applied - KEPT_ENTRIES))

    def use(self, forwarder: Forwarder, link: PeerLink) -> None:
        """Send commands by this forwarder, and serve those of peers."""
        self._forwarder = forwarder
        link.handle(rpc.COMMAND, self._serve)
        link.handle(rpc.CLUSTER_INDEX, self._serve_index)

    @property
    def applied(self) -> Index:
        """The index of the newest command or snapshot in `state`."""
        return self.state.applied_index

    @property
    def is_newest(self) -> bool:
        """Whether `state` is no older than any that this node has had before."""
        return self._newest is not None and self._newest.is_reached

    @property
    def voters(self) -> dict[NodeId, Incarnation]:
        """Who votes in the cluster group, by the configuration in force here."""
        voters = () if self.raft_group is None else self.raft_group.membership.voters
        return {voter.node: voter.incarnation for voter in voters}

    @property
    def nodes(self) -> frozenset[NodeId]:
        """Who belongs to the cluster, as far as this node knows: brokers, and who takes part in
        the cluster group; before either is known, who is configured."""
        if self.raft_group is None:
            return self._configured
        members = self.raft_group.membership.configuration.members
        known = frozenset((*self.state.brokers, *(member.node for member in members)))
        return known or self._configured

    @property
    def has_quorum(self) -> bool:
        """Whether a majority of the voters can be reached from here."""
        if self.raft_group is None:
            return False
        voters = self.raft_group.membership.voters
        return sum(map(self.has_directory, voters)) * 2 > len(voters)

    def led_time_ms(self) -> int | None:
        """Log time now, where this node leads the cluster group and has applied all before it."""
        raft_group = self.raft_group
        if raft_group is None or not raft_group.is_ready_leader:
            return None
        return raft_group.log_time.now_ms()

    def is_present(self, node: NodeId) -> bool:
        """Whether this is us, or a connected peer with the data directory it is known by."""
        return self.standing(node) is Standing.UP

    def has_directory(self, voter: Voter) -> bool:
        """Whether this is us, or a connected peer, with this very data directory."""
        if voter.node == self._me.node:
            return voter == self._me
        told = self.hellos.get(voter.node)
        return told is not None and _incarnation(told) == voter.incarnation

    def known_incarnation(self, node: NodeId) -> Incarnation | None:
        """The incarnation under which the cluster knows a node: as it registered, or before it
        has, as the cluster group names it."""
        broker = self.state.brokers.get(node)
        if broker is not None:
            return broker.incarnation
        member = (
            None if self.raft_group is None else self.raft_group.membership.configuration.find(node)
        )
        return None if member is None else member.incarnation

    def standing(self, node: NodeId) -> Standing:
        """Up, down, or wiped: there, with another data directory than the cluster knows. Who was
        removed from the cluster, or belongs to another one, is not there."""
        if node == self._me.node:
            return Standing.WIPED if self.wiped else Standing.UP
        told = self.hellos.get(node)
        if told is None:
            return Standing.DOWN
        found = standing(self.known_incarnation(node), _incarnation(told))
        return Standing.DOWN if found is Standing.UP and self.kept_out(node) else found

    def spoken(self, node: NodeId) -> Spoken | None:
        """The levels that a node speaks which is connected now, or this one, by itself: what it
        registered may be of the version that ran there before. None where nobody told them."""
        if node == self._me.node:
            return self.levels.spoken
        return self.hellos.get(node, {}).get(LEVELS)

    def kept_out(self, node: NodeId) -> str:
        """Why a connected peer takes no part; empty where it does."""
        told = self.hellos[node]
        ours = self.state.cluster_id
        if ours and told.get("cluster", 0) not in (0, ours):
            return "it belongs to another cluster"
        if Voter(node, _incarnation(told)) in self.state.layout.brokers.gone:
            return REMOVED
        if standing(self.known_incarnation(node), _incarnation(told)) is Standing.WIPED:
            return "it has another data directory than the cluster knows"
        return ""

    def absent(self) -> list[str]:
        """Registered brokers that are not up as seen from here."""
        return [node for node in self.state.brokers if not self.is_present(node)]

    def not_ready(self) -> str | None:
        """Why this node can't serve yet."""
        if self.levels.problem:
            return self.levels.problem
        if self.outcast is not None:
            return self.outcast.message
        if self.wiped:
            return wiped_text(self._me.node)
        if self.raft_group is None:
            return self.levels.refused or self.reason_not_formed
        if self.raft_group.leader is None or (
            self.raft_group.is_learner and not self.raft_group.voting.hears_leader()
        ):
            return self.levels.refused or "the cluster group has no leader"
        known = self.state.brokers.get(self._me.node)
        if known is None or known.incarnation != self._me.incarnation:
            return "this node is not registered yet"
        if (known.lowest_level, known.highest_level) != (self.levels.lowest, self.levels.highest):
            return "this node has not told the cluster yet which feature levels it speaks"
        return None

    def level_told(self, told: Mapping[str, Any]) -> None:
        """A peer of the same cluster knows a finished level; it is kept before anything that came
        with it is taken from that peer."""
        level, cluster = told.get(FINISHED_LEVEL), told.get("cluster")
        if isinstance(level, int) and cluster and cluster == self.state.cluster_id:
            self.levels.learn(level)

    # Raft's StateMachine

    def apply(self, entry: Entry) -> object:
        command = decode_command(entry.body)
        result = self.state.apply(entry.index, entry.time_ms, command)
        self.levels.applied(self.state.layout.brokers.level)
        self._release_waiters()
        self.changes.applied(command)
        if not isinstance(command, MemberCommand):
            self._on_change()
        return result

    def snapshot(self) -> bytes:
        return self.state.snapshot()

    def found(self, cluster_id: int) -> None:
        """The cluster's id is known, before anything is applied."""
        self.state = ClusterState(cluster_id)

    def restore(self, index: Index, state: bytes) -> None:
        self.state = ClusterState.restore(state)
        self.levels.applied(self.state.layout.brokers.level)
        self._release_waiters()
        self.changes.everything()
        self._on_change()

    def on_leader(self, term: Term) -> None:
        _log.info("cluster_led_here", term=term)
        self.leaderships += 1
        self.changes.everything()
        self._led_by(self._me.node)

    def on_follower(self, leader: NodeId | None) -> None:
        self.changes.everything()
        if leader is not None:
            self._led_by(leader)

    def _led_by(self, leader: NodeId) -> None:
        if self._forwarder is not None:
            self._forwarder.leader_changed(CLUSTER_GROUP, leader)

    def check_outcast(self) -> None:
        """Raises why this node may serve nothing any more, where that is so."""
        if self.outcast is not None:
            raise GoQueueError.from_body(self.outcast.to_body())

    # commands

    def topic(self, name: str) -> Topic:
        """From the applied state; raises `UnknownTopic`, and what made this node an outcast."""
        self.check_outcast()
        topic = self.state.topics.get(name)
        if topic is None:
            raise UnknownTopic(name)
        return topic

    async def command(self, command: Command, deadline_s: float) -> Result:
        """Replicate a command; its result, once this node has applied it.

        Raises what applying it raised; with `outcome` `unknown` where an earlier attempt of the
        same call may have been applied; OutcomeUnknown where it may have been, and another attempt
        could undo what others have done since.
        """
        self.check_outcast()
        if self._forwarder is None or self.wiped:
            raise NotLeader(None)
        self.levels.require(feature_of(command))
        attempts = _Attempts(command, self.applied)
        answer = await self._forwarder.call(
            CLUSTER_GROUP,
            local=lambda left_s: self._propose(attempts.encoded, left_s),
            method=rpc.COMMAND,
            payload=lambda _left_s: attempts.encoded,
            decode=_decode_answer,
            deadline_s=deadline_s,
            has_identity=may_repeat_command(command),
            on_doubt=attempts.on_doubt,
        )
        index, result = answer
        await self.until_applied(index, APPLY_WAIT_S)
        return result

    async def command_here(self, command: Command, deadline_s: float) -> Result:
        """As `command`, where this node leads the cluster group. Raises `NotLeader` elsewhere."""
        _index, result = await self._propose(encode_command(command), deadline_s)
        return result

    async def until_applied(self, index: Index, timeout_s: float) -> None:
        """Return once this node has applied what was applied elsewhere, or it lags for too long."""
        if self.applied >= index:
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters[waiter] = index
        try:
            async with asyncio.timeout(timeout_s):
                await waiter
        except TimeoutError:
            return  # it is done; only this node lags
        finally:
            self._waiters.pop(waiter, None)

    async def refresh(self) -> bool:
        """Whether this node has applied all that was committed before the call: not where no
        leader answers within a moment. Calls share a question, which is asked after all of them."""
        if self._forwarder is None or self.raft_group is None:
            return False
        if self._refresh_next is None:
            self._refresh_next = self._tasks.begin(self._refresh_after(self._refreshing))
        return await asyncio.shield(self._refresh_next)

    async def _refresh_after(self, running: asyncio.Future[bool] | None) -> bool:
        if running is not None:
            await asyncio.wait([running])
        self._refreshing, self._refresh_next = self._refresh_next, None
        assert self._forwarder is not None
        return await self._catch_up(self._forwarder)

    async def _catch_up(self, forwarder: Forwarder) -> bool:
        try:
            index = await forwarder.call(
                CLUSTER_GROUP,
                local=lambda _left_s: self._read_index(),
                method=rpc.CLUSTER_INDEX,
                payload=lambda _left_s: b"",
                decode=lambda answer: _INDEX.unpack(answer)[0],
                deadline_s=REFRESH_S,
                patience_s=0.0,
            )
        except GoQueueError:
            return False
        end_s = asyncio.get_running_loop().time() + REFRESH_S
        while self.raft_group is not None:  # else its log is being replaced
            if self.raft_group.applied_index >= index:
                return True
            if asyncio.get_running_loop().time() > end_s:
                break
            await asyncio.sleep(REFRESH_POLL_S)
        return False

    async def _read_index(self) -> int:
        raft_group = self.raft_group
        if raft_group is None or not raft_group.is_ready_leader:
            raise NotLeader(None if raft_group is None else raft_group.leader)
        done: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def answered(ok: bool, index: Index) -> None:
            if not done.done():
                done.set_result(index if ok else -1)

        raft_group.reads.ask(answered)
        index = await done
        if index < 0:
            raise NotLeader(None)
        return index

    async def _serve_index(self, _peer: NodeId, _payload: bytes) -> bytes:
        return _INDEX.pack(await self._read_index())

    async def _propose(self, encoded: bytes, left_s: float) -> Answer:
        raft_group = self.raft_group
        if raft_group is None or not raft_group.is_ready_leader:
            raise NotLeader(None if raft_group is None else raft_group.leader)
        if self.are_stuck(voter.node for voter in raft_group.membership.voters):
            raise DiskFull(retry_after_s=10)
        done: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

        def ended(outcome: Outcome, result: Result | GoQueueError, index: Index) -> None:
            if done.done():
                return
            if outcome is Outcome.UNKNOWN:
                done.set_exception(OutcomeUnknown())
            elif outcome is Outcome.NONE:
                done.set_exception(NotLeader(raft_group.leader))
            elif isinstance(result, GoQueueError):
                done.set_exception(result)
            else:
                done.set_result((index, result))

        raft_group.propose(EntryKind.COMMAND, encoded, callback=ended)
        try:
            async with asyncio.timeout(left_s):
                return await done
        except TimeoutError:
            raise Timeout("the cluster group did not confirm in time") from None

    async def _serve(self, _peer: NodeId, payload: bytes) -> bytes:
        try:
            decode_command(payload)  # what can't be applied must not be proposed
        except CommandUnreadable as error:
            raise BadRequest(str(error)) from error
        index, result = await self._propose(payload, rpc.COMMAND_TIMEOUT_S)
        return _INDEX.pack(index) + encode_result(result)

    def _release_waiters(self) -> None:
        for waiter, index in self._waiters.items():
            if index <= self.applied and not waiter.done():
                waiter.set_result(None)


class _Attempts:
    """One call's command, as each attempt sends it."""

    def __init__(self, command: Command, applied: Index) -> None:
        self._command = command
        self._applied = applied
        self.encoded = encode_command(command)
        """The next attempt's."""

    def on_doubt(self) -> None:
        """An attempt may have been applied: the next ones are repeats."""
        if isinstance(self._command, CreateTopic):
            self.encoded = encode_command(
                structs.replace(self._command, after=max(self._applied, 1))
            )


def _incarnation(told: Mapping[str, Any]) -> Incarnation:
    return Incarnation(int(told["incarnation"]))


def _decode_answer(payload: bytes) -> Answer:
    return Index(_INDEX.unpack_from(payload)[0]), decode_result(payload[_INDEX.size :])
