"""Applying what is committed, and telling every proposer, exactly once, how it ended."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, TypeVarTuple

from goqueue.wire.types import Index, NodeId, Term
from log.entry import Entry, EntryKind, make_entry
from log.errors import EntryDamaged, LogError
from log.levels import Unspoken
from raft.configuration import pack_snapshot, unpack_snapshot
from raft.configured import Configured
from raft.errors import ApplyFailed, NotLeader, Outcome, Unsafe
from raft.interfaces import SnapshotWork
from raft.syncobj import FOLLOWER, LEADER

logger = logging.getLogger("raft")
Args = TypeVarTuple("Args")

Proposed = Callable[[Outcome, Any, Index], None]
"""(outcome, the state machine's result if APPLIED, the entry's index)."""

_OWN_KINDS = (EntryKind.NOOP, EntryKind.VOTERS)


class Applying(Configured):
    """Proposals and the apply loop. PySyncObj's `__commandsWaitingCommit` holds the proposers."""

    _applying = False
    _ready_term = 0
    _snapshot_index = 0
    _announced: tuple[NodeId | None] | None = None
    _unapplied: deque[Entry]
    """Committed entries that were read, and come next."""
    unspoken = ""
    """Why nothing is applied any more: a later version wrote what comes next. This replica goes on
    voting and storing, so that it is whole once that version runs here; it does not lead."""

    # -- state

    @property
    def term(self) -> Term:
        return Term(self._SyncObj__raftCurrentTerm)

    @property
    def commit_index(self) -> Index:
        return Index(self._SyncObj__raftCommitIndex)

    @property
    def applied_index(self) -> Index:
        return Index(self._SyncObj__raftLastApplied)

    @property
    def leader(self) -> NodeId | None:
        """Who is believed to lead; the answer may be out of date."""
        leader = self._SyncObj__raftLeader
        return None if leader is None else leader.node

    @property
    def is_leader(self) -> bool:
        """Whether this node leads, ready or not."""
        return self._SyncObj__raftState == LEADER

    @property
    def is_ready_leader(self) -> bool:
        """Whether `propose` is allowed: leading, own no-op applied, and not handing over."""
        return (
            self._SyncObj__raftState == LEADER
            and self._ready_term == self._SyncObj__raftCurrentTerm
            and not self._SyncObj__transferInProgress
        )

    # -- proposing

    def propose(
        self,
        kind: int,
        body: bytes | memoryview | Sequence[bytes | memoryview],
        *,
        base_offset: int = 0,
        record_count: int = 0,
        time_ms: int | None = None,
        callback: Proposed,
    ) -> Index:
        """Appends an entry now, in call order; its index. The callback fires exactly once.

        It never fires during this call. Raises NotLeader unless `is_ready_leader`, StoreFailed, or
        ValueError for a body that is too large; nothing was appended then.
        """
        if not self.is_ready_leader:
            raise NotLeader(None if self.is_leader else self.leader)
        term = self._SyncObj__raftCurrentTerm
        index = self._log.last_index + 1
        if time_ms is None or time_ms < self._time_ms:
            time_ms = self.log_time_ms()
        entry = make_entry(
            index=index,
            term=term,
            time_ms=time_ms,
            kind=kind,
            body=body,
            base_offset=base_offset,
            record_count=record_count,
            matches=self._matched(),
            lag_ms=self._commit_lag[1] if self._commit_lag[0] == index - 1 else None,
        )
        try:
            self._log.append((entry,))
        except LogError as error:
            self._fail(error)
            raise
        self._time_ms = time_ms
        self._SyncObj__commandsWaitingCommit[index].append((term, callback))
        self._host.wake()
        return Index(index)

    def _matched(self) -> list[int]:
        """What each voter is known to hold durably, in the order of their names."""
        match = self._SyncObj__raftMatchIndex
        peers = self._peers
        return [
            match[peers[name]] if name in peers else self._log.durable_index
            for name in self._voters
        ]

    # -- applying

    def _commit_to(self, index: int) -> None:
        if index > self._SyncObj__raftCommitIndex:
            self._SyncObj__raftCommitIndex = index
            self._SyncObj__leaderCommitIndex = index
            self._host.wake()

    def _SyncObj__applyLogEntries(self) -> bool:
        """Applies until all is applied or the slice of time is over; then the rest is due soon.

        Whether anything was applied. An exception of the state machine stops this replica, but for
        Unspoken, which only ends the applying.
        """
        first = self._SyncObj__raftLastApplied
        if first >= self._SyncObj__raftCommitIndex or self._applying or self.unspoken:
            return False
        until = self._scheduler.now() + self._config.apply_slice_s
        self._applying = True
        try:
            while self._SyncObj__raftLastApplied < self._SyncObj__raftCommitIndex:
                if not self._apply_some(until):
                    break
        finally:
            self._applying = False
        if not self._halted and not self.unspoken:
            if self._SyncObj__raftLastApplied < self._SyncObj__raftCommitIndex:
                self._host.wake()
            if self._SyncObj__raftLastApplied - self._snapshot_index >= (
                self._config.snapshot_entries
            ):
                self._host.snapshot_due()
        return self._SyncObj__raftLastApplied > first

    def _apply_some(self, until: float) -> bool:
        """Applies entries read at once; False when time is up or the replica has stopped."""
        waiting = self._SyncObj__commandsWaitingCommit
        now = self._scheduler.now
        unapplied = self._unapplied = self._unapplied or self._read_committed()
        while unapplied:
            entry = unapplied.popleft()
            result: object = None
            try:
                if entry.kind not in _OWN_KINDS:
                    result = self._state.apply(entry)
                elif entry.kind == EntryKind.VOTERS:
                    self._find_configuration(entry)
            except Unspoken as error:
                self._cannot_read(entry.index, error)
                return False
            except Exception as error:  # noqa: BLE001 - whatever it is, this replica stops
                self._apply_failed(entry.index, error)
                return False
            self._SyncObj__raftLastApplied = entry.index
            if entry.kind == EntryKind.VOTERS:
                self._configuration_applied(entry.index)
            for term, callback in waiting.pop(entry.index, ()):
                if term == entry.term:
                    self._answer(callback, Outcome.APPLIED, result, entry.index)
                else:
                    self._answer(callback, Outcome.NONE, None, entry.index)
            if entry.index == self._SyncObj__noopIDx:
                self._noop_applied()
            if self._halted or now() >= until:
                return False
        return True

    def _read_committed(self) -> deque[Entry]:
        """The next entries to apply. What no slice had time for waits for the next one: reading it
        again from the disk could take all of that."""
        config, applied = self._config, self._SyncObj__raftLastApplied
        count = min(config.apply_entries, self._SyncObj__raftCommitIndex - applied)
        first = Index(applied + 1)
        return deque(self._log.entries(first, max_bytes=config.apply_bytes, max_count=count))

    def _noop_applied(self) -> None:
        if self.is_leader and self._ready_term != self._SyncObj__raftCurrentTerm:
            self._ready_term = self._SyncObj__raftCurrentTerm
            self._announced = None
            self._state.on_leader(self.term)

    def _cannot_read(self, index: int, error: Unspoken) -> None:
        self.unspoken = (
            f"entry {index} was written by a version that speaks a higher feature level: {error}"
        )
        logger.error("group %s on %s applies no more: %s", self.id, self.node, self.unspoken)
        self._unapplied.clear()
        if self._SyncObj__raftState != FOLLOWER:  # a candidate would be elected, and never serve
            self._SyncObj__setState(FOLLOWER)
            self._SyncObj__raftLeader = None
        self._vote_changed()
        self._set_deadline(float("inf"))
        self._answer_unknown()
        self._announce()

    def _apply_failed(self, index: int, error: Exception) -> None:
        failure = ApplyFailed(f"group {self.id}: entry {index} can't be applied: {error!r}")
        failure.__cause__ = error
        self._fail(failure)

    def _answer(self, callback: Proposed, outcome: Outcome, result: object, index: int) -> None:
        self._call_back(callback, outcome, result, Index(index))

    def _call_back(self, callback: Callable[[*Args], object], *args: *Args) -> None:
        """What a caller's callback raises is the caller's affair, not the group's."""
        try:
            callback(*args)
        except Exception:
            logger.exception("group %s: a callback failed", self.id)

    # -- endings

    def _answer_unknown(self, before_term: int | None = None) -> None:
        """Tells proposers, all or those of earlier terms, that their outcome is not known."""
        waiting = self._SyncObj__commandsWaitingCommit
        for index in sorted(waiting):
            kept = []
            for term, callback in waiting.pop(index, ()):
                if before_term is not None and term >= before_term:
                    kept.append((term, callback))
                else:
                    self._answer(callback, Outcome.UNKNOWN, None, index)
            if kept:
                waiting[index] = kept

    def _leadership_lost(self) -> None:
        """Proposals still open may turn out either way: they wait a little to learn it."""
        if self._SyncObj__commandsWaitingCommit:
            self._scheduler.call_later(
                self._config.outcome_grace_s, self._grace_over, self._SyncObj__raftCurrentTerm
            )

    def _grace_over(self, lost_in_term: int) -> None:
        if not self._halted:
            self._answer_unknown(lost_in_term + 1)

    def _announce(self) -> None:
        """Tells the state machine whom it follows, when that has changed."""
        if self.is_leader or self._announced == (self.leader,):
            return
        self._announced = (self.leader,)
        self._state.on_follower(self.leader)

    def _fail(self, error: Exception) -> None:
        """Stops this replica loudly: it neither votes, leads, acknowledges nor applies again."""
        if self._halted:
            return
        self.failed = error
        logger.error("group %s on %s stopped: %s", self.id, self.node, error)
        self._halt()
        self._host.failed(error)

    def stop(self) -> None:
        """Ends this replica: open proposals are answered UNKNOWN, reads fail. Idempotent."""
        if not self._halted:
            self.stopped = True
            self._halt()

    def _halt(self) -> None:
        if self.is_leader:
            self._SyncObj__setState(FOLLOWER)
        self._SyncObj__raftLeader = None
        self._set_deadline(float("inf"))
        self._answer_unknown()
        self._announce()

    # -- local snapshots

    def take_snapshot(self, *, again: bool = False) -> SnapshotWork | None:
        """The applied state as work for any thread; None while it is ahead of what is durable, and
        where the newest snapshot is as new, unless it is to be stored `again`."""
        applied = self.applied_index
        stored = 0 if again else self._snapshot_index
        if self._halted or applied <= stored or applied > self._log.durable_index:
            return None
        self._snapshot_index = applied
        as_of = next(one for one in reversed(self._configurations) if one.index <= applied)
        return self._log.save_snapshot(applied, pack_snapshot(as_of, self._state.snapshot()))

    def _restore_snapshot(self) -> None:
        """Begins where the newest local snapshot ends; all before it was committed.

        A snapshot beyond the log's end (a relaxed log lost its tail in a power cut) is ignored
        where the log can be replayed from its beginning. Raises EntryDamaged where none that the
        log continues can be read, so that the replica is to be copied; Unsafe where none is there.
        """
        found = self._log.latest_snapshot()
        if found is not None and (found[0] <= self._log.last_index or self._log.first_index > 1):
            index, content = found
            configuration, state = unpack_snapshot(content)
            if configuration is not None:
                self._configurations = [configuration]
            self._state.restore(index, state)
            self._snapshot_index = self._SyncObj__raftLastApplied = index
            self._SyncObj__raftCommitIndex = index
        applied = self._SyncObj__raftLastApplied
        if applied < self._log.first_index - 1 and self._log.quarantined:
            first, last = applied + 1, self._log.first_index - 1
            raise EntryDamaged(str(self.id), first, last, "no snapshot to begin from")
        if not self._log.first_index - 1 <= applied <= self._log.last_index:
            raise Unsafe(
                f"group {self.id}: state up to entry {applied}, but the log holds "
                f"{self._log.first_index} to {self._log.last_index}"
            )
