"""Beats of a leader and their answers: of one group, or items of the host's heartbeats."""

from __future__ import annotations

from goqueue.wire.types import Index
from raft import frames
from raft.following import Suspect
from raft.outbox import Outbox
from raft.peer import Peer
from raft.read_index import ReadIndex
from raft.replication import Replication
from raft.roles import Roles
from raft.state import State


class Heartbeats:
    """A beat tells who leads, and what is committed; its answer that a follower is alive, which
    round of reads it confirms, and whether frames were lost."""

    def __init__(
        self,
        state: State,
        roles: Roles,
        outbox: Outbox,
        suspect: Suspect,
        replication: Replication,
        reads: ReadIndex,
    ) -> None:
        self._state = state
        self._log = state.log
        self._host = state.host
        self._roles = roles
        self._outbox = outbox
        self._suspect = suspect
        self._replication = replication
        self._reads = reads

    def beat_for(self, peer: Peer) -> tuple[int, int, int]:
        """Term, commit index and round for this peer's heartbeat item."""
        commit = self._state.commit_index
        return (
            self._state.term,
            min(commit, self._state.match_index[peer]),
            self._reads.round,
        )

    def take_beat(
        self, peer: Peer, term: int, commit: int, round_: int
    ) -> tuple[int, int, int] | None:
        """A leader's beat; term, round and last index to answer, or None for no answer yet."""
        if self._state.halted:
            return None
        last = self._log.last_index
        if term < self._state.term:
            return (self._state.term, 0, last) if self._outbox.may_tell() else None
        if not self._roles.follow(peer, term):
            return None
        self._state.commit_to(min(commit, last))
        self._suspect.look_for_end(peer)
        if not self._outbox.may_tell():
            return None
        return term, round_, last

    def take_beat_answer(self, peer: Peer, term: int, round_: int, last_index: int) -> None:
        """A follower's answer to a beat: it is alive, and may show that frames were lost."""
        if self._state.halted or not self._replication.answers_me(peer, term):
            return
        self._reads.heard(peer, round_)
        if peer.behind and last_index >= max(1, self._log.first_index - 1):
            # Its log was replaced by a copy: it goes on where that ends.
            self._host.release(peer.node, peer.reset())
            self._state.next_index[peer] = min(last_index, self._log.last_index) + 1
            self._host.wake()
        matched = self._state.match_index[peer]
        stale = self._state.now() - peer.sent_at >= self._state.config.heartbeat_s / 2
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
        prev = self._state.next_index[peer] - 1
        prev_term = self._log.term_at(Index(prev))
        if prev_term is not None:
            commit = self._state.commit_index
            head = frames.append_head(self._state.term, prev, prev_term, commit, 0)
            self._state.send(peer, head)

    def on_beat(self, peer: Peer, frame: memoryview) -> None:
        flags, term, commit, round_, _last = frames.parse_beat(frame)
        answer = self.take_beat(peer, term, commit, round_)
        if answer is not None and (flags & frames.ANSWER or answer[0] > term):
            self._state.send(peer, frames.beat_answer(*answer))

    def on_beat_answer(self, peer: Peer, frame: memoryview) -> None:
        _flags, term, _commit, round_, last = frames.parse_beat(frame)
        self.take_beat_answer(peer, term, round_, last)
