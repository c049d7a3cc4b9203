"""Follower, candidate, leader, or stopped: how a replica becomes a follower, and how it ends.

Becoming a candidate is `raft.voting`'s, becoming a leader PySyncObj's; what follows from leading
stands in `raft.election`. The state machine is told whom it follows, and when it may serve.
"""

from __future__ import annotations

import logging

from goqueue.wire.types import NodeId, Term
from raft.errors import Unsafe
from raft.outbox import Outbox
from raft.peer import Peer
from raft.proposals import Proposals
from raft.state import FOLLOWER, LEADER, NEVER, State
from raft.syncobj import Server
from raft.timer import ElectionTimer

logger = logging.getLogger("raft")


class Roles:
    """Whom this replica believes to lead, itself included."""

    def __init__(
        self,
        state: State,
        server: Server,
        timer: ElectionTimer,
        outbox: Outbox,
        proposals: Proposals,
    ) -> None:
        self._state = state
        self._server = server
        self._timer = timer
        self._outbox = outbox
        self._proposals = proposals
        self._announced: tuple[NodeId | None] | None = None

    # -- following

    def newer_term(self, term: int) -> None:
        """Someone is ahead: follow, without knowing a leader yet."""
        self._state.prevotes = None
        self._server.save_term(term, None)
        self._server.take_role(FOLLOWER)
        self.set_leader(None)
        self._timer.rest()

    def follow(self, peer: Peer, term: int) -> bool:
        """A leader of this or a newer term speaks; False where that can't be."""
        state = self._state
        now = state.now()
        if term == state.term and state.leader is peer:
            self._timer.hear_leader(now)
            return True
        if term == state.term and state.role == LEADER:
            self.fail(Unsafe(f"group {state.id}: {peer.node} also leads in term {term}"))
            return False
        if term > state.term:
            self._server.save_term(term, None)
        state.prevotes = None
        self._server.take_role(FOLLOWER)
        self._outbox.forget_acks()
        self._timer.attempts = 0
        self._timer.leader_heard_at = now
        self._timer.rest_unless_voter()
        self.set_leader(peer)
        return True

    def step_down(self) -> None:
        self._server.take_role(FOLLOWER)
        self.set_leader(None)
        self._timer.rest()

    def vote_changed(self) -> None:
        """This replica may campaign now, or may no longer."""
        if self._state.role != LEADER:
            self._state.prevotes = None
            self._timer.rest_unless_voter()

    def stand_by(self) -> None:
        """It can apply no more: as a candidate it would be elected, and never serve."""
        if self._state.role != FOLLOWER:
            self._server.take_role(FOLLOWER)
            self._state.leader = None
        self.vote_changed()
        self._timer.set(NEVER)
        self._proposals.answer_unknown()
        self.announce()

    # -- what the state machine is told

    def set_leader(self, peer: Peer | None) -> None:
        self._state.leader = peer
        self.announce()

    def announce(self) -> None:
        """Tells the state machine whom it follows, when that has changed."""
        state = self._state
        leader = state.leader_node
        if state.is_leader or self._announced == (leader,):
            return
        self._announced = (leader,)
        state.machine.on_follower(leader)

    def serve(self) -> None:
        """The no-op of this leadership has applied."""
        state = self._state
        if state.is_leader and state.ready_term != state.term:
            state.ready_term = state.term
            self._announced = None
            state.machine.on_leader(Term(state.term))

    # -- stopping

    def fail(self, error: Exception) -> None:
        """Stops this replica loudly: it neither votes, leads, acknowledges nor applies again."""
        state = self._state
        if state.halted:
            return
        state.failed = error
        logger.error("group %s on %s stopped: %s", state.id, state.node, error)
        self._halt()
        state.host.failed(error)

    def stop(self) -> None:
        """Ends this replica: open proposals are answered UNKNOWN, reads fail. Idempotent."""
        if not self._state.halted:
            self._state.stopped = True
            self._halt()

    def _halt(self) -> None:
        if self._state.is_leader:
            self._server.take_role(FOLLOWER)
        self._state.leader = None
        self._timer.set(NEVER)
        self._proposals.answer_unknown()
        self.announce()
