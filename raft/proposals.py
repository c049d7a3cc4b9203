"""Proposals, and telling every proposer, exactly once, how it ended."""

from __future__ import annotations

from collections.abc import Sequence

from goqueue.wire.types import Index
from log.entry import HAS_NEW_SEGMENT, Entry, make_entry
from raft.errors import NotLeader, Outcome
from raft.log_time import LogTime
from raft.state import Proposed, State


class Proposals:
    """Entries of callers on a leader. Who proposed waits in `State.waiting`."""

    def __init__(self, state: State, log_time: LogTime) -> None:
        self._state = state
        self._log_time = log_time

    def propose(
        self,
        kind: int,
        body: bytes | memoryview | Sequence[bytes | memoryview],
        *,
        base_offset: int,
        record_count: int,
        time_ms: int | None,
        relaxed: bool = False,
        begins_segment: bool = False,
        callback: Proposed,
    ) -> Index:
        """As `RaftGroup.propose`, which stops the replica where a LogError comes out."""
        state = self._state
        if not state.is_ready_leader:
            raise NotLeader(None if state.is_leader else state.leader_node)
        term = state.term
        index = state.log.last_index + 1
        time_ms = self._log_time.stamp(time_ms)
        entry = make_entry(
            index=index,
            term=term,
            time_ms=time_ms,
            kind=kind,
            body=body,
            base_offset=base_offset,
            record_count=record_count,
            matches=state.matched(),
            flags=HAS_NEW_SEGMENT if begins_segment else 0,
            lag_ms=self._log_time.lag_ms(index - 1),
        )
        if relaxed and state.config.relaxed_alone and not state.peers:
            state.log.append((entry,), relaxed=True)  # nobody else may have it, and apply it
        else:
            state.log.append((entry,))
        self._log_time.stamped(time_ms)
        state.waiting[index].append((term, callback))
        state.host.wake()
        return Index(index)

    def answer(self, callback: Proposed, outcome: Outcome, result: object, index: int) -> None:
        self._state.call_back(callback, outcome, result, Index(index))

    def applied(self, entry: Entry, result: object) -> None:
        """An entry was applied: whoever proposed another one of its index has lost."""
        for term, callback in self._state.waiting.pop(entry.index, ()):
            if term == entry.term:
                self.answer(callback, Outcome.APPLIED, result, entry.index)
            else:
                self.answer(callback, Outcome.NONE, None, entry.index)

    def answer_unknown(self, before_term: int | None = None) -> None:
        """Tells proposers, all or those of earlier terms, that their outcome is not known."""
        waiting = self._state.waiting
        for index in sorted(waiting):
            kept = []
            for term, callback in waiting.pop(index, ()):
                if before_term is not None and term >= before_term:
                    kept.append((term, callback))
                else:
                    self.answer(callback, Outcome.UNKNOWN, None, index)
            if kept:
                waiting[index] = kept

    def leadership_lost(self) -> None:
        """Proposals still open may turn out either way: they wait a little to learn it."""
        state = self._state
        if state.waiting:
            grace_s = state.config.outcome_grace_s
            state.scheduler.call_later(grace_s, self._grace_over, state.term)

    def _grace_over(self, lost_in_term: int) -> None:
        if not self._state.halted:
            self.answer_unknown(lost_in_term + 1)
