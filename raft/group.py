"""One Raft group on one node: its parts, wired together, and what others ask of it."""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from goqueue.wire.types import Index, NodeId, PartitionId, Term, Voter
from log.errors import FrameDamaged, LogError
from raft.apply import Apply
from raft.configuration import Configuration
from raft.election import Election, Leadership
from raft.errors import ConfigurationMismatch, FrameMalformed
from raft.following import Following, Suspect
from raft.frames import FrameKind
from raft.heartbeats import Heartbeats
from raft.interfaces import Environment, Log, RaftGroupHost, StateMachine
from raft.log_time import LogClock, LogTime
from raft.membership import Changes, Membership
from raft.outbox import Outbox
from raft.peer import Peer
from raft.proposals import Proposals
from raft.read_index import ReadIndex
from raft.replication import Replication
from raft.rest.replica import Rest
from raft.roles import Roles
from raft.state import NEVER, Proposed, State
from raft.syncobj import Server
from raft.timer import ElectionTimer
from raft.transfer import Transfer
from raft.voting import Voting

logger = logging.getLogger("raft")

_FROM_LEADER = frozenset((FrameKind.APPEND, FrameKind.BEAT, FrameKind.TIMEOUT_NOW, FrameKind.END))
_FROM_STRANGERS = _FROM_LEADER | {FrameKind.VOTE}
"""Who leads or campaigns may do so by a configuration that is newer than the one known here."""


@dataclass(frozen=True)
class Parts:
    """What a group is made of, each on those above it. Tests put faulty ones in their places."""

    state: type[State] = State
    server: type[Server] = Server
    timer: type[ElectionTimer] = ElectionTimer
    outbox: type[Outbox] = Outbox
    proposals: type[Proposals] = Proposals
    roles: type[Roles] = Roles
    membership: type[Membership] = Membership
    suspect: type[Suspect] = Suspect
    following: type[Following] = Following
    replication: type[Replication] = Replication
    reads: type[ReadIndex] = ReadIndex
    heartbeats: type[Heartbeats] = Heartbeats
    transfer: type[Transfer] = Transfer
    rest: type[Rest] = Rest
    voting: type[Voting] = Voting
    election: type[Election] = Election
    leadership: type[Leadership] = Leadership
    apply: type[Apply] = Apply
    changes: type[Changes] = Changes


