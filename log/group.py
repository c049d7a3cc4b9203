"""One Raft group's log: what raft calls its journal.

All methods belong to the loop's thread and none waits for a sync: what is appended is durable once
the store's flush has passed its LSN.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Protocol

from goqueue.wire.types import GroupId, Index, Lsn, Offset, Term
from log.entry import Entry
from log.errors import EntryMissing
from log.wal import RecordKind, hard_state_payload

_TIME = attrgetter("time_ms")


@dataclass(frozen=True, slots=True)
class HardState:
    """What a Raft voter must never forget: its term, and whom it voted for in it."""

    term: Term
    vote: str | None


class Journal(Protocol):
    """What a group asks of its store."""

    durable_lsn: Lsn
    written_lsn: Lsn
    spilled_lsn: Lsn

    def record(
        self, kind: int, group: GroupLog, parts: Sequence[bytes], length: int, flags: int = 0
    ) -> Lsn:
        """Appends a record to the pending block; the LSN after it."""
        ...


class GroupLog:
    """Entries `first_index` to `last_index`, term and vote of one group.

    `relaxed` groups count an entry durable once written, before it is synced; terms and votes are
    always synced.
    """

    def __init__(self, group: GroupId, store: Journal) -> None:
        self.id = group
        self.key = group.pack()
        self.relaxed = False
        self.first_index = Index(1)
        self.damaged: tuple[Index, Index] | None = None
        self._store = store
        self._hard_state = HardState(Term(0), None)
        self._hard_state_lsn = Lsn(0)
        self._base_term = Term(0)
        self._tail: list[Entry] = []
        self._tail_first = 1
        self._tail_bytes = 0
        self._record_entries: list[Entry] = []
        self._undurable: deque[tuple[int, Lsn]] = deque()
        self._durable_index = 0
        self.on_append: Callable[[GroupLog, Sequence[Entry]], None] | None = None

    # -- state

    @property
    def last_index(self) -> Index:
        """The newest entry's index, durable or not; `first_index - 1` in an empty log."""
        return Index(self._tail_first + len(self._tail) - 1)

    @property
    def last_term(self) -> Term:
        """The newest entry's term, 0 in an empty log that never held one."""
        return self._tail[-1].term if self._tail else (self.term_at(self.last_index) or Term(0))

    @property
    def quarantined(self) -> bool:
        """Whether entries that were acknowledged are damaged: do not vote or lead."""
        return self.damaged is not None

    @property
    def hard_state(self) -> HardState:
        """The newest saved, durable or not."""
        return self._hard_state

    @property
    def hard_state_durable(self) -> bool:
        """Whether the newest saved hard state is synced."""
        return self._hard_state_lsn <= self._store.durable_lsn

    @property
    def durable_index(self) -> Index:
        """Every entry up to here survives a power cut (a relaxed group: a killed process)."""
        store = self._store
        limit = store.written_lsn if self.relaxed else store.durable_lsn
        waiting = self._undurable
        while waiting and waiting[0][1] <= limit:
            self._durable_index = waiting.popleft()[0]
        return Index(self._durable_index)

    def is_durable(self, lsn: Lsn) -> bool:
        """Whether what was appended under this LSN may be acknowledged by this group."""
        store = self._store
        return lsn <= (store.written_lsn if self.relaxed else store.durable_lsn)

    # -- changes

    def save_hard_state(self, term: Term, vote: str | None) -> Lsn:
        """Logs term and vote; nobody may be told of them before the LSN is synced."""
        payload = hard_state_payload(term, vote)
        self._hard_state = HardState(term, vote)
        self._hard_state_lsn = self._store.record(
            RecordKind.HARD_STATE, self, (payload,), len(payload), 0 if vote is None else 1
        )
        return self._hard_state_lsn

    def append(self, entries: Sequence[Entry]) -> Lsn:
        """Logs entries that follow `last_index` without a gap. Raises ValueError on a gap."""
        index = self.last_index
        frames = []
        length = 0
        for entry in entries:
            index += 1
            if entry.index != index:
                raise ValueError(
                    f"group {self.id}: entry {entry.index} does not follow {index - 1}"
                )
            frames.append(entry.frame)
            length += len(entry.frame)
            if entry.record_count:
                self._record_entries.append(entry)
        lsn = self._store.record(RecordKind.APPEND, self, frames, length)
        self._tail += entries
        self._tail_bytes += length
        self._undurable.append((index, lsn))
        return lsn

    def truncate_from(self, index: Index) -> Lsn:
        """Drops this entry and all after it: a new leader's log differs from here on."""
        if not self.first_index <= index <= self.last_index:
            raise EntryMissing(str(self.id), index, self.first_index, self.last_index)
        payload = index.to_bytes(8, "little")
        lsn = self._store.record(RecordKind.TRUNCATE, self, (payload,), len(payload))
        durable = self.durable_index
        _cut(self._undurable, index, durable)
        self._durable_index = min(durable, index - 1)
        keep = max(0, index - self._tail_first)
        self._tail_bytes -= sum(len(entry.frame) for entry in self._tail[keep:])
        del self._tail[keep:]
        self._tail_first = min(self._tail_first, index)
        records = self._record_entries
        del records[bisect_left(records, index, key=attrgetter("index")) :]
        return lsn

    # -- reads

    def term_at(self, index: Index) -> Term | None:
        """The term of the entry at this index; None where the log does not know it."""
        at = index - self._tail_first
        if 0 <= at < len(self._tail):
            return self._tail[at].term
        if index == self.first_index - 1:
            return self._base_term if index == 0 or self._base_term else None
        return None

    def entry(self, index: Index) -> Entry:
        """The entry at this index. Raises EntryMissing, or EntryDamaged."""
        return self.entries(index, max_count=1)[0]

    def entries(
        self, first: Index, *, max_bytes: int = 1 << 20, max_count: int = 1 << 30
    ) -> list[Entry]:
        """Entries from `first` on: at least one, then while count and frame bytes allow.

        Raises EntryMissing outside the log; EntryDamaged where the first one is unreadable.
        """
        if not self.first_index <= first <= self.last_index:
            raise EntryMissing(str(self.id), first, self.first_index, self.last_index)
        at = first - self._tail_first
        taken: list[Entry] = []
        size = 0
        for entry in self._tail[at : at + min(max_count, 4096)]:
            size += len(entry.frame)
            if taken and size > max_bytes:
                break
            taken.append(entry)
        return taken

    def locate_offset(self, offset: Offset) -> Index | None:
        """The last entry with records whose base offset is at or below this one."""
        at = bisect_right(self._record_entries, offset, key=attrgetter("base_offset"))
        return self._record_entries[at - 1].index if at else None

    def locate_time(self, time_ms: int) -> Index | None:
        """The first entry with this log time or a later one."""
        at = bisect_left(self._tail, time_ms, key=_TIME)
        return self._tail[at].index if at < len(self._tail) else None

    # -- recovery

    def restore(
        self, hard_state: HardState, entries: Sequence[Entry], first: Index, base_term: Term
    ) -> None:
        """Takes over what recovery found; all of it is durable."""
        self._hard_state = hard_state
        self.first_index = first
        self._base_term = base_term
        self._tail = list(entries)
        self._tail_first = entries[0].index if entries else first
        self._tail_bytes = sum(len(entry.frame) for entry in entries)
        self._record_entries = [entry for entry in entries if entry.record_count]
        self._durable_index = self.last_index


def _cut(waiting: deque[tuple[int, Lsn]], index: int, before: int) -> None:
    """Forgets runs from this index on; the run that holds the entry before it keeps its LSN."""
    lsn = None
    while waiting and waiting[-1][0] >= index:
        lsn = waiting.pop()[1]
    previous = waiting[-1][0] if waiting else before
    if lsn is not None and previous < index - 1:
        waiting.append((index - 1, lsn))
