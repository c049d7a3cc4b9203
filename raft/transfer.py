"""Handing leadership over, as before a planned stop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from goqueue.wire.types import NodeId
from raft import frames
from raft.peer import Peer
from raft.state import State

Transferred = Callable[[bool], None]


@dataclass(slots=True)
class Handover:
    """One under way: first the target catches up, then it is told to campaign."""

    peer: Peer
    until: float
    callback: Transferred | None
    told: bool = False
    due: bool = True


class Transfer:
    """The leader's side of a handover; `State.handing_over` stops proposals."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._handover: Handover | None = None

    @property
    def under_way(self) -> bool:
        return self._handover is not None

    def start(self, to: NodeId | None = None, callback: Transferred | None = None) -> None:
        """Lets another voter lead: `to`, or the connected one that is furthest ahead.

        Proposals are refused from now on, until it is over. The callback tells whether leadership
        was handed over; if not, this node leads on.
        """
        state = self._state
        peer = self._target(to)
        if state.halted or not state.is_leader or self.under_way or peer is None:
            if callback is not None:
                callback(False)
            return
        self._handover = Handover(peer, state.now() + state.config.transfer_s, callback)
        state.handing_over = True
        state.host.wake()

    def _target(self, to: NodeId | None) -> Peer | None:
        match = self._state.match_index
        able = [peer for peer in self._state.peers.values() if peer.voter and peer.connected]
        if to is not None:
            able = [peer for peer in able if peer.node == to]
        return max(able, key=lambda peer: match[peer], default=None)

    def drive(self) -> None:
        """Tells the target to campaign once it holds the whole log."""
        state, handover = self._state, self._handover
        if handover is None or not handover.due:
            return
        holds_all = state.match_index[handover.peer] == state.log.last_index
        if holds_all and state.send(handover.peer, frames.timeout_now(state.term)):
            handover.told, handover.due = True, False

    def check(self, now: float) -> None:
        """Repeats the request, which may be lost, until time is up."""
        handover = self._handover
        if handover is not None and now >= handover.until:
            self._end(False)
        elif handover is not None and handover.told:
            handover.due = True
            self._state.host.wake()

    def peer_lost(self, peer: Peer) -> None:
        """The link to this peer is closed."""
        if self._handover is not None and self._handover.peer is peer:
            self._end(False)

    def leadership_lost(self) -> None:
        """Another leads, or will: whom this one has told to, as far as it knows."""
        self._end(self._handover is not None and self._handover.told)

    def _end(self, moved: bool) -> None:
        handover, self._handover = self._handover, None
        self._state.handing_over = False
        if handover is not None and handover.callback is not None:
            self._state.call_back(handover.callback, moved)
