"""Whom to believe: silence, closed links, newer terms; beginning and ceasing to lead."""

from __future__ import annotations

import logging

from goqueue.wire.types import NodeId
from raft.errors import Unsafe
from raft.peer import Peer
from raft.syncobj import FOLLOWER, LEADER
from raft.voting import NEVER, Voting

logger = logging.getLogger("raft")


class Elections(Voting):
    """When a leader is believed to be dead or alive, and what follows from it."""

    _start_delay_s = 0.0

    # -- time

    def on_deadline(self, now: float) -> None:
        """No leader has been heard, or no election won, in time."""
        if self._halted or self._SyncObj__raftState == LEADER or not self._may_campaign():
            self._set_deadline(NEVER)
        elif self._campaign_untold or not self._may_tell():
            self._retry_later(now)  # nobody knows of this term, or of this vote, yet
        else:
            self._start_prevote(now)

    def on_tick(self, now: float) -> None:
        """Every heartbeat while leading: check-quorum, overdue reads, overdue handover."""
        if self._SyncObj__raftState != LEADER:
            return
        self._fail_reads(now)
        self._check_transfer(now)
        if self._heard_voters(now - self._config.quorum_s) < self._quorum:
            logger.warning("group %s: %s hears no majority and steps down", self.id, self.node)
            self._step_down()

    def forgive(self, now: float) -> None:
        """This node itself was stalled: what it missed meanwhile is no evidence against others."""
        if self._SyncObj__raftState == LEADER:
            for peer in self._peers.values():
                peer.heard_at = max(peer.heard_at, now - self._config.quorum_s / 2)
        elif self._SyncObj__raftElectionDeadline < now + self._config.heartbeat_s:
            spread = self._config.evidence_spread_s * self._rng.random()
            self._set_deadline(now + self._config.heartbeat_s + spread)

    @property
    def has_quorum(self) -> bool:
        """Whether a majority of the voters can be reached: a leader's by answers, else by links."""
        if not self._may_vote:
            return self._SyncObj__raftLeader is not None
        since = self._scheduler.now() - self._config.quorum_s
        leads = self._SyncObj__raftState == LEADER
        reached = sum(
            1
            for peer in self._peers.values()
            if peer.voter and peer.connected and (not leads or peer.heard_at > since)
        )
        return reached + self._self_peer.voter >= self._quorum

    @property
    def hears_leader(self) -> bool:
        """Whether a leader is alive as far as this node can know: who has no vote goes on naming
        the last one, however long it is silent."""
        return self._hears_leader()

    # -- following and leading

    def _newer_term(self, term: int) -> None:
        """Someone is ahead: follow, without knowing a leader yet."""
        self._prevotes = None
        self._SyncObj__setCurrentTerm(term, None)
        self._SyncObj__setState(FOLLOWER)
        self._set_leader(None)
        self._rest()

    def _follow(self, peer: Peer, term: int) -> bool:
        """A leader of this or a newer term speaks; False where that can't be."""
        now = self._scheduler.now()
        mine = self._SyncObj__raftCurrentTerm
        if term == mine and self._SyncObj__raftLeader is peer:
            self._leader_heard_at = now
            if self._timeout_s:
                self._set_deadline(now + self._timeout_s)
            return True
        if term == mine and self._SyncObj__raftState == LEADER:
            self._fail(Unsafe(f"group {self.id}: {peer.node} also leads in term {term}"))
            return False
        if term > mine:
            self._SyncObj__setCurrentTerm(term, None)
        self._prevotes = None
        self._SyncObj__setState(FOLLOWER)
        self._ack_due = self._acked = 0
        self._attempts = 0
        self._leader_heard_at = now
        self._rest()
        if not self._may_campaign():
            self._timeout_s = 0.0
        self._set_leader(peer)
        return True

    def _step_down(self) -> None:
        self._SyncObj__setState(FOLLOWER)
        self._set_leader(None)
        self._rest()

    def _on_state_changed(self, old: int, new: int) -> None:
        """PySyncObj's own hook: every way into and out of leadership passes here."""
        if new == LEADER:
            self._begin_to_lead()
        elif old == LEADER:
            self._SyncObj__raftLeader = None
            for peer in self._peers.values():
                self._host.release(peer.node, peer.reset())
            self._host.led(False)
            self._end_transfer(self._transfer is not None and self._transfer.told)
            self._fail_reads()
            self._leadership_lost()
            self._rest()

    def _begin_to_lead(self) -> None:
        now = self._scheduler.now()
        self._attempts = 0
        if self._log.suspect:
            self._caught_up()  # every voter has granted: nobody holds more than this log
        self._start_log_time()
        self._lead_reads()
        for peer in self._peers.values():
            self._host.release(peer.node, peer.reset())
            peer.heard_at = now
        self._set_deadline(NEVER)
        self._host.led(True)
        self._host.wake()
        logger.info(
            "group %s: %s leads in term %d", self.id, self.node, self._SyncObj__raftCurrentTerm
        )

    # -- links

    def peer_connected(self, node: NodeId) -> None:
        """A link is up: what was in flight before is lost."""
        peer = self._peers.get(node)
        if peer is None or self._halted or not self._is_linked(node):
            return
        peer.connected = True
        self._SyncObj__connectedNodes.add(peer)
        self._host.release(node, peer.reset())
        if self._SyncObj__raftState == LEADER:
            if self._SyncObj__raftMatchIndex[peer]:
                self._SyncObj__raftNextIndex[peer] = self._SyncObj__raftMatchIndex[peer] + 1
            self._host.wake()
        elif self._SyncObj__raftLeader is None and peer.voter and self._may_campaign():
            # Whoever leads is heard within one heartbeat; if nobody does, there is nothing to wait.
            config = self._config
            wait = config.heartbeat_s + config.evidence_spread_s * self._rng.random()
            at = self._scheduler.now() + wait + self._start_delay_s
            if at < self._SyncObj__raftElectionDeadline:
                self._set_deadline(at)

    def peer_disconnected(self, node: NodeId) -> None:
        """A link is closed. If it led to the leader, that is evidence: a pre-vote at once."""
        peer = self._peers.get(node) or self._strangers.pop(node, None)
        if peer is None or not peer.connected:
            return
        peer.connected = False
        self._SyncObj__connectedNodes.discard(peer)
        self._host.release(node, peer.reset())
        if self._halted:
            return
        if self._transfer is not None and self._transfer.peer is peer:
            self._end_transfer(False)
        if self._SyncObj__raftLeader is peer and self._SyncObj__raftState == FOLLOWER:
            self._leader_heard_at = -NEVER
            if self._may_campaign():
                now = self._scheduler.now()
                self._set_deadline(now + self._config.evidence_spread_s * self._rng.random())
