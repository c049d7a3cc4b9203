"""What must not be told before it is durable: answers, acknowledgements, a candidate's own vote."""

from __future__ import annotations

from collections.abc import Callable

from raft import frames
from raft.peer import Peer
from raft.state import FOLLOWER, LEADER, State
from raft.timer import ElectionTimer

UNTOLD_MAX = 1024
"""Answers waiting for one sync; more are lost, as a network may lose them."""


class Outbox:
    """Frames that give away this replica's term, vote or entries leave after the sync of these."""

    def __init__(self, state: State, timer: ElectionTimer) -> None:
        self._state = state
        self._log = state.log
        self._host = state.host
        self._timer = timer
        self._untold: list[tuple[int, Peer, bytes]] = []
        self._campaign: Callable[[], None] | None = None
        self._acked = 0
        self.ack_due = 0
        """The newest entry that the leader is to be told of, once it is durable."""

    # -- term and vote

    def may_tell(self) -> bool:
        """Whether the current term and vote are durable, so that others may learn of them."""
        return self._log.hard_state_durable

    def tell(self, peer: Peer, frame: bytes) -> None:
        """Sends a frame that gives away this node's term or vote, once these are durable."""
        if self.may_tell():
            self._state.send(peer, frame)
        else:
            if len(self._untold) < UNTOLD_MAX:
                self._untold.append((self._state.term, peer, frame))
            self._host.await_durable()

    def campaign(self, ask_for_votes: Callable[[], None]) -> None:
        """Asks for votes once the new term and the own vote in it are durable."""
        self._campaign = ask_for_votes
        if self.may_tell():
            self._ask_for_votes()
        else:
            self._host.await_durable()

    @property
    def holds_campaign(self) -> bool:
        """Whether nobody knows yet that this replica campaigns."""
        return self._campaign is not None

    def _ask_for_votes(self) -> None:
        campaign, self._campaign = self._campaign, None
        if campaign is not None:
            campaign()

    # -- acknowledgements

    def owe_ack(self, index: int) -> None:
        """Entries up to here are to be acknowledged."""
        self.ack_due = max(self.ack_due, index)

    def truncated(self, index: int) -> None:
        """Entries from here on are gone."""
        self._acked = min(self._acked, index - 1)
        self.ack_due = min(self.ack_due, index - 1)

    def forget_acks(self) -> None:
        """Another leader is followed, and has been told of nothing."""
        self.ack_due = self._acked = 0

    def send_ack(self, leader: Peer) -> None:
        """Acknowledges what is durable of what is due; the rest after the next sync."""
        due = self.ack_due
        match = min(due, self._durable_match())
        if self.may_tell():
            if match == due or match > self._acked:
                self._acked = match
                self._state.send(leader, frames.ack(self._state.term, match))
            if match == due:
                return
        self._host.await_durable()

    def _durable_match(self) -> int:
        return self._log.durable_index

    # -- a sync has completed

    def on_durable(self) -> None:
        """Tells what waited for it, acknowledges, or has the leader itself counted."""
        state = self._state
        if self._untold or self.holds_campaign:
            if not self.may_tell():
                self._host.await_durable()
                return
            untold, self._untold = self._untold, []
            for term, peer, frame in untold:
                if term == state.term:
                    state.send(peer, frame)
            if untold and state.role == FOLLOWER:
                self._timer.wait_until(state.now() + state.config.heartbeat_s)
            self._ask_for_votes()
        if state.role == LEADER:
            self._host.wake()
        elif state.leader is not None and self.ack_due > self._acked:
            self.send_ack(state.leader)
