"""ReadIndex: a leader proves that it still leads, without writing (Raft dissertation, 6.4)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from goqueue.wire.types import Index
from raft import frames
from raft.peer import Peer
from raft.state import State

Read = Callable[[bool, Index], None]
"""(whether this node led, the index up to which entries are applied here)."""


@dataclass(slots=True)
class Round:
    """Reads that one round of beats confirms together."""

    number: int
    index: int
    until: float
    reads: list[Read]


class ReadIndex:
    """The reads of one group, and the rounds of beats that confirm them."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._round = 0
        self._reads: list[Read] = []
        self._rounds: list[Round] = []
        self._confirmed: list[Round] = []
        self._reads_waiting = 0

    @property
    def round(self) -> int:
        """The newest round of beats."""
        return self._round

    @property
    def are_open(self) -> bool:
        """Whether a read waits for its answer."""
        return self._reads_waiting > 0

    def ask(self, callback: Read) -> None:
        """Calls back with (True, index) once this node is known to have led after this call.

        All entries up to the index are applied then. (False, 0) if it does not lead, is not ready,
        loses leadership, or no majority answers in time. Fires exactly once.
        """
        state = self._state
        if not state.is_leader or state.ready_term != state.term:
            callback(False, Index(0))
            return
        if self._reads_waiting >= self._state.config.reads_max:
            callback(False, Index(0))
            return
        self._reads_waiting += 1
        self._reads.append(callback)
        self._state.host.wake()

    def flush(self) -> None:
        """The end of a turn: a leader asks for the reads that came, and answers those confirmed."""
        if self._state.is_leader:
            self._start_round()
            self._finish_reads()

    def begin(self) -> None:
        """A leadership begins: earlier rounds prove nothing."""
        for peer in self._state.peers.values():
            peer.round = 0

    def heard(self, peer: Peer, round_: int) -> None:
        """A follower has answered the beats of this round."""
        if round_ > peer.round:
            peer.round = round_
            if peer.voter and self._rounds:
                self._confirm_rounds()

    def _start_round(self) -> None:
        """Asks every voter, once for all reads that came since the last turn."""
        if not self._reads:
            return
        self._round += 1
        until = self._state.now() + self._state.config.read_s
        reads, self._reads = self._reads, []
        self._rounds.append(Round(self._round, self._state.commit_index, until, reads))
        for peer in self._state.peers.values():
            if peer.voter and peer.connected:
                self._ask(peer)
        self._confirm_rounds()

    def _ask(self, peer: Peer) -> None:
        commit = min(self._state.commit_index, self._state.match_index[peer])
        frame = frames.beat(self._state.term, commit, self._round, flags=frames.ANSWER)
        self._state.send(peer, frame)

    def _confirm_rounds(self) -> None:
        rounds = [peer.round for peer in self._state.peers.values() if peer.voter]
        if self._state.self_peer.voter:
            rounds.append(self._round)
        rounds.sort(reverse=True)
        confirmed = rounds[self._state.quorum - 1]
        while self._rounds and self._rounds[0].number <= confirmed:
            self._confirmed.append(self._rounds.pop(0))
        self._finish_reads()

    def _finish_reads(self) -> None:
        applied = self._state.applied_index
        while self._confirmed and self._confirmed[0].index <= applied:
            done = self._confirmed.pop(0)
            self._reads_waiting -= len(done.reads)
            for read in done.reads:
                self._state.call_back(read, True, Index(done.index))

    def fail(self, now: float | None = None) -> None:
        """Fails all reads, or those that are out of time."""
        failed: list[Read] = []
        while self._rounds and (now is None or self._rounds[0].until <= now):
            failed += self._rounds.pop(0).reads
        if now is None:
            for done in self._confirmed:
                failed += done.reads
            self._confirmed.clear()
            failed += self._reads
            self._reads = []
        self._reads_waiting -= len(failed)
        for read in failed:
            self._state.call_back(read, False, Index(0))
