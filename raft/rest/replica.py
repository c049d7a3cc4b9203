"""Rest: a group that has nothing to say sends no beats, and its followers watch no timer.

CockroachDB calls it quiescence. While a group rests, one beat between each two nodes stands for all
groups that rest between them (`raft.rest.beats`). Whether a leader is believed in decides who
campaigns, never what is committed: what goes wrong here costs an election, and no entry.
"""

from __future__ import annotations

from collections.abc import Iterable

from goqueue.wire.types import NodeId
from raft.membership import Membership
from raft.outbox import Outbox
from raft.peer import Peer
from raft.read_index import ReadIndex
from raft.roles import Roles
from raft.state import FOLLOWER, NEVER, State
from raft.timer import ElectionTimer
from raft.transfer import Transfer

REFUSALS_MAX = 7
"""After so many refusals a leader waits no longer before it asks again: 128 times as long."""


class Rest:
    """One replica's rest; `State.resting` tells whether it rests. Its host begins and ends it."""

    def __init__(
        self,
        state: State,
        roles: Roles,
        timer: ElectionTimer,
        outbox: Outbox,
        membership: Membership,
        reads: ReadIndex,
        transfer: Transfer,
    ) -> None:
        self._state = state
        self._log = state.log
        self._roles = roles
        self._timer = timer
        self._outbox = outbox
        self._membership = membership
        self._reads = reads
        self._transfer = transfer
        self._quiet_beats = 0
        self._refusals = 0
        """So often a follower did not rest, one after the other, with the log as it is."""
        self._quiet_index = 0
        """Where the log ended at the beat before."""

    def is_due(self) -> bool:
        """Asked by the host before each beat while this replica leads: whether it may go to rest
        now. At least one beat is sent first, which finds who does not follow it yet; more, where
        nothing was appended since it was roused: whoever has acknowledged an entry follows it."""
        last, quiet_beats = self._log.last_index, self._state.config.quiet_beats
        if last != self._quiet_index:
            self._quiet_index, self._quiet_beats, self._refusals = last, quiet_beats, 0
        elif not self._has_nothing_to_do(last):
            self._quiet_beats = 0
        elif self._quiet_beats >= quiet_beats << self._refusals:
            return True
        else:
            self._quiet_beats += 1
        return False

    def begin(self) -> None:
        """This leader rests: every other replica is asked to."""
        self._quiet_beats = 0
        self._state.resting = True

    def refused(self) -> None:
        """A follower does not rest, which may be so for long, as one that is damaged never does:
        this leader waits twice as long before it asks again."""
        self._refusals = min(self._refusals + 1, REFUSALS_MAX)

    def accept(self, node: NodeId, term: int, last_index: int) -> bool:
        """A leader goes to rest, or rests, whose log ends here and is committed whole: whether this
        replica follows it, and holds the same. One that knows of no leader may not have heard of it
        yet, as after a start, and follows it now: where the last entry is of the leader's own
        term, and stands at the same index, all before it is the same."""
        state = self._state
        if state.halted or state.role != FOLLOWER or term != state.term:
            return False
        if self._log.suspect or self._log.quarantined or not self._outbox.may_tell():
            return False
        if self._log.last_term != term:
            return False
        if not self._log.last_index == self._log.durable_index == last_index:
            return False
        if state.leader is None:
            peer = self._membership.speaker(node)
            if peer is None or not self._roles.follow(peer, term):
                return False
        elif state.leader.node != node:
            return False
        state.commit_to(last_index)
        self._timer.set(NEVER)
        state.resting = True
        return True

    def goes_on_without(self, node: NodeId) -> bool:
        """Whether this leader, which rests, reaches a majority without this node."""
        return self._is_majority(peer for peer in self._there() if peer.node != node)

    def end(self) -> None:
        """From now on this replica counts what it hears itself; until now its nodes have spoken for
        the others."""
        state = self._state
        if not state.resting:
            return
        for peer in state.peers.values():
            peer.heard_at = state.heard_at(peer)
        if not state.is_leader and state.leader is not None:
            self._timer.hear_leader(self._timer.leader_was_heard_at)
        state.resting = False

    # -- private

    def _has_nothing_to_do(self, last_index: int) -> bool:
        state = self._state
        if not state.is_ready_leader or self._transfer.under_way or self._reads.are_open:
            return False
        if not last_index == state.applied_index == self._log.durable_index:
            return False
        if state.waiting or not state.self_peer.voter or not self._membership.is_committed:
            return False
        there = self._there()
        if not self._is_majority(there):
            return False
        since = state.now() - state.config.quorum_s / 2
        return all(self._holds_all(peer, last_index) and peer.heard_at > since for peer in there)

    def _there(self) -> list[Peer]:
        return [peer for peer in self._state.peers.values() if peer.connected]

    def _is_majority(self, there: Iterable[Peer]) -> bool:
        """Together with this replica, which votes."""
        return 1 + sum(peer.voter for peer in there) >= self._state.quorum

    def _holds_all(self, peer: Peer, last_index: int) -> bool:
        """Whether it has said so since its link was made: before, it may have been another."""
        told = not peer.probing and not peer.behind
        return told and self._state.match_index[peer] == last_index
