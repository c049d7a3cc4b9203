"""A partition's messages as a feed of events has read them so far: what is stored, what outlives
the log, what is delayed or has gone past its time."""

from __future__ import annotations

from collections.abc import Iterable

from delivery.config import QueueConfig
from delivery.entries.columns import stored_batch, stored_header
from delivery.entries.reappended import decode_reappended
from delivery.entries.records import AppendedBatch, decode_records, decode_trim
from delivery.events.group import EventGroup
from delivery.events.outcome import FRAME, TIME, Outcome, Row
from delivery.history.compacted_set import decode_compaction
from delivery.history.outcome_notes import CHANGES_MAX, GroupPast, OutcomeNotes
from delivery.offsets.bitmaps import BitMap64, span
from delivery.offsets.due import DueTimes
from delivery.timeline.frames import Replication
from delivery.timeline.groups import Attributes
from delivery.timeline.message import Projection, stories_in
from delivery.timeline.story import StoryRecord
from goqueue.wire.batch import RecordBatch, resolve_ms
from goqueue.wire.layout import HAS_DELIVER_AT, HAS_EXPIRES_AT
from log.entry import Entry, EntryKind

LAST = 1 << 30
"""In place of an operation's number: behind all of an entry."""


class EventMessages:
    """As of the entry `index`; the log begins at `start_offset`. One of them at a time is the
    subject of the judge: the one that was pointed at last."""

    def __init__(self, outcome_notes: OutcomeNotes, start_index: int, start_offset: int) -> None:
        self.outcome_notes = outcome_notes
        self.offset = 0
        self.fate = ""
        self.kept = self.in_stream = False
        self.index = start_index - 1
        """The newest entry that was taken."""
        self.start_offset = self.next_offset = start_offset
        self.exact_from = 0
        """Of messages below this offset, notes that their events need may be lost."""
        self.lost = 0
        """Messages that were named but are not in the log any more."""
        self.groups: dict[int, EventGroup] = {}
        self.outcome = Outcome(0)
        """What the entry has brought so far."""
        self.number = 0
        """Of the operation that is judged."""
        self.now_ms = 0
        self.config = QueueConfig()
        self._foreseen: dict[int, list[tuple[int, int, StoryRecord]]] = {}
        """By the entry that their stories were told up to, messages that are carried further on:
        (offset, carrying entry, story)."""
        self._unborn, self._inexact = BitMap64(), BitMap64()
        """Those of them whose entry is not reached, and those of whose past too little is known."""
        self._told: dict[int, list[Row]] = {}
        """By entry, what these stories tell."""
        self._replications: list[tuple[Replication, range]] = []
        self._due, self._expires = DueTimes(), DueTimes()
        self.delayed, self.cancelled, self.withdrawn = BitMap64(), BitMap64(), BitMap64()
        self._keyed = BitMap64()
        self._held, self._kept, self._in_stream = BitMap64(), BitMap64(), BitMap64()
        """Messages that outlive the log, those of them that it begins after by now, and those of
        these that compaction has kept."""
        self._carriers: list[tuple[int, BitMap64]] = []
        """Entries that carry messages on, and which."""
        self._late: dict[int, int] = {}
        """When messages that were delayed, and are carried, are too old for new groups; 0 where
        that is at once, or they are not due."""
        self._retentions = [(0, self.config.retention_ms)]
        """(log time, how long the partition kept a message from then on)."""

    def configure(self, config: QueueConfig) -> None:
        """The partition's settings from now on."""
        self.config = config
        self._retentions.append((self.now_ms, config.retention_ms))
        del self._retentions[1:-CHANGES_MAX]

    def begin(self, entry: Entry) -> None:
        """What is told from now on is of this entry."""
        self.index, self.outcome = entry.index, Outcome(entry.index)
        self._frame(entry)

    def end(self) -> Outcome:
        """All that the entry brought; messages that come in with it are there from now on."""
        self.outcome.named += self._told.pop(self.index, ())
        if self.index in self._foreseen:
            self._bring_in(self._foreseen.pop(self.index))
        if self.index < self.outcome_notes.noted_from:
            self.exact_from = self.next_offset
        return self.outcome

    def foresee(self, entry: Entry, offsets: Iterable[int]) -> None:
        """An entry further on carries these messages, whose own entry is gone, with their stories.
        To be told before anything is taken."""
        stories = stories_in(entry)
        first = self.index + 1
        for offset in offsets:
            record = stories.get(offset)
            if record is None:
                story = Projection(offset, self.outcome_notes, entry).story
                record = story.record(entry.index)
                record.exact = False
            stamped = zip(record.indexes, record.events, strict=False)
            for number, (index, (time_ms, type_, what)) in enumerate(stamped):
                if first <= index <= record.index:
                    row = offset, number, time_ms, type_, what, None
                    self._told.setdefault(index, []).append(row)
            is_whole = record.exact and len(record.indexes) == len(record.events)
            if not is_whole or record.index + 1 < first:  # what lies between has gone
                self._inexact.add(offset)
            record.events, record.indexes = [], []
            at = max(record.index, self.index)
            self._foreseen.setdefault(at, []).append((offset, entry.index, record))
            self._unborn.add(offset)
        if self.index in self._foreseen:
            self._bring_in(self._foreseen.pop(self.index))

    def not_for(self, past: GroupPast) -> BitMap64:
        """Messages that a group which begins now does not get."""
        late = BitMap64([o for o, until_ms in self._late.items() if until_ms > past.opened_ms])
        too_old = self.outlived - late
        return self.stored(0, past.base) | too_old | self.cancelled | self.withdrawn

    @property
    def outlived(self) -> BitMap64:
        """Messages that outlive the log, and that nobody who begins anew gets."""
        return self._kept - self._in_stream - self.delayed

    def is_exact(self, offset: int) -> bool:
        """Whether all is known that the message's events go by."""
        return offset >= self.exact_from and not (self._inexact and offset in self._inexact)

    # -- as the judge sees the one that was pointed at

    @property
    def has_key(self) -> bool:
        return self.offset in self._keyed

    def add(self, type_: str, what: Attributes) -> None:
        self.outcome.named.append((self.offset, self.number, self.now_ms, type_, what, None))

    # -- what is stored

    def store(self, entry: Entry) -> None:
        self.next_offset = entry.base_offset + entry.record_count
        self.outcome.add_published(entry)
        stored = range(entry.base_offset, self.next_offset)
        self._replications.append((Replication(entry, entry.time_ms), stored))
        for batch in decode_records(entry.body, entry.base_offset):
            self._note(batch, entry.time_ms)

    def _note(self, stored: AppendedBatch, time_ms: int) -> None:
        batch = stored_batch(stored.batch, stored_header(stored.batch))
        base, end = int(stored.base_offset), int(stored.base_offset) + stored.count
        if batch.header.flags & HAS_DELIVER_AT:
            for row, cell in enumerate(batch.deliver_at()):
                due_ms = resolve_ms(cell, time_ms) or 0
                if due_ms > time_ms:
                    self.delayed.add(base + row)
                    self._due.add(due_ms, base + row)
        ttl_ms = time_ms + self.config.ttl_ms if self.config.ttl_ms else 0
        if batch.header.flags & HAS_EXPIRES_AT:
            for row, cell in enumerate(batch.expires_at()):
                expires_ms = resolve_ms(cell, time_ms) or ttl_ms
                if expires_ms:
                    self._expires.add(expires_ms, base + row)
        elif ttl_ms:
            self._expires.add(ttl_ms, base, stored.count)
        if not batch.header.keys_bytes:
            return
        keys = batch.keys()
        if all(keys):
            self._keyed.add_range(base, end)
        else:
            self._keyed.update([base + row for row, key in enumerate(keys) if key])

    def _frame(self, entry: Entry) -> None:
        left: list[tuple[Replication, range]] = []
        for replication, offsets in self._replications:
            replication.frame(entry, self.outcome_notes)
            if replication.is_over:
                voters = self.outcome_notes.voters_at(replication.index)
                told = replication.event or replication.unknown(voters)
                self.outcome.add_many(offsets, FRAME, *told)
            else:
                left.append((replication, offsets))
        self._replications = left

    def stored(self, first: int, end: int) -> BitMap64:
        """Messages that are stored, in a range of offsets."""
        found = span(max(first, self.start_offset), min(end, self.next_offset))
        if self._held and first < self.start_offset:
            found |= self._held & span(first, min(end, self.start_offset))
        return found

    def is_stored(self, offset: int) -> bool:
        if self.start_offset <= offset < self.next_offset:
            return True
        if 0 <= offset < self.start_offset and offset in self._held:
            return True
        if offset in self._unborn:
            return False
        self.lost += offset < self.start_offset
        return False

    def carry(self, entry: Entry) -> None:
        """These messages stand in this entry from now on, too."""
        offsets = BitMap64()
        for reappended in decode_reappended(entry.body):
            offsets.update(reappended.offsets)
            batch = RecordBatch.parse(reappended.batch)
            if batch.header.flags & HAS_DELIVER_AT:
                for offset, cell in zip(reappended.offsets, batch.deliver_at(), strict=True):
                    due_ms = resolve_ms(cell, reappended.time_ms) or 0
                    if due_ms > reappended.time_ms and offset not in self._late:
                        is_due = offset not in self.delayed
                        self._late[offset] = self._late_until(due_ms) if is_due else 0
        self._carriers.append((entry.index, offsets))

    def _bring_in(self, stories: Iterable[tuple[int, int, StoryRecord]]) -> None:
        """Messages whose own entry is gone, as they are now."""
        carriers: dict[int, BitMap64] = {}
        for offset, carrier, record in stories:
            carriers.setdefault(carrier, BitMap64()).add(offset)
            self._unborn.discard(offset)
            self._held.add(offset)
            for offsets, holds in (
                (self._kept, record.kept),
                (self._in_stream, record.in_stream),
                (self._keyed, bool(record.key)),
                (self.delayed, record.fate == "delayed"),
                (self.cancelled, record.fate == "cancelled"),
                (self.withdrawn, record.fate == "expired"),
            ):
                if holds:
                    offsets.add(offset)
            if record.fate == "delayed":
                self._due.add(record.due_ms, offset)
            if record.due_ms:
                self._late[offset] = record.late_until_ms
            if record.expires_ms and record.fate in ("", "delayed"):
                self._expires.add(record.expires_ms, offset)
            known = {story.id: story for story in record.groups}
            for group in self.groups.values():
                story = known.get(group.id)
                if story is None:
                    group.done.add(offset)
                else:
                    group.put(offset, story)
        self._carriers += sorted(carriers.items())

    def _late_until(self, due_ms: int) -> int:
        """Of a message that fell due then: as the partition was set when it did."""
        retention_ms = next(ms for since, ms in reversed(self._retentions) if since < due_ms)
        return due_ms + retention_ms if retention_ms >= 0 else 0

    def keep(self, entry: Entry) -> None:
        """What compaction keeps of messages that nothing is known of any more: they stand as if
        they came now."""
        for reappended in decode_reappended(entry.body):
            new = BitMap64([o for o in reappended.offsets if not self.is_stored(o)])
            if not new:
                continue
            self._held |= new
            self._kept |= new
            self._in_stream = self._in_stream | new
            self._inexact |= new
            self.outcome.add_many(new, 0, self.now_ms, "KEPT", {})

    def trim(self, entry: Entry) -> None:
        """The log begins later; what is carried, or kept by compaction, stays."""
        if entry.kind == EntryKind.TRIM:
            trim = decode_trim(entry.body)
            index, offset, self._in_stream = trim.index, trim.offset, BitMap64()
        else:
            decision = decode_compaction(entry.body)
            index, offset, self._in_stream = decision.index, decision.offset, decision.kept
        start = max(self.start_offset, min(int(offset), self.next_offset))
        self._carriers = [one for one in self._carriers if one[0] >= min(index, entry.index)]
        before = self._held | span(self.start_offset, start)
        self._held = BitMap64.union(self._in_stream, *(held for _index, held in self._carriers))
        newly = (self._held & span(0, int(offset))) - self._kept
        self._kept |= newly
        self.outcome.add_many(newly, 0, self.now_ms, "KEPT", {"log_start": int(offset)})
        self.start_offset = start
        self._forget((before & span(0, start)) - self._held)

    def _forget(self, gone: BitMap64) -> None:
        for group in self.groups.values():
            group.forget(gone)
        self.delayed -= gone
        self.cancelled -= gone
        self.withdrawn -= gone
        self._keyed -= gone
        self._kept -= gone
        self._inexact -= gone
        self._late = {o: until_ms for o, until_ms in self._late.items() if o in self._held}

    # -- time

    def pass_time(self, now_ms: int) -> None:
        """Time brings what is due, and ends what has expired."""
        runs = self._due.pop(now_ms) if self._due else ()
        if due := _offsets(runs) & self.delayed:
            self.delayed -= due
            self.outcome.add_many(due, TIME, now_ms, "DUE", {})
            for due_ms, offset, _ in runs if self._late else ():
                if offset in self._late and offset in due:
                    self._late[offset] = self._late_until(due_ms)
        if self._expires:
            self._expire_messages(_offsets(self._expires.pop(now_ms)), now_ms)

    def _expire_messages(self, offsets: BitMap64, now_ms: int) -> None:
        expired = offsets - self.withdrawn - self.cancelled
        if expired:
            expired &= self.stored(expired.min(), self.next_offset)
            self.delayed -= expired
            self.withdrawn |= expired
            self.outcome.add_many(expired, TIME, now_ms, "EXPIRED", {})
            self.withdraw(expired)

    def cancel(self, offsets: Iterable[int]) -> None:
        """Those of them that are not due yet."""
        cancelled = BitMap64([offset for offset in offsets if offset in self.delayed])
        self.outcome.add_many(cancelled, self.number, self.now_ms, "CANCELLED", {})
        self.delayed -= cancelled
        self.cancelled |= cancelled
        self.withdraw(cancelled)

    def withdraw(self, offsets: BitMap64) -> None:
        """They are delivered no more; leases stand."""
        for group in self.groups.values():
            waiting = group.waiting(offsets)
            for offset in offsets & BitMap64(group.stories):
                if group.stories[offset].place == "coming":
                    del group.stories[offset]
                    waiting.add(offset)
            group.over |= waiting

    def point(self, offset: int) -> None:
        """This is the message that is judged now."""
        self.offset = offset
        self.kept, self.in_stream = offset in self._kept, offset in self._in_stream
        self.fate = ""
        if offset in self.delayed:
            self.fate = "delayed"
        elif offset in self.withdrawn:
            self.fate = "expired"
        elif offset in self.cancelled:
            self.fate = "cancelled"


def _offsets(runs: Iterable[tuple[int, int, int]]) -> BitMap64:
    found = BitMap64()
    for _time_ms, first, count in runs:
        found.add_range(first, first + count)
    return found
