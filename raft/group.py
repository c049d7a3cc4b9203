"""One Raft group on one node: its parts, wired together, and what others ask of it."""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from goqueue.wire.types import Incarnation, Index, NodeId, PartitionId, Term, Voter
from log.entry import EntryKind
from log.errors import FrameDamaged, LogError
from raft.apply import Apply
from raft.configuration import Change, Configuration, encode_voters
from raft.election import Election, Leadership
from raft.errors import ConfigurationMismatch, FrameMalformed
from raft.following import Following, Suspect
from raft.frames import FrameKind
from raft.heartbeats import Heartbeats
from raft.interfaces import Environment, Log, RaftGroupHost, SnapshotWork, StateMachine
from raft.log_time import LogClock, LogTime
from raft.membership import Changes, Membership
from raft.outbox import Outbox
from raft.peer import Peer
from raft.proposals import Proposals
from raft.read_index import Read, ReadIndex
from raft.replication import Replication
from raft.roles import Roles
from raft.state import NEVER, Proposed, State
from raft.syncobj import Server
from raft.timer import ElectionTimer
from raft.transfer import Transfer, Transferred
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
        self._founders = founders
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
        self.voting = parts.voting(state, server, roles, timer, outbox, membership)
        delay_s = state.config.evidence_spread_s * (preferred not in (None, state.node))
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
        self._receivers = self._who_receives()

    def _who_receives(self) -> dict[int, Callable[[Peer, memoryview], None]]:
        return {
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
        self._check_founders()
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

    def _check_founders(self) -> None:
        log, founders = self.state.log, self._founders.voters
        if log.first_index != 1 or log.last_index < 1 or not founders:
            return
        entry = log.entries(Index(1), max_count=1)[0]
        if entry.kind == EntryKind.VOTERS and bytes(entry.body) != encode_voters(founders):
            raise ConfigurationMismatch(
                f"group {self.id} was created with other voters than {founders}"
            )

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
        callback: Proposed,
    ) -> Index:
        """Appends an entry now, in call order; its index. The callback fires exactly once.

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
                callback=callback,
            )
        except LogError as error:
            self.roles.fail(error)
            raise

    def change(self, change: Change, callback: Proposed, *, epoch: int = 0) -> Index:
        """Appends the configuration that this makes; it is in force at once. Its entry's index.
        Its epoch is this one, or that of the configuration before, whichever is later.

        The callback tells, exactly once, how it ended, as `propose`'s does. Raises NotLeader,
        ChangeUnderWay, NotCaughtUp, ChangeRefused; nothing was appended then. A leader that removes
        itself leads until that has committed, and then hands over.
        """
        return self.changes.change(change, callback, epoch=epoch)

    def read_index(self, callback: Read) -> None:
        """Calls back with (True, index) once this node is known to have led after this call.

        All entries up to the index are applied then. (False, 0) if it does not lead, is not ready,
        loses leadership, or no majority answers in time. Fires exactly once.
        """
        self.reads.ask(callback)

    def transfer_leadership(
        self, to: NodeId | None = None, callback: Transferred | None = None
    ) -> None:
        """Lets another voter lead: `to`, or the connected one that is furthest ahead.

        Proposals are refused from now on, until it is over. The callback tells whether leadership
        was handed over; if not, this node leads on.
        """
        self.transfer.start(to, callback)

    def take_snapshot(self, *, again: bool = False) -> SnapshotWork | None:
        """The applied state as work for any thread; None while it is ahead of what is durable, and
        where the newest snapshot is as new, unless it is to be stored `again`."""
        return self.apply.take_snapshot(again=again)

    # -- what others may know

    @property
    def id(self) -> PartitionId:
        return self.state.id

    @property
    def node(self) -> NodeId:
        return self.state.node

    @property
    def incarnation(self) -> Incarnation:
        """Of the data directory that this replica is in."""
        return self.state.me.incarnation

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

    @property
    def has_quorum(self) -> bool:
        """Whether a majority of the voters can be reached: a leader's by answers, else by links."""
        return self.election.has_quorum

    @property
    def hears_leader(self) -> bool:
        """Whether a leader is alive as far as this node can know: who has no vote goes on naming
        the last one, however long it is silent."""
        return self.voting.hears_leader()

    @property
    def was_asked_to_lead(self) -> bool:
        """Whether the last campaign was the former leader's wish."""
        return self.voting.was_asked_to_lead

    @property
    def configuration(self) -> Configuration:
        """The one in force here: its index, its voters and its learners."""
        return self.membership.configuration

    @property
    def configuration_before(self) -> Configuration:
        """The newest one that is known here to be committed."""
        return self.membership.before

    @property
    def configuration_committed(self) -> bool:
        """Whether the one in force is known here to be committed: it will stay."""
        return self.membership.is_committed

    @property
    def on_voters(self) -> Callable[[Configuration], None]:
        """Told each configuration once it is applied, in the log's order."""
        return self.membership.on_voters

    @on_voters.setter
    def on_voters(self, told: Callable[[Configuration], None]) -> None:
        self.membership.on_voters = told

    @property
    def voters(self) -> tuple[Voter, ...]:
        """The voters of the configuration in force."""
        return self.membership.configuration.voters

    @property
    def refused(self) -> bool:
        """Whether the configuration names this node with another data directory."""
        return self.membership.is_refused

    def log_time_ms(self) -> int:
        """Log time in milliseconds: a leader's now, never back; elsewhere the newest entry's."""
        return self.log_time.now_ms()

    @property
    def replicated_bytes(self) -> int:
        """Bytes of entries sent to other replicas."""
        return self.replication.replicated_bytes

    def matches(self) -> dict[NodeId, Index]:
        """On a leader, what each voter is known to hold durably; elsewhere only this node's."""
        return self.replication.matches()

    def match_of(self, node: NodeId) -> Index:
        """On a leader, what a replica is known to hold durably, voter or not."""
        return self.replication.match_of(node)

    def caught_up(self, node: NodeId) -> bool:
        """Whether this leader knows that this replica keeps up, so that it may be promoted."""
        return self.replication.caught_up(node)

    def in_step(self, node: NodeId) -> bool:
        """Whether this leader has sent this replica all there is, and is answered: what it may
        lack is on its way. Of itself: whether it can read what it holds."""
        return self.replication.in_step(node)

    @property
    def trim_limit(self) -> Index:
        """The newest index that every voter has and has applied here: trim no further."""
        floor = min(self.matches().values()) if self.is_leader else 0
        return Index(min(floor, self.applied_index))
