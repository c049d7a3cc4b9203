"""The follower's side of replication: taking entries, and catching up after a power cut."""

from __future__ import annotations

import logging

from goqueue.wire.types import Index
from log.entry import Entry, decode_frame, frame_length
from raft import frames
from raft.errors import FrameMalformed, Unsafe
from raft.interfaces import Log
from raft.membership import Membership
from raft.outbox import Outbox
from raft.peer import Peer
from raft.roles import Roles
from raft.state import State

logger = logging.getLogger("raft")


class Suspect:
    """A replica that may lack what it acknowledged, as after a power cut, until it has caught up.

    Whatever it acknowledged and a leader of its newest term does not hold was never committed. What
    that leader holds now, after the restart, covers the rest.
    """

    def __init__(self, state: State, outbox: Outbox) -> None:
        self._state = state
        self._log = state.log
        self._outbox = outbox
        self._nonce = 0
        """Keeps answers to the process before the power cut away."""
        self._end: tuple[int, int] | None = None
        """(term, last index) of a leader, as told to this process."""

    def look_for_end(self, leader: Peer) -> None:
        """Whether it has caught up; if it doesn't know yet how far, it asks."""
        if not self._log.suspect:
            return
        term = self._state.term
        if self._end is None or self._end[0] != term:
            self._nonce = self._nonce or self._state.rng.getrandbits(64) | 1
            self._outbox.tell(leader, frames.ask_end(term, self._nonce))
        elif self._outbox.ack_due >= self._end[1]:
            self.caught_up()

    def on_end(self, peer: Peer, frame: memoryview) -> None:
        term, nonce, last_index = frames.parse_end(frame)
        current = term == self._state.term and self._state.leader is peer
        if current and nonce == self._nonce and self._log.suspect:
            self._end = term, last_index
            self.look_for_end(peer)

    def caught_up(self) -> None:
        """It is as good a voter as any from now on; saved with the entries, or not at all."""
        logger.warning(
            "group %s: %s has what its leader has: trusted again", self._state.id, self._state.node
        )
        self._log.clear_suspect()


class Following:
    """AppendEntries as received.

    PySyncObj truncates on every append; here only a conflict truncates, and never below commit.
    """

    def __init__(
        self, state: State, roles: Roles, outbox: Outbox, membership: Membership, suspect: Suspect
    ) -> None:
        self._state = state
        self._log = state.log
        self._roles = roles
        self._outbox = outbox
        self._membership = membership
        self._suspect = suspect

    def on_append(self, peer: Peer, frame: memoryview) -> None:
        term, prev, prev_term, commit, count = frames.parse_append(frame)
        if term < self._state.term:
            # Only the term is told: should its sender lead in that term by now, naming an entry
            # would pass for the answer to a frame of now, and send it back to the first entry.
            self._outbox.tell(peer, frames.rejection(self._state.term, 0, 0, 0))
            return
        entries = _parse_entries(frame, prev, count, term)
        if not self._roles.follow(peer, term):
            return
        last = self._log.last_index
        committed = self._state.commit_index
        if prev > last or (prev > committed and self._log.term_at(Index(prev)) != prev_term):
            hint = max(committed, agreement(self._log, min(prev, last), prev_term))
            hint_term = self._log.term_at(Index(hint)) or 0
            self._outbox.tell(peer, frames.rejection(term, prev, hint, hint_term))
            return
        if not self._take(prev, entries):
            return
        matched = prev + count
        self._state.commit_to(min(commit, self._commit_limit(matched)))
        self._outbox.owe_ack(max(matched, committed))
        self._suspect.look_for_end(peer)
        self._outbox.send_ack(peer)

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
            if entry.index <= self._state.commit_index:
                what = f"the leader's entry {entry.index} of term {entry.term}"
                self._roles.fail(
                    Unsafe(f"group {self._state.id}: {what} differs from a committed one")
                )
                return False
            self._truncate(entry.index)
            self._append(entries[at:])
            return True
        return True

    def _append(self, entries: list[Entry]) -> None:
        self._log.append(entries)
        self._membership.appended(entries)

    def _differs(self, entry: Entry) -> bool:
        mine = self._log.term_at(entry.index)
        return mine is not None and mine != entry.term

    def _truncate(self, index: Index) -> None:
        self._log.truncate_from(index)
        self._outbox.truncated(index)
        self._membership.truncated(index)


def agreement(log: Log, index: int, term: int) -> int:
    """The newest index up to `index` whose entry is not of a newer term than `term`."""
    high = min(index, log.last_index)
    low = min(high, log.first_index - 1)
    while low < high:
        middle = (low + high + 1) // 2
        if (log.term_at(Index(middle)) or 0) <= term:
            low = middle
        else:
            high = middle - 1
    return low


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
