"""The follower's side: taking entries, acknowledging what is durable, telling only what is."""

from __future__ import annotations

import logging

from goqueue.wire.types import Index
from log.entry import Entry, EntryKind, decode_frame, frame_length
from raft import frames
from raft.apply import Applying
from raft.errors import FrameMalformed, Unsafe
from raft.peer import Peer
from raft.syncobj import FOLLOWER, LEADER

logger = logging.getLogger("raft")

UNTOLD_MAX = 1024
"""Answers waiting for one sync; more are lost, as a network may lose them."""


class Following(Applying):
    """AppendEntries as received. Acknowledgements carry the term, and only what is durable.

    PySyncObj truncates on every append; here only a conflict truncates, and never below commit.
    """

    _ack_due = 0
    _acked = 0
    _untold: list[tuple[int, Peer, bytes]]
    _campaign_untold = False
    _nonce = 0
    _end: tuple[int, int] | None = None
    """(term, last index) of a leader, as told to this process."""

    def _on_append(self, peer: Peer, frame: memoryview) -> None:
        term, prev, prev_term, commit, count = frames.parse_append(frame)
        if term < self._SyncObj__raftCurrentTerm:
            # Only the term is told: should its sender lead in that term by now, naming an entry
            # would pass for the answer to a frame of now, and send it back to the first entry.
            self._tell(peer, frames.rejection(self._SyncObj__raftCurrentTerm, 0, 0, 0))
            return
        entries = _parse_entries(frame, prev, count, term)
        if not self._follow(peer, term):
            return
        last = self._log.last_index
        committed = self._SyncObj__raftCommitIndex
        if prev > last or (prev > committed and self._log.term_at(Index(prev)) != prev_term):
            hint = max(committed, self._agreement(min(prev, last), prev_term))
            hint_term = self._log.term_at(Index(hint)) or 0
            self._tell(peer, frames.rejection(term, prev, hint, hint_term))
            return
        if not self._take(prev, entries):
            return
        matched = prev + count
        self._commit_to(min(commit, self._commit_limit(matched)))
        self._ack_due = max(self._ack_due, matched, committed)
        self._look_for_end(peer)
        self._send_ack(peer)

    def _commit_limit(self, matched: int) -> int:
        """How far a leader's commit index counts here: nothing beyond is known to be equal."""
        return matched

    def _take(self, prev: int, entries: list[Entry]) -> bool:
        """Appends what is new, and truncates where an entry differs; False if that is unsafe."""
        last = self._log.last_index
        for at, entry in enumerate(entries):
            if entry.index > last:
                self._append(entries[at:] if at else entries)
                return True
            if not self._differs(entry):
                continue
            if entry.index <= self._SyncObj__raftCommitIndex:
                self._fail(
                    Unsafe(
                        f"group {self.id}: the leader's entry {entry.index} of term {entry.term} "
                        f"differs from a committed one"
                    )
                )
                return False
            self._truncate(entry.index)
            self._append(entries[at:])
            return True
        return True

    def _append(self, entries: list[Entry]) -> None:
        self._log.append(entries)
        for entry in entries:
            if entry.kind == EntryKind.VOTERS:
                self._configure(self._read(entry))

    # -- after a power cut

    def _look_for_end(self, leader: Peer) -> None:
        """Whether a suspect replica has caught up; if it doesn't know yet how far, it asks.

        Whatever it acknowledged and a leader of its newest term does not hold was never committed.
        What that leader holds now, after the restart, covers the rest. The nonce keeps answers to
        the process before the power cut away.
        """
        if not self._log.suspect:
            return
        term = self._SyncObj__raftCurrentTerm
        if self._end is None or self._end[0] != term:
            self._nonce = self._nonce or self._rng.getrandbits(64) | 1
            self._tell(leader, frames.ask_end(term, self._nonce))
        elif self._ack_due >= self._end[1]:
            self._caught_up()

    def _on_end(self, peer: Peer, frame: memoryview) -> None:
        term, nonce, last_index = frames.parse_end(frame)
        current = term == self._SyncObj__raftCurrentTerm and self._SyncObj__raftLeader is peer
        if current and nonce == self._nonce and self._log.suspect:
            self._end = term, last_index
            self._look_for_end(peer)

    def _caught_up(self) -> None:
        """It is as good a voter as any from now on; saved with the entries, or not at all."""
        logger.warning("group %s: %s has what its leader has: trusted again", self.id, self.node)
        self._log.trust()

    def _agreement(self, index: int, term: int) -> int:
        """The newest index up to `index` whose entry is not of a newer term than `term`."""
        high = min(index, self._log.last_index)
        low = min(high, self._log.first_index - 1)
        while low < high:
            middle = (low + high + 1) // 2
            if (self._log.term_at(Index(middle)) or 0) <= term:
                low = middle
            else:
                high = middle - 1
        return low

    def _differs(self, entry: Entry) -> bool:
        mine = self._log.term_at(entry.index)
        return mine is not None and mine != entry.term

    def _truncate(self, index: Index) -> None:
        self._log.truncate_from(index)
        self._acked = min(self._acked, index - 1)
        self._ack_due = min(self._ack_due, index - 1)
        self._unconfigure(index)

    def _send_ack(self, leader: Peer) -> None:
        """Acknowledges what is durable of what is due; the rest after the next sync."""
        due = self._ack_due
        match = min(due, self._durable_match())
        if self._may_tell():
            if match == due or match > self._acked:
                self._acked = match
                frame = frames.ack(self._SyncObj__raftCurrentTerm, match)
                self._network.send(leader.node, self.id, [frame])
            if match == due:
                return
        self._host.await_durable()

    def _durable_match(self) -> int:
        return self._log.durable_index

    # -- what is told waits for the disk

    def _may_tell(self) -> bool:
        """Whether the current term and vote are durable, so that others may learn of them."""
        return self._log.hard_state_durable

    def _tell(self, peer: Peer, frame: bytes) -> None:
        """Sends a frame that gives away this node's term or vote, once these are durable."""
        if self._may_tell():
            self._network.send(peer.node, self.id, [frame])
        else:
            if len(self._untold) < UNTOLD_MAX:
                self._untold.append((self._SyncObj__raftCurrentTerm, peer, frame))
            self._host.await_durable()

    def on_durable(self) -> None:
        """After a sync: tells what waited for it, acknowledges, or counts the leader itself."""
        if self._halted:
            return
        if self._untold or self._campaign_untold:
            if not self._may_tell():
                self._host.await_durable()
                return
            untold, self._untold = self._untold, []
            for term, peer, frame in untold:
                if term == self._SyncObj__raftCurrentTerm:
                    self._network.send(peer.node, self.id, [frame])
            if untold and self._SyncObj__raftState == FOLLOWER:
                self._wait_until(self._scheduler.now() + self._config.heartbeat_s)
            if self._campaign_untold:
                self._ask_for_votes()
        if self._SyncObj__raftState == LEADER:
            self._host.wake()
        else:
            leader = self._SyncObj__raftLeader
            if leader is not None and self._ack_due > self._acked:
                self._send_ack(leader)

    # -- provided by elections

    def _ask_for_votes(self) -> None:
        raise NotImplementedError

    def _wait_until(self, at: float) -> None:
        """Begins no election before."""
        raise NotImplementedError

    def _follow(self, peer: Peer, term: int) -> bool:
        raise NotImplementedError

    def _newer_term(self, term: int) -> None:
        raise NotImplementedError


def _parse_entries(frame: memoryview, prev: int, count: int, term: int) -> list[Entry]:
    """The entries of an APPEND. Raises FrameMalformed, FrameDamaged; nothing has changed then."""
    entries: list[Entry] = []
    at = frames.APPEND_BYTES
    index, newest = prev, 0
    for _ in range(count):
        if not frame_length(frame, at):
            raise FrameMalformed("entries are cut short")
        entry = decode_frame(frame, at)
        index += 1
        if entry.index != index or not newest <= entry.term <= term:
            raise FrameMalformed(f"entry {entry.index} of term {entry.term} follows {index - 1}")
        newest = entry.term
        entries.append(entry)
        at += len(entry.frame)
    if at != len(frame):
        raise FrameMalformed("bytes after the last entry")
    return entries
