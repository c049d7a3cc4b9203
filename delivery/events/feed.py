"""The events of all messages of a partition in the order of the log: timelines, told in bulk.

A projection as `delivery.timeline.message` is: the entries from the log's start on, and what the
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

from delivery.config import GroupConfig, QueueConfig
from delivery.entries.ops import (
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
from delivery.events.group import EventGroup
from delivery.events.messages import LAST, EventMessages
from delivery.events.outcome import TIME, Outcome
from delivery.history.outcome_notes import CHANGES_MAX, NOT_GRANTED, Chronicle, GroupPast, Position
from delivery.offsets.bitmaps import BitMap64, remove_below
from delivery.timeline.groups import GroupStory
from delivery.timeline.story import STARTS, advances
from log.entry import Entry, EntryKind

TURN_MESSAGES = 256
"""Messages that an operation names, of which so many are judged before others get their turn."""

Change = tuple[Position, GroupPast | None, GroupConfig | QueueConfig | None]
"""Since an operation a group or, for None, the partition has these settings; None ends a group."""


def changes_of(chronicle: Chronicle) -> list[Change]:
    """All that the chronicle knows of settings, in order. On the thread that applies."""
    found: list[Change] = [(at, None, config) for at, config in chronicle.settings]
    return sorted([*found, *chronicle.changes()], key=lambda change: change[0])


def _at_once() -> None:
    """Nobody waits."""


class EventFeed(EventMessages):
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
        super().__init__(chronicle, start_index, start_offset)
        self._changes: Sequence[Change] = changes
        self._change = 0
        self._end_turn: Callable[[], None] = _at_once
        self._catch_up((start_index - 1, LAST))

    def know(self, chronicle: Chronicle, changes: Sequence[Change]) -> None:
        """What is noted, and all changes, up to entries that are taken from now on."""
        self._chronicle = chronicle
        since = (self.index, LAST)
        self._changes = [change for change in changes if change[0] > since]
        self._change = 0

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
            self._catch_up((entry.index, LAST))
        elif entry.kind in STARTS and not self._chronicle.did_nothing(entry.index, 0):
            self._trim(entry)
        elif entry.kind == EntryKind.CARRIED:
            self._carry(entry)
        elif entry.kind == EntryKind.KEPT:
            self._keep(entry)

    # -- settings

    def _catch_up(self, at: Position) -> None:
        """Settings and groups as of this operation."""
        while self._change < len(self._changes) and self._changes[self._change][0] <= at:
            _at, past, config = self._changes[self._change]
            self._change += 1
            if past is None:
                assert isinstance(config, QueueConfig), "the partition's"
                self._config = config
                self._retentions.append((self._now_ms, config.retention_ms))
                del self._retentions[1:-CHANGES_MAX]
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
        self._pass(now_ms)
        keep_ms = self._config.dead_retention_ms
        if keep_ms >= 0:
            for _id, group in sorted(self.groups.items()):
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
        settled = group.done & stored
        remove_below(settled, op.offset)
        withdrawn = settled & (self._withdrawn | self._cancelled)
        again = settled - withdrawn - (self._kept - self._in_stream - self._delayed)
        self._judge(group, stories, partial(self.sought, op))
        self._all(group, skipped, partial(self.sought, op))
        self._all(group, again, partial(self.sought, op))
        group.done |= skipped
        group.done -= again
        group.done -= withdrawn
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