class RaftGroup:
    """A replica: leader, follower or learner. Loop thread only; it never blocks, and owns no timer.

    Everything that tells a term, a vote or an acknowledgement leaves after it is durable. A replica
    that would have to break a promise stops itself: `failed` holds why, and its host is told.
    """

    parts = Parts()

    def __init__(
        self,
        id: PartitionId,
        environment: Environment,
        log: Log,
        machine: StateMachine,
        host: RaftGroupHost,
        *,
        voters: Sequence[Voter],
        preferred: NodeId | None = None,
    ) -> None:
        founders = Configuration(tuple(voters))
        if not founders.is_sound():
            raise ConfigurationMismatch(f"group {id}: voters {founders.voters}")
        parts = self.parts
        self.state = state = parts.state(id, environment, log, machine, host)
        self.log_time = LogTime(
            state, LogClock(state.now, environment.clock_ms, environment.peers_clock_offset_ms)
        )
        self.server = server = parts.server(state, self.log_time.make_noop)
        self.timer = timer = parts.timer(state)
        self.outbox = outbox = parts.outbox(state, timer)
        self.proposals = proposals = parts.proposals(state, self.log_time)
        self.roles = roles = parts.roles(state, server, timer, outbox, proposals)
        self.membership = membership = parts.membership(state, roles, founders)
        self.suspect = suspect = parts.suspect(state, outbox)
        self.following = parts.following(state, roles, outbox, membership, suspect)
        self.replication = parts.replication(state, roles, membership, self.log_time)
        self.reads = parts.reads(state)
        self.heartbeats = parts.heartbeats(
            state, roles, outbox, suspect, self.replication, self.reads
        )
        self.transfer = transfer = parts.transfer(state)
        self.rest = parts.rest(state, roles, timer, outbox, membership, self.reads, transfer)
        self.voting = parts.voting(state, server, roles, timer, outbox, membership)
        config = state.config
        # A new group's replicas may be started a while one after the other, where many are founded.
        delay_s = config.evidence_spread_s if log.last_index > 1 else config.election_min_s
        delay_s *= preferred not in (None, state.node)
        self.election = parts.election(
            state, timer, outbox, membership, self.voting, transfer, delay_s
        )
        self.leadership = parts.leadership(
            state, roles, timer, self.log_time, suspect, self.reads, transfer, proposals
        )
        self.apply = parts.apply(state, roles, membership, proposals)
        self.changes = parts.changes(
            state, roles, membership, transfer, self.propose, self.replication.caught_up
        )
        server.on_role = self.leadership.on_role
        server.on_granted = self.voting.grant
        server.on_leading = self.replication.send
        self._receivers: dict[int, Callable[[Peer, memoryview], None]] = {
            FrameKind.APPEND: self.following.on_append,
            FrameKind.ACK: self.replication.on_ack,
            FrameKind.VOTE: self.voting.on_vote,
            FrameKind.VOTE_REPLY: self.voting.on_vote_reply,
            FrameKind.TIMEOUT_NOW: self.voting.on_timeout_now,
            FrameKind.BEAT: self.heartbeats.on_beat,
            FrameKind.BEAT_ANSWER: self.heartbeats.on_beat_answer,
            FrameKind.ASK_END: self.replication.on_ask_end,
            FrameKind.END: self.suspect.on_end,
        }

    # -- life

    def start(self) -> None:
        """Restores the local state snapshot and waits for a leader, or for none."""
        state, log = self.state, self.state.log
        self.membership.check_founders()
        self.apply.restore_snapshot()
        self.membership.load()
        if log.suspect and log.last_index:
            logger.warning(
                "group %s: %s may lack what it acknowledged: it votes only with all others until"
                " it has caught up",
                state.id,
                state.node,
            )
        if state.quorum == 1 and state.self_peer.voter and state.may_campaign:
            self.timer.set(state.now())
        else:
            self.timer.rest()

    def fail(self, error: Exception) -> None:
        """Stops this replica because what it stands on has failed."""
        self.roles.fail(error)

    def stop(self) -> None:
        """Ends this replica: open proposals are answered UNKNOWN, reads fail. Idempotent."""
        self.roles.stop()

    # -- events; the host tells `election` of links and of the deadline

    def receive(self, node: NodeId, frame: memoryview) -> None:
        """A frame from another replica; one that is malformed is dropped whole, and logged."""
        if self.state.halted:
            return
        try:
            kind = frame[0]
            receiver = self._receivers.get(kind)
            if receiver is None:
                raise FrameMalformed(f"kind {kind}")
            peer = self.state.peers.get(node)
            if peer is None and kind in _FROM_STRANGERS:
                peer = self.membership.speaker(node)
            if peer is not None:
                receiver(peer, frame)
        except (struct.error, IndexError, FrameDamaged, FrameMalformed) as error:
            logger.warning("group %s: bad frame from %s dropped: %s", self.id, node, error)

    def receive_beat(
        self, node: NodeId, term: int, commit: int, round_: int
    ) -> tuple[int, int, int] | None:
        """An item of the host's heartbeats; what to answer, if anything."""
        peer = self.membership.speaker(node)
        return None if peer is None else self.heartbeats.take_beat(peer, term, commit, round_)

    def receive_beat_answer(self, node: NodeId, term: int, round_: int, last_index: int) -> None:
        """An item of the answers to the host's heartbeats."""
        peer = self.state.peers.get(node)
        if peer is not None:
            self.heartbeats.take_beat_answer(peer, term, round_, last_index)

    def on_tick(self, now: float) -> None:
        """Every heartbeat while leading: check-quorum, overdue reads, overdue handover."""
        self.leadership.on_tick(now)
        self.changes.leave_when_removed()

    def on_durable(self) -> None:
        """After a sync: tells what waited for it, acknowledges, or counts the leader itself."""
        if not self.state.halted:
            self.outbox.on_durable()

    def flush(self) -> None:
        """The end of a turn: counts, applies, and sends what the turn has brought."""
        state = self.state
        if state.halted:
            return
        leads = state.is_leader
        if leads:
            self.replication.advance_commit()
        self.apply.apply_committed()
        self.changes.leave_when_removed()
        if leads and not state.halted:
            self.reads.flush()
            self.replication.send()
            self.transfer.drive()

    # -- what is asked of a leader

    def propose(
        self,
        kind: int,
        body: bytes | memoryview | Sequence[bytes | memoryview],
        *,
        base_offset: int = 0,
        record_count: int = 0,
        time_ms: int | None = None,
        relaxed: bool = False,
        begins_segment: bool = False,
        callback: Proposed,
    ) -> Index:
        """Appends an entry now, in call order; its index. The callback fires exactly once.

        With `relaxed` it may be lost in a power cut, until the next sync, if this replica is alone
        and `RaftConfig.relaxed_alone` allows it. With `begins_segment`, which needs
        `Feature.TRIMS_OF_SETTLED`, each replica's log has it at the beginning of a segment.

        It never fires during this call. Raises NotLeader unless `is_ready_leader`, StoreFailed, or
        ValueError for a body that is too large; nothing was appended then.
        """
        try:
            return self.proposals.propose(
                kind,
                body,
                base_offset=base_offset,
                record_count=record_count,
                time_ms=time_ms,
                relaxed=relaxed,
                begins_segment=begins_segment,
                callback=callback,
            )
        except LogError as error:
            self.roles.fail(error)
            raise

    # -- what others may know

    @property
    def id(self) -> PartitionId:
        return self.state.id

    @property
    def node(self) -> NodeId:
        return self.state.node

    @property
    def failed(self) -> Exception | None:
        """Why this replica has stopped itself."""
        return self.state.failed

    @property
    def unspoken(self) -> str:
        """Why nothing is applied any more, though this replica goes on storing and voting."""
        return self.state.unspoken

    @property
    def term(self) -> Term:
        return Term(self.state.term)

    @property
    def commit_index(self) -> Index:
        return Index(self.state.commit_index)

    @property
    def applied_index(self) -> Index:
        return Index(self.state.applied_index)

    @property
    def leader(self) -> NodeId | None:
        """Who is believed to lead; the answer may be out of date."""
        return self.state.leader_node

    @property
    def is_leader(self) -> bool:
        """Whether this node leads, ready or not."""
        return self.state.is_leader

    @property
    def is_ready_leader(self) -> bool:
        """Whether `propose` is allowed: leading, own no-op applied, and not handing over."""
        return self.state.is_ready_leader

    @property
    def rests(self) -> bool:
        """Whether it has nothing to do, and the beats of nodes stand for its own."""
        return self.state.resting

    @property
    def is_learner(self) -> bool:
        """Whether this replica, as far as it knows, has no vote."""
        return not self.state.self_peer.voter

    @property
    def peers(self) -> dict[NodeId, Peer]:
        """The other replicas by name, in a fixed order."""
        return self.state.peers

    @property
    def deadline(self) -> float:
        """When the election timer is due, in the scheduler's time."""
        return NEVER if self.state.halted else self.state.deadline
