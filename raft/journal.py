"""PySyncObj's view of a group's log: a list of (command, index, term) and a term with a vote."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from goqueue.wire.types import Term
from log.entry import Entry
from raft.errors import Refused
from raft.interfaces import Log
from raft.syncobj import SyncObjJournal

NO_OP = bytes((1,))
"""PySyncObj's command byte of a no-op, the only command it may still append by itself."""


class Journal(SyncObjJournal):
    """A list-like adapter: no second copy of anything, and no way to drop entries behind our back.

    `make_noop(index, term)` encodes the no-op with which a new leader begins.
    """

    def __init__(self, log: Log, make_noop: Callable[[int, int], Entry]) -> None:
        self._log = log
        self._make_noop = make_noop

    # -- as a list

    def __len__(self) -> int:
        return self._log.last_index - self._log.first_index + 1

    def __getitem__(self, at: int) -> tuple[bytes, int, int]:
        if at == -1:
            return b"", self._log.last_index, self._log.last_term
        if at == 0:
            first = self._log.first_index
            return b"", first, self._log.term_at(first) or 0
        raise Refused("PySyncObj reads entries only at the log's ends")

    def add(self, command: bytes, idx: int, term: int) -> None:
        """Appends a leader's no-op; nothing else comes this way."""
        if command != NO_OP:
            raise Refused("PySyncObj may append nothing but a no-op")
        self._log.append([self._make_noop(idx, term)])

    def clear(self) -> NoReturn:
        raise Refused("the log is not PySyncObj's to clear")

    def deleteEntriesFrom(self, entryFrom: int) -> NoReturn:
        raise Refused("the log is truncated on conflict only")

    def deleteEntriesTo(self, entryTo: int) -> NoReturn:
        raise Refused("the log's head is moved by trim entries only")

    # -- hard state

    def setCurrentTerm(self, term: int, votedForNodeId: str | None) -> None:
        """Saves term and vote; nobody is told before they are durable."""
        hard = self._log.hard_state
        if hard.term != term or hard.vote != votedForNodeId:
            self._log.save_hard_state(Term(term), votedForNodeId)

    def getCurrentTerm(self) -> int:
        return self._log.hard_state.term

    def getVotedForNodeId(self) -> str | None:
        return self._log.hard_state.vote

    # -- not used: the commit index is learnt from the leader after a restart

    def setRaftCommitIndex(self, raftCommitIndex: int) -> None:
        return None

    def getRaftCommitIndex(self) -> int:
        return 0

    def onOneSecondTimer(self) -> None:
        return None

    def _destroy(self) -> None:
        return None
