"""Whom to believe: silence, closed links, and what follows from beginning or ceasing to lead."""

from __future__ import annotations

import logging

from goqueue.wire.types import NodeId
from raft.following import Suspect
from raft.log_time import LogTime
from raft.membership import Membership
from raft.outbox import Outbox
from raft.proposals import Proposals
from raft.read_index import ReadIndex
from raft.roles import Roles
from raft.state import FOLLOWER, LEADER, NEVER, State
from raft.timer import ElectionTimer
from raft.transfer import Transfer
from raft.voting import Voting

logger = logging.getLogger("raft")


class Election:
    """When a leader is believed to be dead or alive."""

    def __init__(
        self,
        state: State,
        timer: ElectionTimer,
        outbox: Outbox,
        membership: Membership,
        voting: Voting,
        transfer: Transfer,
        start_delay_s: float,
    ) -> None:
        self._state = state
        self._host = state.host
        self._timer = timer
        self._outbox = outbox
        self._membership = membership
        self._voting = voting
        self._transfer = transfer
        self._start_delay_s = start_delay_s

    # -- time

    def on_deadline(self, now: float) -> None:
        """No leader has been heard, or no election won, in time."""
        state = self._state
        if state.halted or state.is_leader or not state.may_campaign:
            self._timer.set(NEVER)
        elif self._outbox.holds_campaign or not self._outbox.may_tell():
            self._timer.retry_later(now)  # nobody knows of this term, or of this vote, yet
        else:
            self._voting.start_prevote(now)

    def forgive(self, late_s: float, now: float) -> None:
        """This node itself was stalled for so long: what it missed meanwhile is no evidence against
        others. So its timers have stood still, too: one that always stalls keeps no dead leader."""
        state = self._state
        if state.is_leader:
            for peer in state.peers.values():
                peer.heard_at = min(peer.heard_at + late_s, now)
        elif state.deadline != NEVER:
            self._timer.set(state.deadline + late_s)

    @property
    def has_quorum(self) -> bool:
        """Whether a majority of the voters can be reached: a leader's by answers, else by links."""
        state = self._state
        if not state.may_vote:
            return state.leader is not None
        since = state.now() - state.config.quorum_s
        leads = state.is_leader
        reached = sum(
            1
            for peer in state.peers.values()
            if peer.voter and peer.connected and (not leads or state.heard_at(peer) > since)
        )
        return reached + state.self_peer.voter >= state.quorum

    # -- links

    def peer_connected(self, node: NodeId, patience_s: float) -> None:
        """A link is up: what was in flight before is lost. `patience_s` is how much longer than a
        heartbeat a leader's word may take."""
        state, config = self._state, self._state.config
        peer = state.peers.get(node)
        if peer is None or state.halted or not self._membership.is_linked(node):
            return
        peer.connected = True
        self._host.release(node, peer.reset())
        if state.is_leader:
            if state.match_index[peer]:
                state.next_index[peer] = state.match_index[peer] + 1
            if state.resting:
                self._host.rest_with(node)
            else:
                self._host.wake()
        elif state.leader is None and peer.voter and state.may_campaign:
            # Whoever leads is heard within one heartbeat; if nobody does, there is nothing to wait.
            wait = config.heartbeat_s + config.evidence_spread_s * state.rng.random()
            at = state.now() + wait + patience_s + self._start_delay_s
            if at < state.deadline:
                self._timer.set(at)

    def peer_disconnected(self, node: NodeId) -> None:
        """A link is closed. If it led to the leader, that is evidence: a pre-vote at once."""
        state = self._state
        peer = self._membership.unlink(node)
        if peer is None or state.halted:
            return
        self._transfer.peer_lost(peer)
        if state.leader is peer and state.role == FOLLOWER:
            self._timer.leader_heard_at = -NEVER
            if state.may_campaign:
                spread = state.config.evidence_spread_s * state.rng.random()
                self._timer.set(state.now() + spread)


class Leadership:
    """What this replica does as it begins to lead, every heartbeat meanwhile, and in the end."""

    def __init__(
        self,
        state: State,
        roles: Roles,
        timer: ElectionTimer,
        log_time: LogTime,
        suspect: Suspect,
        reads: ReadIndex,
        transfer: Transfer,
        proposals: Proposals,
    ) -> None:
        self._state = state
        self._host = state.host
        self._roles = roles
        self._timer = timer
        self._log_time = log_time
        self._suspect = suspect
        self._reads = reads
        self._transfer = transfer
        self._proposals = proposals

    def on_role(self, old: int, new: int) -> None:
        """PySyncObj's own hook: every way into and out of leadership passes here."""
        if new == LEADER:
            self._begin()
        elif old == LEADER:
            self._end()

    def _begin(self) -> None:
        state = self._state
        now = state.now()
        self._timer.attempts = 0
        if state.log.suspect:
            self._suspect.caught_up()  # every voter has granted: nobody holds more than this log
        self._log_time.start()
        self._reads.begin()
        for peer in state.peers.values():
            self._host.release(peer.node, peer.reset())
            peer.heard_at = now
        self._timer.set(NEVER)
        self._host.led(True)
        self._host.wake()
        logger.info("group %s: %s leads in term %d", state.id, state.node, state.term)

    def _end(self) -> None:
        state = self._state
        state.leader = None
        for peer in state.peers.values():
            self._host.release(peer.node, peer.reset())
        self._host.led(False)
        self._transfer.leadership_lost()
        self._reads.fail()
        self._proposals.leadership_lost()
        self._timer.rest()

    def on_tick(self, now: float) -> None:
        """Check-quorum, overdue reads, overdue handover."""
        state = self._state
        if not state.is_leader:
            return
        self._reads.fail(now)
        self._transfer.check(now)
        if state.heard_voters(now - state.config.quorum_s) < state.quorum:
            logger.warning("group %s: %s hears no majority and steps down", state.id, state.node)
            self._roles.step_down()
