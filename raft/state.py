"""The state of one replica, which its parts share: what figure 2 of the Raft paper names, who
belongs to the group, and what the replica runs on.

Plain data. `raft.syncobj` lets PySyncObj read and write the very same fields.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable
from typing import Any, TypeVarTuple

from goqueue.wire.types import Incarnation, Index, NodeId, PartitionId
from raft.errors import Outcome
from raft.interfaces import Environment, Log, RaftGroupHost, StateMachine
from raft.peer import Peer

logger = logging.getLogger("raft")
Args = TypeVarTuple("Args")

FOLLOWER, CANDIDATE, LEADER = 0, 1, 2
"""PySyncObj's `_RAFT_STATE`."""
NEVER = float("inf")

Proposed = Callable[[Outcome, Any, Index], None]
"""(outcome, the state machine's result if APPLIED, the entry's index)."""


class State:
    """One replica's. Each field says who writes it, where that is not PySyncObj with `Roles`."""

    def __init__(
        self,
        id: PartitionId,
        environment: Environment,
        log: Log,
        machine: StateMachine,
        host: RaftGroupHost,
    ) -> None:
        self.id = id
        self.me = environment.me
        self.node = environment.me.node
        self.log = log
        self.machine = machine
        self.host = host
        self.network = environment.network
        self.scheduler = environment.scheduler
        self.now = environment.scheduler.now
        self.rng = environment.rng
        self.config = environment.config
        self._begin_empty()
        self._begin_without_peers()
        self.stopped = False
        self.failed: Exception | None = None
        """Why this replica has stopped itself."""
        self.unspoken = ""
        """Why nothing is applied any more: a later version wrote what comes next. This replica goes
        on voting and storing, so that it is whole once that version runs here; it does not lead."""

    def _begin_empty(self) -> None:
        self.role = FOLLOWER
        self.term = 0
        self.voted_for: str | None = None
        self.leader: Peer | None = None
        """Who is believed to lead."""
        self.deadline = NEVER
        """When the next suspicion is due: `ElectionTimer`."""
        self.prevotes: set[Peer] | None = None
        """Who would vote for this replica; None while it does not ask: `Voting`."""
        self.votes_count = 0
        self.campaign_flags = 0
        """Of the last campaign, as in its frames: `Voting`."""
        self.commit_index = 0
        self.applied_index = 0
        self.noop_index: int | None = None
        """Where this leadership began."""
        self.ready_term = 0
        """The term whose own no-op this leader has applied."""
        self.handing_over = False
        """Whether proposals are refused, as another is to lead: `Transfer`."""
        self.next_index: dict[Peer, int] = {}
        self.match_index: dict[Peer, int] = {}
        """Of each peer while this replica leads: what to send next, what it holds durably."""
        self.resting = False
        """Whether nodes' beats stand for those of this group: `Rest`."""
        self.waiting: defaultdict[int, list[tuple[int, Proposed]]] = defaultdict(list)
        """Terms and callbacks of proposals, by the index of their entries: `Proposals`."""

    def _begin_without_peers(self) -> None:
        """What follows from the configuration in force; `Membership` writes it."""
        self.self_peer = Peer(self.node, voter=False)
        self.peers: dict[NodeId, Peer] = {}
        """The other replicas by name, in a fixed order."""
        self.other_voters: set[Peer] = set()
        self.other_learners: set[Peer] = set()
        self.voters: tuple[NodeId, ...] = ()
        self.quorum = 1
        self.incarnations: dict[NodeId, Incarnation] = {}
        self.may_vote = False
        """Whether this replica, of this data directory, campaigns."""

    def recover(self) -> None:
        """Takes from the log all that outlives a restart.

        Nothing is taken as committed but what the newest state snapshot holds: the commit index is
        learnt again from a leader, and never lies beyond the log's end.
        """
        hard = self.log.hard_state
        self.term = max(hard.term, self.log.last_term)
        self.voted_for = hard.vote if hard.term == self.term else None
        self.commit_index = 0
        self.applied_index = 0

    # -- what follows from it

    @property
    def halted(self) -> bool:
        """Whether it was stopped, or has stopped itself: it does nothing more."""
        return self.stopped or self.failed is not None

    @property
    def is_leader(self) -> bool:
        """Whether this node leads, ready or not."""
        return self.role == LEADER

    @property
    def is_ready_leader(self) -> bool:
        """Whether proposals are taken: leading, own no-op applied, and not handing over."""
        return self.role == LEADER and self.ready_term == self.term and not self.handing_over

    @property
    def leader_node(self) -> NodeId | None:
        """Who is believed to lead; the answer may be out of date."""
        return None if self.leader is None else self.leader.node

    @property
    def may_campaign(self) -> bool:
        """Whether this replica may ask for votes: it has one, and can read what it holds."""
        able = self.may_vote and self.log.last_index > 0 and not self.log.quarantined
        return able and not self.unspoken

    def heard_at(self, peer: Peer) -> float:
        """When this follower answered; while the group rests, its node answers for it."""
        if not self.resting:
            return peer.heard_at
        return max(peer.heard_at, self.host.answered_at(peer.node))

    def heard_voters(self, since: float) -> int:
        """How many voters, this one included, have been heard after this time."""
        heard = sum(1 for peer in self.peers.values() if peer.voter and self.heard_at(peer) > since)
        return heard + self.self_peer.voter

    def matched(self) -> list[int]:
        """What each voter is known to hold durably, in the order of their names."""
        match, peers = self.match_index, self.peers
        return [
            match[peers[name]] if name in peers else self.log.durable_index for name in self.voters
        ]

    # -- what every part does

    def commit_to(self, index: int) -> None:
        """Entries up to here are committed, and applied at the end of this turn."""
        if index > self.commit_index:
            self.commit_index = index
            self.host.wake()

    def send(self, peer: Peer, *parts: bytes) -> bool:
        """Sends a frame of this group in parts; False where there is no link."""
        return self.network.send(peer.node, self.id, list(parts))

    def draw_timeout_s(self) -> float:
        """A random election timeout."""
        low, high = self.config.election_min_s, self.config.election_max_s
        return low + (high - low) * self.rng.random()

    def call_back(self, callback: Callable[[*Args], object], *args: *Args) -> None:
        """What a caller's callback raises is the caller's affair, not the group's."""
        try:
            callback(*args)
        except Exception:
            logger.exception("group %s: a callback failed", self.id)
