"""ReadIndex: a leader proves that it still leads, without writing (Raft dissertation, 6.4)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from goqueue.wire.types import Index
from raft import frames
from raft.peer import Peer
from raft.replication import Replication
from raft.syncobj import LEADER

Read = Callable[[bool, Index], None]
"""(whether this node led, the index up to which entries are applied here)."""


@dataclass(slots=True)
class Round:
    """Reads that one round of beats confirms together."""

    number: int
    index: int
    until: float
    reads: list[Read]


class Reads(Replication):
    """Beats, their rounds, and the reads that wait for them."""

    _round = 0
    _reads: list[Read]
    _rounds: deque[Round]
    _confirmed: deque[Round]
    _reads_waiting = 0

    def read_index(self, callback: Read) -> None:
        """Calls back with (True, index) once this node is known to have led after this call.

        All entries up to the index are applied then. (False, 0) if it does not lead, is not ready,
        loses leadership, or no majority answers in time. Fires exactly once.
        """
        if not self.is_leader or self._ready_term != self._SyncObj__raftCurrentTerm:
            callback(False, Index(0))
            return
        if self._reads_waiting >= self._config.reads_max:
            callback(False, Index(0))
            return
        self._reads_waiting += 1
        self._reads.append(callback)
        self._host.wake()

    def _start_round(self) -> None:
        """Asks every voter, once for all reads that came since the last turn."""
        if not self._reads:
            return
        self._round += 1
        until = self._scheduler.now() + self._config.read_s
        reads, self._reads = self._reads, []
        self._rounds.append(Round(self._round, self._SyncObj__raftCommitIndex, until, reads))
        for peer in self._peers.values():
            if peer.voter and peer.connected:
                self._ask(peer)
        self._confirm_rounds()

    def _ask(self, peer: Peer) -> None:
        commit = min(self._SyncObj__raftCommitIndex, self._SyncObj__raftMatchIndex[peer])
        frame = frames.beat(
            self._SyncObj__raftCurrentTerm, commit, self._round, flags=frames.ANSWER
        )
        self._network.send(peer.node, self.id, [frame])

    def _confirm_rounds(self) -> None:
        rounds = [peer.round for peer in self._peers.values() if peer.voter]
        if self._self_peer.voter:
            rounds.append(self._round)
        rounds.sort(reverse=True)
        confirmed = rounds[self._quorum - 1]
        while self._rounds and self._rounds[0].number <= confirmed:
            self._confirmed.append(self._rounds.popleft())
        self._finish_reads()

    def _finish_reads(self) -> None:
        applied = self._SyncObj__raftLastApplied
        while self._confirmed and self._confirmed[0].index <= applied:
            done = self._confirmed.popleft()
            self._reads_waiting -= len(done.reads)
            for read in done.reads:
                self._call_back(read, True, Index(done.index))

    def _fail_reads(self, now: float | None = None) -> None:
        """Fails all reads, or those that are out of time."""
        failed: list[Read] = []
        while self._rounds and (now is None or self._rounds[0].until <= now):
            failed += self._rounds.popleft().reads
        if now is None:
            for done in self._confirmed:
                failed += done.reads
            self._confirmed.clear()
            failed += self._reads
            self._reads = []
        self._reads_waiting -= len(failed)
        for read in failed:
            self._call_back(read, False, Index(0))

    # -- beats: of one group, or items of the host's heartbeats

    def beat_for(self, peer: Peer) -> tuple[int, int, int]:
        """Term, commit index and round for this peer's heartbeat item."""
        commit = self._SyncObj__raftCommitIndex
        return (
            self._SyncObj__raftCurrentTerm,
            min(commit, self._SyncObj__raftMatchIndex[peer]),
            self._round,
        )

    def take_beat(
        self, peer: Peer, term: int, commit: int, round_: int
    ) -> tuple[int, int, int] | None:
        """A leader's beat; term, round and last index to answer, or None for no answer yet."""
        if self._halted:
            return None
        last = self._log.last_index
        if term < self._SyncObj__raftCurrentTerm:
            return (self._SyncObj__raftCurrentTerm, 0, last) if self._may_tell() else None
        if not self._follow(peer, term):
            return None
        self._commit_to(min(commit, last))
        self._look_for_end(peer)
        if not self._may_tell():
            return None
        return term, round_, last

    def take_beat_answer(self, peer: Peer, term: int, round_: int, last_index: int) -> None:
        """A follower's answer to a beat: it is alive, and may show that frames were lost."""
        if self._halted or not self._answers_me(peer, term):
            return
        if round_ > peer.round:
            peer.round = round_
            if peer.voter and self._rounds:
                self._confirm_rounds()
        if peer.behind and last_index >= max(1, self._log.first_index - 1):
            # Its log was replaced by a copy: it goes on where that ends.
            self._host.release(peer.node, peer.reset())
            self._SyncObj__raftNextIndex[peer] = min(last_index, self._log.last_index) + 1
            self._host.wake()
        matched = self._SyncObj__raftMatchIndex[peer]
        stale = self._scheduler.now() - peer.sent_at >= self._config.heartbeat_s / 2
        behind = matched < self._log.last_index or peer.probing
        if behind and stale and peer.connected:
            self._nudge(peer)

    def _nudge(self, peer: Peer) -> None:
        """Asks again where the follower stands: a frame or its answer may have been lost."""
        if peer.probing:
            peer.paused = False
            self._host.wake()
            return
        if not peer.inflight:
            return
        prev = self._SyncObj__raftNextIndex[peer] - 1
        prev_term = self._log.term_at(Index(prev))
        if prev_term is not None:
            commit = self._SyncObj__raftCommitIndex
            head = frames.append_head(self._SyncObj__raftCurrentTerm, prev, prev_term, commit, 0)
            self._network.send(peer.node, self.id, [head])

    def _on_beat(self, peer: Peer, frame: memoryview) -> None:
        flags, term, commit, round_, _last = frames.parse_beat(frame)
        answer = self.take_beat(peer, term, commit, round_)
        if answer is not None and (flags & frames.ANSWER or answer[0] > term):
            self._network.send(
                peer.node, self.id, [frames.beat_answer(answer[0], answer[1], answer[2])]
            )

    def _on_beat_answer(self, peer: Peer, frame: memoryview) -> None:
        _flags, term, _commit, round_, last = frames.parse_beat(frame)
        self.take_beat_answer(peer, term, round_, last)

    def _lead_reads(self) -> None:
        """A leadership begins: earlier rounds prove nothing."""
        for peer in self._peers.values():
            peer.round = 0

    def _flush_reads(self) -> None:
        if self._SyncObj__raftState == LEADER:
            self._start_round()
            self._finish_reads()
