"""The events of all messages of a partition in the order of the log: timelines, told in bulk.

A projection as `delivery.timeline` is: the entries from the log's start on, and what the
`Chronicle` notes, give the same events on every replica. An event has the index of the entry that
brought it. What time alone brings (DUE, EXPIRED, a dead letter that is past its time) is brought by
the first entry that has the time; REPLICATED by the first one whose frame tells it. Leases end by
entries of their own.

What an operation does to one message the `Judge` of timelines says; what it does to all that wait
or all that are settled is done to sets of offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from heapq import heappop

from delivery.bitmaps import BitMap64, remove_below, span
from delivery.carried import decode_carried
from delivery.chronicle import NOT_GRANTED, Chronicle, GroupPast, Position
from delivery.config import GroupConfig, QueueConfig
from delivery.due import DueTimes
from delivery.event_group import EventGroup
from delivery.event_outcome import FRAME, TIME, Outcome, Row
from delivery.ops import (
    Cancelled,
    Committed,
    Delivered,
    Expired,
    Op,
    Own,
    Purged,
    Redriven,
    Settled,
    Sought,
    decode_ops,
)
from delivery.records import AppendedBatch, decode_records, decode_trim
from delivery.survivors import decode_compaction
from delivery.timeline import Projection, stories_in
from delivery.timeline_frames import Replication
from delivery.timeline_groups import Attributes, GroupStory
from delivery.timeline_judge import Judge
from delivery.timeline_story import STARTS, StoryRecord, advances
from goqueue.wire.batch import RecordBatch, resolve_ms
from goqueue.wire.layout import HAS_DELIVER_AT, HAS_EXPIRES_AT
from log.entry import Entry, EntryKind

TURN_MESSAGES = 256
"""Messages that an operation names, of which so many are judged before others get their turn."""
_LAST = 1 << 30

Change = tuple[Position, GroupPast | None, GroupConfig | QueueConfig | None]
"""Since an operation a group or, for None, the partition has these settings; None ends a group."""


def changes_of(chronicle: Chronicle) -> list[Change]:
    """All that the chronicle knows of settings, in order. On the thread that applies."""
    found: list[Change] = [(at, None, config) for at, config in chronicle.settings]
    return sorted([*found, *chronicle.changes()], key=lambda change: change[0])


def _at_once() -> None:
    """Nobody waits."""


class EventFeed(Judge):
    """Reads the entries of a log from its start on; `take` gives what each brought.

    One thread at a time. `changes` are those of the chronicle up to entries that are taken later.
    """

    def __init__(
        self,
        chronicle: Chronicle,
        start_index: int,
        start_offset: int,
        changes: Sequence[Change],
    ) -> None:
        super().__init__(chronicle)
        self.index = start_index - 1
        """The newest entry that was taken."""
        self.start_offset = self.next_offset = start_offset
        self.exact_from = 0
        """Of messages below this offset, notes that their events need may be lost."""
        self.lost = 0
        """Messages that were named but are not in the log any more."""
        self._foreseen: dict[int, list[tuple[int, int, StoryRecord]]] = {}
        """By the entry that their stories were told up to, messages that are carried further on:
        (offset, carrying entry, story)."""
        self._unborn, self._inexact = BitMap64(), BitMap64()
        """Those of them whose entry is not reached, and those of whose past too little is known."""
        self._told: dict[int, list[Row]] = {}
        """By entry, what these stories tell."""
        self.groups: dict[int, EventGroup] = {}
        self._config = QueueConfig()
        self._changes: Sequence[Change] = changes
        self._change = 0
        self._began = start_index
        self._replications: list[tuple[Replication, range]] = []
        self._due, self._expires = DueTimes(), DueTimes()
        self._delayed, self._cancelled = BitMap64(), BitMap64()
        self._withdrawn, self._keyed = BitMap64(), BitMap64()
        self._held, self._kept, self._in_stream = BitMap64(), BitMap64(), BitMap64()
        """Messages that outlive the log, those of them that it begins after by now, and those of
        these that compaction has kept."""
        self._carriers: list[tuple[int, BitMap64]] = []
        """Entries that carry messages on, and which."""
        self._late: dict[int, int] = {}
        """When messages that were delayed, and are carried, are too old for new groups."""
        self._outcome = Outcome(0)
        self._number = 0
        self._end_turn: Callable[[], None] = _at_once
        self._catch_up((start_index - 1, _LAST))

    def know(self, chronicle: Chronicle, changes: Sequence[Change]) -> None:
        """What is noted, and all changes, up to entries that are taken from now on."""
        self._chronicle = chronicle
        since = (self.index, _LAST)
        self._changes = [change for change in changes if change[0] > since]
        self._change = 0

    def foresee(self, entry: Entry, offsets: Iterable[int]) -> None:
        """An entry further on carries these messages, whose own entry is gone, with their stories.
        To be told before anything is taken."""
        stories = stories_in(entry)
        first = self.index + 1
        for offset in offsets:
            record = stories.get(offset)
            if record is None:
                story = Projection(offset, self._chronicle, entry).story
                record = story.record(entry.index)
                record.exact = False
            stamped = zip(record.indexes, record.events, strict=False)
            for number, (index, (time_ms, type_, what)) in enumerate(stamped):
                if first <= index <= record.index:
                    row = offset, number, time_ms, type_, what, None
                    self._told.setdefault(index, []).append(row)
            if not record.exact or len(record.indexes) != len(record.events):
                self._inexact.add(offset)
            record.events, record.indexes = [], []
            at = max(record.index, self.index)
            self._foreseen.setdefault(at, []).append((offset, entry.index, record))
            self._unborn.add(offset)
        if self.index in self._foreseen:
            self._bring_in(self._foreseen.pop(self.index))

    def is_exact(self, offset: int) -> bool:
        """Whether all is known that the message's events go by."""
        return offset >= self.exact_from and not (self._inexact and offset in self._inexact)

    def take(self, entry: Entry, end_turn: Callable[[], None] = _at_once) -> Outcome:
        """The next entry: what it brought."""
        assert entry.index == self.index + 1, "entries in a row"
        self._outcome, self._end_turn = Outcome(entry.index), end_turn
        self.index = entry.index
        self._at = entry.index, -1
        self._frame(entry)
        if not advances(entry):
            return self._outcome
        self._apply(entry)
        self._outcome.named += self._told.pop(entry.index, ())
        if entry.index in self._foreseen:
            self._bring_in(self._foreseen.pop(entry.index))
        if entry.index < self._chronicle.noted_from:
            self.exact_from = self.next_offset
        return self._outcome

    # -- of the judge

    @property
    def has_key(self) -> bool:
        return self.offset in self._keyed

    def add(self, type_: str, what: Attributes) -> None:
        self._outcome.named.append((self.offset, self._number, self._now_ms, type_, what, None))

    # -- entries

    def _apply(self, entry: Entry) -> None:
        self._catch_up((entry.index, -1))
        self._now_ms, self._number = entry.time_ms, TIME
        self._advance(entry.time_ms)
        if entry.kind == EntryKind.RECORDS:
            self._store(entry)
        elif entry.kind == EntryKind.QUEUE:
            for number, op in enumerate(decode_ops(entry.body)):
                self._do(op, number)
            self._catch_up((entry.index, _LAST))
        elif entry.kind in STARTS and not self._chronicle.did_nothing(entry.index, 0):
            self._trim(entry)
        elif entry.kind == EntryKind.CARRIED:
            self._carry(entry)
        elif entry.kind == EntryKind.KEPT:
            self._keep(entry)

    # -- what is stored

    def _store(self, entry: Entry) -> None:
        self._catch_up((entry.index, _LAST))
        self.next_offset = entry.base_offset + entry.record_count
        self._outcome.add_published(entry)
        stored = range(entry.base_offset, self.next_offset)
        self._replications.append((Replication(entry, entry.time_ms), stored))
        for batch in decode_records(entry.body, entry.base_offset):
            self._note(batch, entry.time_ms)

    def _note(self, stored: AppendedBatch, time_ms: int) -> None:
        batch = RecordBatch.parse(stored.batch)
        base, end = int(stored.base_offset), int(stored.base_offset) + stored.count
        if batch.header.flags & HAS_DELIVER_AT:
            for row, cell in enumerate(batch.deliver_at()):
                due_ms = resolve_ms(cell, time_ms) or 0
                if due_ms > time_ms:
                    self._delayed.add(base + row)
                    self._due.add(due_ms, base + row)
        ttl_ms = time_ms + self._config.ttl_ms if self._config.ttl_ms else 0
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
            replication.frame(entry, self._chronicle)
            if replication.is_over:
                voters = self._chronicle.voters_at(replication.index)
                told = replication.event or replication.unknown(voters)
                self._outcome.add_many(offsets, FRAME, *told)
            else:
                left.append((replication, offsets))
        self._replications = left

    def _stored(self, first: int, end: int) -> BitMap64:
        """Messages that are stored, in a range of offsets."""
        found = span(max(first, self.start_offset), min(end, self.next_offset))
        if self._held and first < self.start_offset:
            found |= self._held & span(first, min(end, self.start_offset))
        return found

    def _is_stored(self, offset: int) -> bool:
        if self.start_offset <= offset < self.next_offset:
            return True
        if 0 <= offset < self.start_offset and offset in self._held:
            return True
        if offset in self._unborn:
            return False
        self.lost += offset < self.start_offset
        return False

    def _carry(self, entry: Entry) -> None:
        """These messages stand in this entry from now on, too."""
        offsets = BitMap64()
        for carried in decode_carried(entry.body):
            offsets.update(carried.offsets)
            batch = RecordBatch.parse(carried.batch)
            if batch.header.flags & HAS_DELIVER_AT and self._config.retention_ms >= 0:
                for offset, cell in zip(carried.offsets, batch.deliver_at(), strict=True):
                    due_ms = resolve_ms(cell, carried.time_ms) or 0
                    if due_ms > carried.time_ms:
                        self._late[offset] = due_ms + self._config.retention_ms
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
                (self._delayed, record.fate == "delayed"),
                (self._cancelled, record.fate == "cancelled"),
                (self._withdrawn, record.fate == "expired"),
            ):
                if holds:
                    offsets.add(offset)
            if record.fate == "delayed":
                self._due.add(record.due_ms, offset)
            if record.late_until_ms:
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

    def _keep(self, entry: Entry) -> None:
        """What compaction keeps of messages that nothing is known of any more: they stand as if
        they came now."""
        for carried in decode_carried(entry.body):
            new = BitMap64([o for o in carried.offsets if not self._is_stored(o)])
            if not new:
                continue
            self._held |= new
            self._kept |= new
            self._in_stream = self._in_stream | new
            self._inexact |= new
            self._outcome.add_many(new, 0, self._now_ms, "KEPT", {})

    def _trim(self, entry: Entry) -> None:
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
        self._outcome.add_many(newly, 0, self._now_ms, "KEPT", {"log_start": int(offset)})
        self.start_offset = start
        self._forget((before & span(0, start)) - self._held)

    def _forget(self, gone: BitMap64) -> None:
        for group in self.groups.values():
            group.forget(gone)
        self._delayed -= gone
        self._cancelled -= gone
        self._withdrawn -= gone
        self._keyed -= gone
        self._kept -= gone
        self._inexact -= gone
        self._late = {o: until_ms for o, until_ms in self._late.items() if o in self._held}

    # -- settings

    def _catch_up(self, at: Position) -> None:
        """Settings and groups as of this operation."""
        while self._change < len(self._changes) and self._changes[self._change][0] <= at:
            _at, past, config = self._changes[self._change]
            self._change += 1
            if past is None:
                assert isinstance(config, QueueConfig), "the partition's"
                self._config = config
            elif config is None:
                self.groups.pop(past.id, None)
                self._configs.pop(past.id, None)
            else:
                assert isinstance(config, GroupConfig), "the group's"
                if past.id not in self._configs and past.id not in self.groups:
                    self.groups[past.id] = EventGroup(past.id, past.name, self._not_for(past))
                self._configs[past.id] = config

    def _not_for(self, past: GroupPast) -> BitMap64:
        """Messages that a group which begins now does not get."""
        late = BitMap64([o for o, until_ms in self._late.items() if until_ms > past.opened_ms])
        too_old = self._kept - self._in_stream - self._delayed - late
        found = self._stored(0, past.base) | too_old
        return found | self._cancelled | self._withdrawn

    # -- time

    def _advance(self, now_ms: int) -> None:
        due = _offsets(self._due.pop(now_ms)) & self._delayed
        if due:
            self._delayed -= due
            self._outcome.add_many(due, TIME, now_ms, "DUE", {})
        expired = _offsets(self._expires.pop(now_ms)) - self._withdrawn - self._cancelled
        if expired:
            expired &= self._stored(expired.min(), self.next_offset)
            self._delayed -= expired
            self._withdrawn |= expired
            self._outcome.add_many(expired, TIME, now_ms, "EXPIRED", {})
            self._withdraw(expired)
        keep_ms = self._config.dead_retention_ms
        if keep_ms >= 0:
            for group in self.groups.values():
                self._bury(group, now_ms - keep_ms)

    def _bury(self, group: EventGroup, before_ms: int) -> None:
        while group.died and group.died[0][0] < before_ms:
            died_ms, offset = heappop(group.died)
            story = group.stories.get(offset)
            if story is None or story.place != "dead" or story.died_ms != died_ms:
                continue
            story.settle()
            self.offset = offset
            self._tell(story, "PURGED", {"reason": "dead_retention"})
            group.put(offset, story)

    def _withdraw(self, offsets: BitMap64) -> None:
        """They are delivered no more; leases stand."""
        for group in self.groups.values():
            waiting = group.waiting(offsets)
            for offset in offsets & BitMap64(group.stories):
                if group.stories[offset].place == "coming":
                    del group.stories[offset]
                    waiting.add(offset)
            group.over |= waiting

    # -- operations

    def _do(self, op: Op, number: int) -> None:
        doing = _DOING.get(type(op))
        if doing is None:
            return
        at = self.index, number
        self._catch_up(at)
        self._at, self._number = at, number
        if isinstance(op, Cancelled):
            if not self._chronicle.did_nothing(*at):
                self._cancel(op)
            return
        group = self.groups.get(getattr(op, "group", 0))
        if group is not None and not self._chronicle.did_nothing(*at):
            doing(self, op, group)

    def _judge(
        self,
        group: EventGroup,
        offsets: Iterable[int],
        rule: Callable[[GroupStory], None],
    ) -> None:
        """What one rule does to each of these messages."""
        for number, offset in enumerate(offsets, 1):
            if not self._is_stored(offset):
                continue
            self._point(offset)
            story = group.of(offset)
            rule(story)
            group.put(offset, story)
            if not number % TURN_MESSAGES:
                self._end_turn()

    def _point(self, offset: int) -> None:
        """This is the message that is judged now."""
        self.offset = offset
        self.kept, self.in_stream = offset in self._kept, offset in self._in_stream
        self.fate = ""
        if offset in self._delayed:
            self.fate = "delayed"
        elif offset in self._withdrawn:
            self.fate = "expired"
        elif offset in self._cancelled:
            self.fate = "cancelled"

    def _deliver(self, op: Delivered, group: EventGroup) -> None:
        granted: Sequence[int] = op.offsets
        for number, what, offsets in self._chronicle.notes.get(self.index, ()):
            if (number, what) == (self._at[1], NOT_GRANTED):
                refused = set(offsets)
                granted = [offset for offset in granted if offset not in refused]
        self._judge(group, dict.fromkeys(granted), partial(self.delivered, op))

    def _settle(self, op: Settled, group: EventGroup) -> None:
        for delivery, offsets in op.deliveries:
            self._judge(group, offsets, partial(self.settled, op, delivery))

    def _expire(self, op: Expired, group: EventGroup) -> None:
        for delivery, offsets in op.deliveries:
            self._judge(group, offsets, partial(self.timed_out, delivery))

    def _own(self, op: Own, group: EventGroup) -> None:
        leased = [o for o, story in group.stories.items() if story.place == "leased"]
        self._judge(group, sorted(leased), partial(self.owned, op))

    def _commit(self, op: Committed, group: EventGroup) -> None:
        below = sorted(offset for offset in group.stories if offset < op.offset)
        waiting = group.waiting(self._stored(0, op.offset))
        self._judge(group, below, partial(self.committed, op))
        self._all(group, waiting, partial(self.committed, op))
        group.done |= waiting

    def _seek(self, op: Sought, group: EventGroup) -> None:
        stories = sorted(group.stories)
        stored = self._stored(0, self.next_offset)
        skipped = group.waiting(self._stored(0, op.offset))
        again = group.done & stored
        remove_below(again, op.offset)
        withdrawn = again & (self._cancelled | self._withdrawn)
        again -= withdrawn | (self._kept - self._in_stream - self._delayed)
        self._judge(group, stories, partial(self.sought, op))
        self._all(group, skipped, partial(self.sought, op))
        self._all(group, again, partial(self.sought, op))
        group.done = (group.done | skipped) - again - withdrawn
        group.over |= withdrawn

    def _purge(self, op: Purged, group: EventGroup) -> None:
        self._judge(group, op.offsets, self.purged)

    def _redrive(self, op: Redriven, group: EventGroup) -> None:
        self._judge(group, op.offsets, partial(self.redriven, op))

    def _cancel(self, op: Cancelled) -> None:
        cancelled = BitMap64([offset for offset in op.offsets if offset in self._delayed])
        self._outcome.add_many(cancelled, self._number, self._now_ms, "CANCELLED", {})
        self._delayed -= cancelled
        self._cancelled |= cancelled
        self._withdraw(cancelled)

    def _all(
        self, group: EventGroup, offsets: BitMap64, rule: Callable[[GroupStory], None]
    ) -> None:
        """What the rule tells of the first of these messages, which are all alike, of all."""
        if not offsets:
            return
        self._point(offsets.min())
        known = len(self._outcome.named)
        rule(group.of(self.offset))
        for _offset, number, time_ms, type_, what, _key in self._outcome.named[known:]:
            self._outcome.add_many(offsets, number, time_ms, type_, what)
        del self._outcome.named[known:]


def _offsets(runs: Iterable[tuple[int, int, int]]) -> BitMap64:
    found = BitMap64()
    for _time_ms, first, count in runs:
        found.add_range(first, first + count)
    return found


_DOING: dict[type, Callable[..., None]] = {
    Delivered: EventFeed._deliver,
    Settled: EventFeed._settle,
    Expired: EventFeed._expire,
    Own: EventFeed._own,
    Committed: EventFeed._commit,
    Sought: EventFeed._seek,
    Cancelled: EventFeed._cancel,
    Purged: EventFeed._purge,
    Redriven: EventFeed._redrive,
}
