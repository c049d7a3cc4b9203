"""One Raft group's log: what raft calls its journal.

All methods belong to the loop's thread and none waits for a sync: what is appended is durable once
the store's flush has passed its LSN. The newest entries are in RAM, older ones in segments.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from goqueue.wire.types import Index, Lsn, Offset, PartitionId, Term
from log.copy.beyond import entries_beyond
from log.copy.export import Export
from log.disk.files import Disk
from log.entry import Entry, EntryKind, frames_after
from log.errors import Damaged, EntryDamaged, EntryMissing
from log.partition.journal import HardState, Journal, Reattach, SearchCall
from log.partition.tail import Runs, Tail, is_bare
from log.segments.chain import PartitionSegments, SegmentInfo
from log.snapshots.file import SnapshotJob
from log.snapshots.kept import Snapshots
from log.wal.format import LogMeta, RecordKind, durability_flags, hard_state_payload, pair_payload
from log.wal.install import UNKNOWN_END, Install

_log = logging.getLogger(__name__)


class PartitionLog:
    """Entries `first_index` to `last_index`, term and vote of one group.

    `relaxed` groups count an entry durable once written, and sync it within `flush_interval_ms` (0:
    the store's); terms, votes and entries that change voters are always synced. `suspect` is one
    that may have lost entries it acknowledged in a power cut: it counts in no majority until it has
    caught up with a leader. `damaged` is the range of acknowledged entries that cannot be read: a
    group that has one is quarantined, and must neither vote nor lead. One that is `wal_only` has no
    segments, and needs none yet: see `log.store.wal_only`.
    """

    def __init__(
        self,
        id: PartitionId,
        store: Journal[PartitionLog],
        segments: PartitionSegments,
        disk: Disk,
        snapshots_kept: int,
    ) -> None:
        self.id, self.key = id, id.pack()
        self.suspect = self.wal_only = False
        self.flush_interval_ms = 0
        self.first_index = self.trim_index = Index(1)
        self.created_lsn = self.installed_lsn = Lsn(0)
        self._damaged: tuple[Index, Index] | None = None
        self.disk_segments = segments
        self._relaxed = self._cut_at_damage = False
        self._store, self._disk = store, disk
        self.snapshots = Snapshots(disk, segments.directory, id, snapshots_kept)
        self._hard_state = HardState(Term(0), None)
        self._hard_state_lsn = self._strict_lsn = Lsn(0)
        self._base_term = 0
        self._truncations: list[tuple[Lsn, int]] = []
        self._pins: dict[Export, int] = {}
        self._tail, self._undurable, self._unspilled = Tail(1), Runs(0), Runs(0)

    # -- state

    @property
    def last_index(self) -> Index:
        """The newest entry's, durable or not; `first_index - 1` in an empty log."""
        tail = self._tail
        return Index(tail.first + len(tail.entries) - 1)

    @property
    def last_term(self) -> Term:
        """The newest entry's term, 0 in an empty log that never held one."""
        return self.term_at(self.last_index) or Term(0)

    @property
    def damaged(self) -> tuple[Index, Index] | None:
        """The first and the last acknowledged entry that can't be read."""
        return self._damaged

    @damaged.setter
    def damaged(self, damaged: tuple[Index, Index] | None) -> None:
        self._damaged = damaged
        ids = self._store.damaged_ids
        (ids.discard if damaged is None else ids.add)(self.id)

    @property
    def quarantined(self) -> bool:
        """Whether entries that were acknowledged are damaged: do not vote or lead."""
        return self.damaged is not None

    @property
    def untrusted(self) -> bool:
        """Whether nothing here may be believed, and all of it is to be copied anew."""
        first, last = self.damaged or (Index(0), Index(0))
        return first <= self.first_index and last == UNKNOWN_END

    @property
    def relaxed(self) -> bool:
        """Whether what is written counts, before it is synced. A change is logged, and synced."""
        return self._relaxed

    @relaxed.setter
    def relaxed(self, relaxed: bool) -> None:
        if relaxed != self._relaxed:
            self._relaxed = relaxed
            self._record_durability()

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
        """Every entry up to here counts: it survives a power cut or, where nothing but relaxed
        entries lies before it and unsynced, a killed process."""
        store = self._store
        is_relaxed = self._relaxed or self._strict_lsn <= store.durable_lsn
        return Index(self._undurable.done(store.written_lsn if is_relaxed else store.durable_lsn))

    @property
    def spilled_index(self) -> Index:
        """Every entry up to here is in segments, synced or not."""
        return Index(self._unspilled.done(self._store.spilled_lsn))

    @property
    def size_bytes(self) -> int:
        """In segments."""
        return self.disk_segments.size_bytes

    @property
    def ram_bytes(self) -> int:
        """Of entries held in RAM."""
        return self._tail.bytes

    # -- changes

    def save_hard_state(self, term: Term, vote: str | None) -> Lsn:
        """Logs term and vote; nobody may be told of them before the LSN is synced."""
        payload = hard_state_payload(term, vote)
        self._hard_state_lsn = self._store.record(
            RecordKind.HARD_STATE, self, (payload,), len(payload), 0 if vote is None else 1
        )
        self._hard_state = HardState(term, vote)
        self._store.dirty()
        return self._hard_state_lsn

    def append(self, entries: Sequence[Entry], *, relaxed: bool = False) -> Lsn:
        """Logs entries that follow `last_index` without a gap. Raises ValueError on a gap.

        `relaxed`: these count once they are written and all before them counts, as if the group
        were relaxed.

        Entries that change voters are synced with all before them, also where the group is relaxed:
        a replica that forgot one in a power cut would count everyone by an older configuration.
        """
        frames = frames_after(self._tail.last, entries)
        index, length = self._tail.last + len(frames), sum(map(len, frames))
        relaxed = relaxed or self._relaxed
        if self.wal_only:
            lsn = self.log_again(entries, relaxed=relaxed)
        else:
            lsn = self._store.record(RecordKind.APPEND, self, frames, length, relaxed=relaxed)
        self._tail.extend(entries, length)
        if not relaxed:
            self._strict_lsn = lsn
        self._undurable.add(index, lsn)
        self._spill(entries, lsn)
        if any(entry.kind == EntryKind.VOTERS for entry in entries):
            self._store.require_sync()
        if self.damaged is not None and self.damaged[1] <= index and self._cut_at_damage:
            self.lift_quarantine()  # the damaged entries were cut off and came again
        self._store.dirty()
        return lsn

    def truncate_from(self, index: Index) -> Lsn:
        """Drops this entry and all after it: a new leader's log differs from here on.

        Its segments are truncated once the LSN is synced.
        """
        self._check_index(index)
        payload = index.to_bytes(8, "little")
        lsn = self._store.record(RecordKind.TRUNCATE, self, (payload,), len(payload))
        self._undurable.cut(index, self.durable_index)
        self._unspilled.cut(index, self.spilled_index)
        self._tail.truncate(index)
        if self.damaged is not None and index <= self.damaged[0]:
            self._cut_at_damage = True
        if not self.wal_only:
            self._truncations.append((lsn, index))
            self._store.spill_later(self, index)
        self._store.dirty()
        return lsn

    def trim_to(self, index: Index) -> None:
        """Moves the log's start: entries below may go once a snapshot has passed them. Not logged:
        the state machine's own trim entry says it again after a restart."""
        self.trim_index = Index(max(self.trim_index, min(index, self.last_index + 1)))

    def clear_suspect(self) -> None:
        """The log holds again whatever it may have lost: durable not before what it now holds."""
        if self.suspect:
            self.suspect = False
            self._record_durability()
        if self._cut_at_damage and self.damaged is not None and self.damaged[1] != UNKNOWN_END:
            self.lift_quarantine()  # of what was cut off, the rest had never been committed

    def mark_suspect(self) -> None:
        """The log may lack what its group's replica here once acknowledged: it was begun anew."""
        if not self.suspect:
            self.suspect = True
            self._record_durability()

    def lift_quarantine(self) -> None:
        """Declares the damage made good."""
        if self.damaged is not None:
            self.damaged, self._cut_at_damage = None, False
            self._note(RecordKind.DAMAGED, pair_payload(0, 0))

    # -- reads

    def term_at(self, index: Index) -> Term | None:
        """The term of the entry at this index; None where the log does not know it.

        Raises EntryDamaged.
        """
        entry = self._tail.get(index)
        if entry is not None:
            return entry.term
        if index == self.first_index - 1:
            return Term(self._base_term) if index == 0 or self._base_term else None
        if self.first_index <= index <= self.last_index:
            return self._read_segments(index, 1, 1)[0].term
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
        self._check_index(first)
        if first >= self._tail.first:
            return self._tail.take(first, max_bytes, max_count)
        return self._read_segments(first, max_bytes, max_count)

    def is_cold(self, first: Index) -> bool:
        """Whether reading from here asks the disk: then `cold_entries` may do it off the loop."""
        return first < self._tail.first

    def cold_entries(
        self, first: Index, *, max_bytes: int = 1 << 20, max_count: int = 1 << 30
    ) -> list[Entry]:
        """As `entries`, for a cold `first`, on any thread. Raises Damaged, quarantines nothing."""
        return self.disk_segments.read(first, self.last_index, max_bytes, max_count)

    def locate_offset(self, offset: Offset) -> Index | None:
        """The last entry with records whose base offset is at or below this one.

        Raises EntryDamaged where an unreadable entry hides the answer.
        """
        newest = self._tail.locate_offset(offset)
        if newest is not None or self._tail.first == self.first_index:
            return newest
        return self._guarded(
            lambda: self.disk_segments.searches.locate_offset(
                offset, self.first_index, self._tail.first - 1
            )
        )

    def is_cold_offset(self, offset: Offset) -> bool:
        """Whether locating it asks the disk, as `searches.holding` may do off the loop."""
        return self._tail.first > self.first_index and self._tail.locate_offset(offset) is None

    def locate_time(self, time_ms: int) -> Index | None:
        """The first entry with this log time or a later one. Raises EntryDamaged."""
        at = self._tail.locate_time(time_ms)
        older = at == self._tail.first or not self._tail.entries
        if older and self._tail.first > self.first_index:
            below = self._guarded(
                lambda: self.disk_segments.searches.locate_time(
                    time_ms, self.first_index, self._tail.first - 1
                )
            )
            if below is not None:
                return below
        return at

    def identity(self, index: Index) -> tuple[Term, int] | None:
        """(term, CRC) of an entry, readable or not: any replica that has it can supply it."""
        entry = self._tail.get(index)
        if entry is not None:
            return entry.term, entry.crc
        try:
            term, crc = self.disk_segments.identity(index)
        except Damaged:
            return None
        return Term(term), crc

    def segments(self) -> list[SegmentInfo]:
        """What is on disk, oldest first; the last one is still written to."""
        return self.disk_segments.infos()

    # -- snapshots

    def save_snapshot(self, index: Index, state: bytes | Callable[[], bytes]) -> SnapshotJob:
        """A job that writes the state machine's state as of this entry, which the job may encode.

        It counts for `trim_to` and `latest_snapshot` only while the log holds that entry.
        """
        return self.snapshots.save(self.created_lsn, index, state)

    def latest_snapshot(self) -> tuple[Index, bytes] | None:
        """Where a state machine begins: the newest sound snapshot that the log continues, or None.
        One of its predecessor may lie ahead of that: entries go only once it says `trim_to` anew.
        None where the log no longer begins at 1 means that the group needs a transfer: it is then
        quarantined."""
        self.trim_index = self.first_index
        within = self.first_index - 1, self.last_index
        found = self.snapshots.newest(self.created_lsn, within, self._snapshot_damaged)
        if found is not None:
            return Index(found[0]), found[1]
        if self.first_index > 1:
            self.quarantine(1, self.first_index - 1, "no snapshot to begin from")
        return None

    def removable_below(self) -> int:
        """Entries below this index are trimmed, and every snapshot kept has passed them."""
        passed = self.snapshots.passed(self.last_index) or self.first_index
        return min(self.trim_index, passed, *self._pins.values())

    # -- whole replicas

    def export(self, committed: Index) -> Export:
        """This replica up to a committed entry, for another node to copy.

        Until `release`, the log keeps the entries it begins with. Raises EntryDamaged on a log that
        is damaged itself.
        """
        if self.damaged is not None:
            raise EntryDamaged(str(self.id), *self.damaged, "not to be copied")
        if self.wal_only:
            lsn, self.wal_only = self.log_again(), False
            self._spill(self._tail.entries, lsn)
            self._store.dirty()
        export = Export(self, self._disk, committed)
        self._pins[export] = self.first_index
        return export

    def release(self, export: Export) -> None:
        """The copy is made, or given up: entries may go again. Safe to call twice."""
        self._pins.pop(export, None)

    def install(self, install: Install) -> Lsn:
        """Makes staged files the whole log; they are in place once `spilled_index` has passed them.

        For a log that nobody uses: no group may run on it, nor anybody read from it meanwhile.
        Entries beyond the staged ones stay where the log agrees with them. What was acknowledged
        beyond and is damaged stays so. Raises InstallRefused: nothing has changed then.
        """
        beyond = entries_beyond(self, install)
        self._store.disown_trimmed(self)
        self.wal_only = False
        if self.damaged is not None and self.damaged[1] == UNKNOWN_END:
            self.mark_suspect()
        payload = install.pack()
        lsn = self._store.record(RecordKind.INSTALL, self, (payload,), len(payload))
        self.first_index = self.trim_index = install.first_index
        self._base_term = install.base_term
        self._tail = Tail(install.last_index + 1)
        run = install.last_index, lsn
        self._undurable, self._unspilled = Runs(0, run), Runs(0, run)
        self._strict_lsn = lsn
        self._truncations, self.installed_lsn = [], lsn
        self.snapshots.installed(install)
        self.damaged = install.damage_left(self.damaged)
        self._cut_at_damage = self.damaged is not None
        self._store.spill_later(self, install)
        self._store.dirty()
        if beyond:
            self.append(beyond)
        return lsn

    def reattach(self) -> None:
        """Gives deleted names of files that are written to back, with the next flush."""
        self._store.spill_later(self, Reattach())
        self._record_durability()

    # -- for the store

    def log_again(self, more: Sequence[Entry] = (), *, relaxed: bool = False) -> Lsn:
        """Logs all entries again, with more that follow, in one record."""
        frames = [entry.frame for entry in (*self._tail.entries, *more)]
        length = sum(map(len, frames))
        return self._store.record(RecordKind.APPEND, self, frames, length, relaxed=relaxed)

    def start_at(self, first: Index) -> Lsn:
        """Logs that the log now begins at this index."""
        base_term = self.term_at(Index(first - 1)) or Term(0)
        payload = pair_payload(first, base_term)
        self.first_index, self._base_term = first, base_term
        return self._store.record(RecordKind.START, self, (payload,), len(payload))

    def lowest_truncation(self, lsn: Lsn) -> int:
        """The lowest index truncated from past this LSN; those up to it are forgotten."""
        self._truncations = [cut for cut in self._truncations if cut[0] > lsn]
        return min((index for _lsn, index in self._truncations), default=self.last_index + 1)

    def evict(self, budget_bytes: int) -> None:
        """Lets go of RAM beyond the budget, of entries that segments hold."""
        self._undurable.done(self._store.durable_lsn)  # else it grows until somebody asks
        self._tail.evict(self.spilled_index, budget_bytes)

    def restore(self, meta: LogMeta, last: int, entries: Sequence[Entry]) -> None:
        """Takes over what recovery found: `entries` in RAM, ending at `last`. All is durable."""
        self._hard_state = HardState(Term(meta.term), meta.vote)
        self.first_index = self.trim_index = Index(meta.first_index)
        self._base_term = meta.base_term
        self._relaxed, self.suspect = meta.relaxed, meta.suspect
        self.created_lsn = Lsn(meta.created_lsn)
        self._tail = Tail(last + 1 - len(entries))
        self._tail.extend(entries, sum(len(entry.frame) for entry in entries))
        self._undurable, self._unspilled = Runs(last), Runs(0 if self.wal_only else last)
        self.snapshots.look()
        if meta.damaged_last:
            self.damaged = (Index(meta.damaged_first), Index(meta.damaged_last))
            self._cut_at_damage = last < meta.damaged_first

    def quarantine(self, first: int, last: int, reason: str) -> None:
        """Notes damage to entries that were acknowledged; durable with the next flush."""
        self._store.damaged_entries += 1
        _log.error("entries_damaged group=%s first=%d last=%d %s", self.id, first, last, reason)
        known = self.damaged or (first, last)
        self._cut_at_damage = self._cut_at_damage and first >= known[0]  # else this was not cut off
        first, last = min(first, known[0]), max(last, known[1])
        if self.damaged != (first, last):
            self.damaged = (Index(first), Index(last))
            self._note(RecordKind.DAMAGED, pair_payload(first, last))
        self._store.on_damaged(self.id)

    def _spill(self, entries: Sequence[Entry], lsn: Lsn) -> None:
        if self.wal_only:
            if is_bare(self._tail.entries):
                return
            self.wal_only, entries = False, self._tail.entries
        self._unspilled.add(self.last_index, lsn)
        self._store.spill_later(self, entries)

    def _read_segments(self, first: int, max_bytes: int, max_count: int) -> list[Entry]:
        try:
            return self.disk_segments.read(first, self._tail.first - 1, max_bytes, max_count)
        except (Damaged, OSError) as error:
            self.quarantine(first, first, str(error))
            raise EntryDamaged(str(self.id), first, first, str(error)) from error

    def _guarded(self, search: SearchCall) -> Index | None:
        try:
            return search()
        except (Damaged, OSError) as error:
            hidden = error.entries if isinstance(error, Damaged) else None
            first, last = hidden or (self.first_index, self.last_index)
            if hidden is not None:
                self.quarantine(first, last, str(error))
            raise EntryDamaged(str(self.id), first, last, str(error)) from error

    def _check_index(self, index: int) -> None:
        if not self.first_index <= index <= self.last_index:
            raise EntryMissing(str(self.id), index, self.first_index, self.last_index)

    def _record_durability(self) -> None:
        flags = durability_flags(relaxed=self._relaxed, suspect=self.suspect)
        lsn = self._note(RecordKind.DURABILITY, b"", flags)
        # What was relaxed counts no longer until then.
        self._strict_lsn = max(self._strict_lsn, lsn)

    def _note(self, kind: int, payload: bytes, flags: int = 0) -> Lsn:
        """The record's LSN, 0 where there is none."""
        lsn = Lsn(0)
        if (store := self._store).holds(self) and not store.read_only and store.failed is None:
            lsn = store.record(kind, self, (payload,), len(payload), flags)
            store.dirty()
        return lsn

    def _snapshot_damaged(self, error: Damaged) -> None:
        self._store.damaged_entries += 1
        _log.error("snapshot_damaged %s", error)
        self._store.on_damaged(self.id)
