"""The events of all messages of a partition in the order of the log: timelines, told in bulk.

A projection as `delivery.timeline.message` is: the entries from the log's start on, and what the
`OutcomeNotes` notes, give the same events on every replica. An event has the index of the entry
that brought it. What time alone brings (DUE, EXPIRED, a dead letter that is past its time) is
brought by the first entry that has the time; REPLICATED by the first one whose frame tells it.
Leases end by entries of their own.

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
    DeliveredToStream,
    Expired,
    Op,
    Own,
    Purged,
    Redriven,
    Settled,
    Sought,
    StreamsEnded,
    decode_ops,
)
from delivery.events.group import EventGroup
from delivery.events.messages import LAST, EventMessages
from delivery.events.outcome import TIME, Outcome
from delivery.history.outcome_notes import NOT_GRANTED, GroupPast, OutcomeNotes, Position
from delivery.offsets.bitmaps import BitMap64, remove_below
from delivery.timeline.groups import GroupStory
from delivery.timeline.judge import Judge
from delivery.timeline.story import STARTS, advances
from log.entry import Entry, EntryKind

TURN_MESSAGES = 256
"""Messages that an operation names, of which so many are judged before others get their turn."""

Change = tuple[Position, GroupPast | None, GroupConfig | QueueConfig | None]
"""Since an operation a group or, for None, the partition has these settings; None ends a group."""


def changes_of(outcome_notes: OutcomeNotes) -> list[Change]:
    """All that the chronicle knows of settings, in order. On the thread that applies."""
    found: list[Change] = [(at, None, config) for at, config in outcome_notes.settings]
    return sorted([*found, *outcome_notes.changes()], key=lambda change: change[0])


def _at_once() -> None:
    """Nobody waits."""


class EventFeed:
    """Reads the entries of a log from its start on; `take` gives what each brought.

    One thread at a time. `changes` are those of the chronicle up to entries that are taken later.
    """

    def __init__(
        self,
        outcome_notes: OutcomeNotes,
        start_index: int,
        start_offset: int,
        changes: Sequence[Change],
    ) -> None:
        self.messages = EventMessages(outcome_notes, start_index, start_offset)
        self._judge = Judge(outcome_notes, self.messages)
        self._changes: Sequence[Change] = changes
        self._change = 0
        self._end_turn: Callable[[], None] = _at_once
        self._catch_up((start_index - 1, LAST))

    @property
    def index(self) -> int:
        """The newest entry that was taken."""
        return self.messages.index

    def know(self, outcome_notes: OutcomeNotes, changes: Sequence[Change]) -> None:
        """What is noted, and all changes, up to entries that are taken from now on."""
        self.messages.outcome_notes = self._judge.outcome_notes = outcome_notes
        since = (self.index, LAST)
        self._changes = [change for change in changes if change[0] > since]
        self._change = 0

    def take(self, entry: Entry, end_turn: Callable[[], None] = _at_once) -> Outcome:
        """The next entry: what it brought."""
        assert entry.index == self.index + 1, "entries in a row"
        self._end_turn, self._judge.at = end_turn, (entry.index, -1)
        self.messages.begin(entry)
        if not advances(entry):
            return self.messages.outcome
        self._apply(entry)
        return self.messages.end()

    # -- entries

    def _apply(self, entry: Entry) -> None:
        self._catch_up((entry.index, -1))
        messages = self.messages
        self._judge.now_ms = messages.now_ms = entry.time_ms
        messages.number = TIME
        self._advance(entry.time_ms)
        if entry.kind == EntryKind.RECORDS:
            self._catch_up((entry.index, LAST))
            messages.store(entry)
        elif entry.kind == EntryKind.QUEUE:
            for number, op in enumerate(decode_ops(entry.body)):
                self._do(op, number)
            self._catch_up((entry.index, LAST))
        elif entry.kind in STARTS and not messages.outcome_notes.did_nothing(entry.index, 0):
            messages.trim(entry)
        elif entry.kind == EntryKind.CARRIED:
            messages.carry(entry)
        elif entry.kind == EntryKind.KEPT:
            messages.keep(entry)

    # -- settings

    def _catch_up(self, at: Position) -> None:
        """Settings and groups as of this operation."""
        groups = self.messages.groups
        while self._change < len(self._changes) and self._changes[self._change][0] <= at:
            _at, past, config = self._changes[self._change]
            self._change += 1
            if past is None:
                assert isinstance(config, QueueConfig), "the partition's"
                self.messages.configure(config)
            elif config is None:
                groups.pop(past.id, None)
                self._judge.configs.pop(past.id, None)
            else:
                assert isinstance(config, GroupConfig), "the group's"
                if past.id not in self._judge.configs and past.id not in groups:
                    groups[past.id] = EventGroup(past.id, past.name, self.messages.not_for(past))
                self._judge.configs[past.id] = config

    # -- time

    def _advance(self, now_ms: int) -> None:
        self.messages.pass_time(now_ms)
        keep_ms = self.messages.config.dead_retention_ms
        if keep_ms >= 0:
            for _id, group in sorted(self.messages.groups.items()):
                self._bury(group, now_ms - keep_ms)

    def _bury(self, group: EventGroup, before_ms: int) -> None:
        while group.died and group.died[0][0] < before_ms:
            died_ms, offset = heappop(group.died)
            story = group.stories.get(offset)
            if story is None or story.place != "dead" or story.died_ms != died_ms:
                continue
            story.settle()
            self.messages.offset = offset
            self._judge.tell(story, "PURGED", {"reason": "dead_retention"})
            group.put(offset, story)

    # -- operations

    def _do(self, op: Op, number: int) -> None:
        doing = _DOING.get(type(op))
        if doing is None:
            return
        at = self.index, number
        self._catch_up(at)
        self._judge.at, self.messages.number = at, number
        if isinstance(op, Cancelled):
            if not self.messages.outcome_notes.did_nothing(*at):
                self._cancel(op)
            return
        group = self.messages.groups.get(getattr(op, "group", 0))
        if group is not None and not self.messages.outcome_notes.did_nothing(*at):
            doing(self, op, group)

    def _judge_all(
        self,
        group: EventGroup,
        offsets: Iterable[int],
        rule: Callable[[GroupStory], None],
    ) -> None:
        """What one rule does to each of these messages."""
        for number, offset in enumerate(offsets, 1):
            if not self.messages.is_stored(offset):
                continue
            self.messages.point(offset)
            story = group.of(offset)
            rule(story)
            group.put(offset, story)
            if not number % TURN_MESSAGES:
                self._end_turn()

    def _deliver(self, op: Delivered, group: EventGroup) -> None:
        granted: Sequence[int] = op.offsets
        for number, what, offsets in self.messages.outcome_notes.notes.get(self.index, ()):
            if (number, what) == (self._judge.at[1], NOT_GRANTED):
                refused = set(offsets)
                granted = [offset for offset in granted if offset not in refused]
        self._judge_all(group, dict.fromkeys(granted), partial(self._judge.delivered, op))

    def _settle(self, op: Settled, group: EventGroup) -> None:
        for delivery, offsets in op.deliveries:
            self._judge_all(group, offsets, partial(self._judge.settled, op, delivery))

    def _expire(self, op: Expired, group: EventGroup) -> None:
        for delivery, offsets in op.deliveries:
            self._judge_all(group, offsets, partial(self._judge.timed_out, delivery))

    def _own(self, op: Own, group: EventGroup) -> None:
        self._judge_all(group, group.leased(), partial(self._judge.owned, op))

    def _end_streams(self, op: StreamsEnded, group: EventGroup) -> None:
        self._judge_all(group, group.leased(), partial(self._judge.streams_ended, op))

    def _commit(self, op: Committed, group: EventGroup) -> None:
        below = sorted(offset for offset in group.stories if offset < op.offset)
        waiting = group.waiting(self.messages.stored(0, op.offset))
        self._judge_all(group, below, partial(self._judge.committed, op))
        self._all(group, waiting, partial(self._judge.committed, op))
        group.done |= waiting

    def _seek(self, op: Sought, group: EventGroup) -> None:
        stories, messages = sorted(group.stories), self.messages
        stored = messages.stored(0, messages.next_offset)
        skipped = group.waiting(messages.stored(0, op.offset))
        settled = group.done & stored
        remove_below(settled, op.offset)
        withdrawn = settled & (messages.withdrawn | messages.cancelled)
        again = settled - withdrawn - messages.outlived
        self._judge_all(group, stories, partial(self._judge.sought, op))
        self._all(group, skipped, partial(self._judge.sought, op))
        self._all(group, again, partial(self._judge.sought, op))
        group.done |= skipped
        group.done -= again
        group.done -= withdrawn
        group.over |= withdrawn

    def _purge(self, op: Purged, group: EventGroup) -> None:
        self._judge_all(group, op.offsets, self._judge.purged)

    def _redrive(self, op: Redriven, group: EventGroup) -> None:
        self._judge_all(group, op.offsets, partial(self._judge.redriven, op))

    def _cancel(self, op: Cancelled) -> None:
        self.messages.cancel(op.offsets)

    def _all(
        self, group: EventGroup, offsets: BitMap64, rule: Callable[[GroupStory], None]
    ) -> None:
        """What the rule tells of the first of these messages, which are all alike, of all."""
        if not offsets:
            return
        self.messages.point(offsets.min())
        outcome = self.messages.outcome
        known = len(outcome.named)
        rule(group.of(self.messages.offset))
        for _offset, number, time_ms, type_, what, _key in outcome.named[known:]:
            outcome.add_many(offsets, number, time_ms, type_, what)
        del outcome.named[known:]


_DOING: dict[type, Callable[..., None]] = {
    Delivered: EventFeed._deliver,
    DeliveredToStream: EventFeed._deliver,
    StreamsEnded: EventFeed._end_streams,
    Settled: EventFeed._settle,
    Expired: EventFeed._expire,
    Own: EventFeed._own,
    Committed: EventFeed._commit,
    Sought: EventFeed._seek,
    Cancelled: EventFeed._cancel,
    Purged: EventFeed._purge,
    Redriven: EventFeed._redrive,
}
