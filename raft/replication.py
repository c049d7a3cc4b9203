"""The log from leader to followers: windows, conflicts, acknowledgements, the commit index."""

from __future__ import annotations

import logging

from goqueue.wire.types import Index
from log.entry import Entry, decode_frame, frame_length
from raft import frames
from raft.apply import Applying
from raft.errors import FrameMalformed, Unsafe
from raft.peer import Peer
from raft.syncobj import LEADER

logger = logging.getLogger("raft")


class Replication(Applying):
    """AppendEntries and its answers, from both sides.

    A follower acknowledges only what is durable, in frames that carry its term; a leader counts
    only acknowledgements of its own term, and itself only by its durable index.
    """

    _ack_due = 0
    _acked = 0
    _untold: list[tuple[int, Peer, bytes]]

    # -- leader: sending

    def _SyncObj__sendAppendEntries(self) -> None:
        """Sends every follower what its window allows, or else a commit index it does not know."""
        if self._SyncObj__raftState != LEADER:
            return
        if self._log.durable_index < self._log.last_index:
            self._host.await_durable(self.id)
        commit = self._SyncObj__raftCommitIndex
        for peer in self._peers.values():
            if not peer.connected:
                continue
            self._send_entries(peer)
            known = min(commit, self._SyncObj__raftMatchIndex[peer])
            if known > peer.commit_told and not peer.probing:
                frame = frames.beat(self._SyncObj__raftCurrentTerm, known, 0)
                if self._network.send(peer.node, self.id, [frame]):
                    peer.commit_told = known

    def _send_entries(self, peer: Peer) -> None:
        last = self._log.last_index
        following = self._SyncObj__raftNextIndex
        while not peer.paused and (following[peer] <= last or peer.probing):
            if not self._send_append(peer, last):
                return

    def _send_append(self, peer: Peer, last: int) -> bool:
        """One frame to this follower; False if there is no room, no link, or nothing to read."""
        config = self._config
        following = self._SyncObj__raftNextIndex[peer]
        prev_term = self._log.term_at(Index(following - 1))
        if following < self._log.first_index or prev_term is None:
            self._mark_behind(peer, following)
            return False
        entries: list[Entry] = []
        if following <= last:
            if peer.inflight_bytes >= config.window_bytes:
                return False
            entries = self._log.entries(
                Index(following), max_bytes=config.append_bytes, max_count=config.append_entries
            )
        parts = [entry.frame for entry in entries]
        size = sum(map(len, parts))
        if size and not self._host.reserve(peer.node, self.id, size):
            return False
        commit = self._SyncObj__raftCommitIndex
        head = frames.append_head(
            self._SyncObj__raftCurrentTerm, following - 1, prev_term, commit, len(parts)
        )
        if not self._network.send(peer.node, self.id, [head, *parts]):
            self._host.release(peer.node, size)
            return False
        sent = following + len(parts) - 1
        if size:
            peer.inflight.append((sent, size))
            peer.inflight_bytes += size
        peer.sent_at = self._scheduler.now()
        peer.commit_told = max(peer.commit_told, min(commit, sent))
        if peer.probing:
            peer.paused = True
        else:
            self._SyncObj__raftNextIndex[peer] = sent + 1
        return True

    def _mark_behind(self, peer: Peer, following: int) -> None:
        if not peer.behind:
            peer.behind = True
            logger.error(
                "group %s: %s needs entry %d, but the log begins at %d",
                self.id,
                peer.node,
                following,
                self._log.first_index,
            )

    # -- leader: answers

    def _on_ack(self, peer: Peer, frame: memoryview) -> None:
        flags, term, index, hint_index, hint_term = frames.parse_ack(frame)
        if not self._answers_me(peer, term):
            return
        if flags & frames.REJECTED:
            self._on_rejection(peer, index, hint_index, hint_term)
        elif index <= self._log.last_index:
            self._on_match(peer, index)

    def _answers_me(self, peer: Peer, term: int) -> bool:
        """Whether an answer belongs to this very leadership; a newer term ends it."""
        if term > self._SyncObj__raftCurrentTerm:
            self._newer_term(term)
            return False
        if not self._is_current(term) or self._SyncObj__raftState != LEADER:
            return False
        peer.heard_at = self._SyncObj__lastResponseTime[peer] = self._scheduler.now()
        return True

    def _is_current(self, term: int) -> bool:
        return term == self._SyncObj__raftCurrentTerm

    def _on_match(self, peer: Peer, match: int) -> None:
        matched = self._SyncObj__raftMatchIndex
        if match > matched[peer]:
            matched[peer] = match
        self._host.release(peer.node, peer.acknowledged(match))
        if peer.probing:
            self._host.release(peer.node, peer.reset())
            peer.probing = False
            self._SyncObj__raftNextIndex[peer] = matched[peer] + 1
        self._host.wake(self.id)

    def _on_rejection(self, peer: Peer, rejected: int, hint_index: int, hint_term: int) -> None:
        """The follower does not have `rejected`: back off, by whole terms, to where it may agree.

        An answer to a frame that was overtaken by a better one changes nothing.
        """
        following = self._SyncObj__raftNextIndex
        matched = self._SyncObj__raftMatchIndex
        if peer.probing:
            if rejected != following[peer] - 1:
                return
        elif rejected <= matched[peer]:
            return
        self._host.release(peer.node, peer.reset())
        agreed = self._agreement(min(rejected - 1, hint_index), hint_term)
        following[peer] = max(1, agreed + 1)
        matched[peer] = min(matched[peer], following[peer] - 1)
        self._host.wake(self.id)

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

    def _advance_commit(self) -> None:
        """Commits what a majority holds durably, if it is of this term (Raft 5.4.2)."""
        match = self._SyncObj__raftMatchIndex
        held = [match[peer] for peer in self._peers.values() if peer.voter]
        held.append(self._own_match())
        held.sort(reverse=True)
        index = held[self._quorum - 1]
        if index > self._SyncObj__raftCommitIndex and self._may_commit(index):
            self._commit_to(index)

    def _own_match(self) -> int:
        return self._log.durable_index

    def _may_commit(self, index: int) -> bool:
        """Whether counting may commit this entry: only if it is of this leader's own term."""
        noop = self._SyncObj__noopIDx
        return noop is not None and index >= noop

    # -- follower

    def _on_append(self, peer: Peer, frame: memoryview) -> None:
        term, prev, prev_term, commit, count = frames.parse_append(frame)
        if term < self._SyncObj__raftCurrentTerm:
            self._tell(peer, frames.rejection(self._SyncObj__raftCurrentTerm, prev, 0, 0))
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
        if not self._take(entries):
            return
        matched = prev + count
        self._commit_to(min(commit, self._commit_limit(matched)))
        self._ack_due = max(self._ack_due, matched, committed)
        self._send_ack(peer)

    def _commit_limit(self, matched: int) -> int:
        """How far a leader's commit index counts here: nothing beyond is known to be equal."""
        return matched

    def _take(self, entries: list[Entry]) -> bool:
        """Appends what is new, and truncates where an entry differs; False if that is unsafe."""
        last = self._log.last_index
        for at, entry in enumerate(entries):
            if entry.index > last:
                self._log.append(entries[at:] if at else entries)
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
            self._log.append(entries[at:])
            return True
        return True

    def _differs(self, entry: Entry) -> bool:
        mine = self._log.term_at(entry.index)
        return mine is not None and mine != entry.term

    def _truncate(self, index: Index) -> None:
        self._log.truncate_from(index)
        self._acked = min(self._acked, index - 1)
        self._ack_due = min(self._ack_due, index - 1)

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
        self._host.await_durable(self.id)

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
            self._untold.append((self._SyncObj__raftCurrentTerm, peer, frame))
            self._host.await_durable(self.id)

    def on_durable(self) -> None:
        """After a sync: tells what waited for it, acknowledges, or counts the leader itself."""
        if self._halted:
            return
        if self._untold or self._campaign_untold:
            if not self._may_tell():
                self._host.await_durable(self.id)
                return
            untold, self._untold = self._untold, []
            for term, peer, frame in untold:
                if term == self._SyncObj__raftCurrentTerm:
                    self._network.send(peer.node, self.id, [frame])
            if self._campaign_untold:
                self._ask_for_votes()
        if self._SyncObj__raftState == LEADER:
            self._host.wake(self.id)
        else:
            leader = self._SyncObj__raftLeader
            if leader is not None and self._ack_due > self._acked:
                self._send_ack(leader)

    # -- provided by elections

    _campaign_untold = False

    def _ask_for_votes(self) -> None:
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
