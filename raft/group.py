"""One Raft group on one node."""

from __future__ import annotations

import logging
import random
import struct
from collections import deque
from collections.abc import Callable, Sequence

from goqueue.wire.types import GroupId, Incarnation, Index, NodeId, Voter
from log.entry import EntryKind
from log.errors import FrameDamaged
from raft.changes import Changes
from raft.config import RaftConfig
from raft.configuration import Configuration
from raft.errors import ConfigurationMismatch, FrameMalformed
from raft.frames import FrameKind
from raft.interfaces import GroupHost, Log, Network, Scheduler, StateMachine
from raft.log_time import LogClock
from raft.peer import Peer
from raft.syncobj import LEADER
from raft.voters import encode_voters
from raft.voting import NEVER

logger = logging.getLogger("raft")

_FROM_LEADER = frozenset((FrameKind.APPEND, FrameKind.BEAT, FrameKind.TIMEOUT_NOW, FrameKind.END))
_FROM_STRANGERS = _FROM_LEADER | {FrameKind.VOTE}
"""Who leads or campaigns may do so by a configuration that is newer than the one known here."""


class RaftGroup(Changes):
    """A replica: leader, follower or learner. Loop thread only; it never blocks, and owns no timer.

    Everything that tells a term, a vote or an acknowledgement leaves after it is durable. A replica
    that would have to break a promise stops itself: `failed` holds why, and its host is told.
    """

    def __init__(
        self,
        *,
        id: GroupId,
        node: NodeId,
        incarnation: Incarnation,
        voters: Sequence[Voter],
        learners: Sequence[NodeId] = (),
        log: Log,
        network: Network,
        scheduler: Scheduler,
        rng: random.Random,
        clock_ms: Callable[[], int],
        state: StateMachine,
        config: RaftConfig,
        host: GroupHost,
        peers_clock_offset_ms: Callable[[], float | None] | None = None,
        preferred: NodeId | None = None,
    ) -> None:
        founders = Configuration(tuple(voters))
        if not founders.is_sound():
            raise ConfigurationMismatch(f"group {id}: voters {founders.voters}")
        self._untold = []
        self._unapplied = deque()
        self._votes = set()
        self._refusals = set()
        self._suspects = set()
        self._reads = []
        self._rounds = deque()
        self._confirmed = deque()
        self._founders = founders
        self._start_delay_s = config.evidence_spread_s * (preferred not in (None, node))
        super().__init__(
            id=id,
            node=node,
            incarnation=incarnation,
            configuration=founders,
            readers=learners,
            log=log,
            network=network,
            scheduler=scheduler,
            rng=rng,
            clock=LogClock(scheduler.now, clock_ms, peers_clock_offset_ms),
            state=state,
            config=config,
            host=host,
        )
        self._receivers: dict[int, Callable[[Peer, memoryview], None]] = {
            FrameKind.APPEND: self._on_append,
            FrameKind.ACK: self._on_ack,
            FrameKind.VOTE: self._on_vote,
            FrameKind.VOTE_REPLY: self._on_vote_reply,
            FrameKind.TIMEOUT_NOW: self._on_timeout_now,
            FrameKind.BEAT: self._on_beat,
            FrameKind.BEAT_ANSWER: self._on_beat_answer,
            FrameKind.ASK_END: self._on_ask_end,
            FrameKind.END: self._on_end,
        }

    def start(self) -> None:
        """Restores the local state snapshot and waits for a leader, or for none."""
        self._check_founders()
        self._restore_snapshot()
        self._load_configurations()
        if self._log.suspect and self._log.last_index:
            logger.warning(
                "group %s: %s may lack what it acknowledged: it votes only with all others until"
                " it has caught up",
                self.id,
                self.node,
            )
        if self._quorum == 1 and self._self_peer.voter and self._may_campaign():
            self._set_deadline(self._scheduler.now())
        else:
            self._rest()

    def _check_founders(self) -> None:
        if self._log.first_index != 1 or self._log.last_index < 1 or not self._founders.voters:
            return
        entry = self._log.entries(Index(1), max_count=1)[0]
        if entry.kind == EntryKind.VOTERS and bytes(entry.body) != encode_voters(
            self._founders.voters
        ):
            raise ConfigurationMismatch(
                f"group {self.id} was created with other voters than {self._founders.voters}"
            )

    def fail(self, error: Exception) -> None:
        """Stops this replica because what it stands on has failed."""
        self._fail(error)

    # -- frames

    def receive(self, node: NodeId, frame: memoryview) -> None:
        """A frame from another replica; one that is malformed is dropped whole, and logged."""
        if self._halted:
            return
        try:
            kind = frame[0]
            receiver = self._receivers.get(kind)
            if receiver is None:
                raise FrameMalformed(f"kind {kind}")
            peer = self._peers.get(node)
            if peer is None and kind in _FROM_STRANGERS:
                peer = self._speaker(node)
            if peer is not None:
                receiver(peer, frame)
        except (struct.error, IndexError, FrameDamaged, FrameMalformed) as error:
            logger.warning("group %s: bad frame from %s dropped: %s", self.id, node, error)

    def receive_beat(
        self, node: NodeId, term: int, commit: int, round_: int
    ) -> tuple[int, int, int] | None:
        """An item of the host's heartbeats; what to answer, if anything."""
        peer = self._speaker(node)
        return None if peer is None else self.take_beat(peer, term, commit, round_)

    def receive_beat_answer(self, node: NodeId, term: int, round_: int, last_index: int) -> None:
        """An item of the answers to the host's heartbeats."""
        peer = self._peers.get(node)
        if peer is not None:
            self.take_beat_answer(peer, term, round_, last_index)

    def flush(self) -> None:
        """The end of a turn: counts, applies, and sends what the turn has brought."""
        if self._halted:
            return
        leads = self._SyncObj__raftState == LEADER
        if leads:
            self._advance_commit()
        self._SyncObj__applyLogEntries()
        self._leave_when_removed()
        if leads and not self._halted:
            self._flush_reads()
            self._SyncObj__sendAppendEntries()
            self._drive_transfer()

    # -- what others may know

    @property
    def peers(self) -> dict[NodeId, Peer]:
        """The other replicas by name, in a fixed order."""
        return self._peers

    @property
    def deadline(self) -> float:
        """When `on_deadline` is due, in the scheduler's time."""
        return self._SyncObj__raftElectionDeadline if not self._halted else NEVER

    def matches(self) -> dict[NodeId, Index]:
        """On a leader, what each voter is known to hold durably; elsewhere only this node's."""
        if not self.is_leader:
            return {self.node: self._log.durable_index}
        return {
            name: Index(match) for name, match in zip(self._voters, self._matched(), strict=True)
        }

    def match_of(self, node: NodeId) -> Index:
        """On a leader, what a replica is known to hold durably, voter or not."""
        peer = self._peers.get(node)
        if peer is None:
            return self._log.durable_index if node == self.node else Index(0)
        return Index(self._SyncObj__raftMatchIndex[peer])

    @property
    def trim_limit(self) -> Index:
        """The newest index that every voter has and has applied here: trim no further."""
        floor = min(self.matches().values()) if self.is_leader else 0
        return Index(min(floor, self.applied_index))

    def status(self) -> dict[str, object]:
        """Facts for statistics and debugging, as JSON values."""
        return {
            "group": str(self.id),
            "state": ("follower", "candidate", "leader")[self._SyncObj__raftState],
            "leader": self.leader,
            "term": self.term,
            "commit_index": self.commit_index,
            "applied_index": self.applied_index,
            "first_index": self._log.first_index,
            "last_index": self._log.last_index,
            "durable_index": self._log.durable_index,
            "has_quorum": self.has_quorum,
            "configuration": {
                "index": self.configuration.index,
                "committed": self.configuration_committed,
                "voters": [voter.node for voter in self.configuration.voters],
                "learners": [learner.node for learner in self.configuration.learners],
            },
            "matches": dict(self.matches()),
            "behind": [peer.node for peer in self._peers.values() if peer.behind],
            "failed": None if self.failed is None else str(self.failed),
        }
