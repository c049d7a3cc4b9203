"""One message's timeline: its whole life as its partition's log has it.

A projection: the entries, and what the `OutcomeNotes` notes of how they were judged, give the same
events on every replica, at any time. `project` reads a log in memory; who looks one message up in a
large log drives a `Projection` with the entries that name it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from delivery.config import QueueConfig
from delivery.entries.reappended import decode_reappended, decode_stories
from delivery.entries.records import decode_records
from delivery.history.outcome_notes import OutcomeNotes
from delivery.timeline.frames import Replication
from delivery.timeline.groups import Attributes, GroupStory, TimelineEvent, status_of
from delivery.timeline.story import Story, StoryRecord
from goqueue.wire.batch import LANES, Headers, Record, RecordBatch, resolve_ms
from log.entry import Entry, EntryKind

CARRIED_EVENTS_MAX = 200
"""Of one message that outlives the log: its first event and the newest ones."""

_TRACEPARENT = re.compile(rb"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}(?:-.*)?")
_CARRIERS = (EntryKind.CARRIED, EntryKind.KEPT)


@dataclass(frozen=True, slots=True)
class Timeline:
    """What is known of one message; `events` are in the log's order."""

    offset: int
    message_id: str | None
    key: bytes | None
    events: list[TimelineEvent]
    groups: dict[str, GroupStory]
    states: dict[str, str]
    """Group -> delayed, ready, in_flight, retrying, acked, dead, cancelled or expired."""
    status: str
    """Of the whole message, in GoQueue's words."""
    exact: bool = True
    """False where what some of its entries did is not known any more: they went before their story
    was carried on, or notes on them were too many to be kept."""

    @property
    def attempts(self) -> int:
        """Deliveries in all groups, but for those that were given back."""
        return sum(group.attempts for group in self.groups.values())


@dataclass(slots=True)
class Message:
    """What is told of a message by the batch that holds it."""

    time_ms: int
    batch: RecordBatch
    row: int
    events: list[TimelineEvent] = field(default_factory=list[TimelineEvent])
    _record: Record | None = None

    @property
    def record(self) -> Record:
        """Without its value; the batch's other rows are not decoded."""
        if self._record is None:
            self._record = self.batch.record(self.row, with_value=False)
        return self._record

    @property
    def key(self) -> bytes | None:
        return self.record.key

    @property
    def message_id(self) -> str | None:
        return self.record.message_id

    def published(self) -> Attributes:
        """What is told of its publish."""
        known = self.record
        return _published(
            self.batch,
            self.row,
            known.lane,
            known.key,
            known.timestamp_ms,
            known.message_id,
            known.headers,
        )

    def due_ms(self) -> int:
        """When it is due; 0 where it was from the beginning."""
        due_ms = resolve_ms(self.batch.deliver_at()[self.row], self.time_ms) or 0
        return due_ms if due_ms > self.time_ms else 0

    def expires_ms(self, config: QueueConfig) -> int:
        """When it expires; 0 for never."""
        given = resolve_ms(self.batch.expires_at()[self.row], self.time_ms)
        return given or (self.time_ms + config.ttl_ms if config.ttl_ms else 0)


class Projection:
    """A message's timeline in the making, from the entry that holds it on."""

    def __init__(self, offset: int, outcome_notes: OutcomeNotes, entry: Entry) -> None:
        """Raises KeyError where the entry holds no such message."""
        self.offset = offset
        self.index = entry.index
        self._outcome_notes = outcome_notes
        self._message = _message_in(entry, offset)
        self._first_ms = self._message.time_ms
        self._replication = Replication(entry, self._first_ms)
        told = _story_in(entry, offset)
        self.is_carried = entry.kind in _CARRIERS
        self._has_past = not self.is_carried if told is None else told.exact
        self.story = Story(offset, outcome_notes, told or self._begun(entry))
        self._replication.is_over = self.is_carried

    @property
    def since(self) -> int:
        """Entries up to this one are told already."""
        return self.story.index

    @property
    def wants_frames(self) -> bool:
        """Whether the very next entries are wanted, to tell who had the message."""
        return not self._replication.is_over

    def frame(self, entry: Entry) -> None:
        """Take a later entry's word on who had the message, whether or not it names it."""
        self._replication.frame(entry, self._outcome_notes)

    def tell(self, entry: Entry) -> None:
        """Take the next entry of those that name the message."""
        self.story.tell(entry)

    def record(self, index: int) -> StoryRecord:
        """For its carrier: all of it, as of this entry, within a bound."""
        found = self.story.record(index)
        found.exact = self._is_exact
        found.events, found.indexes = self._stamped()
        spare = len(found.events) - CARRIED_EVENTS_MAX
        if spare > 0:
            del found.events[1 : 1 + spare], found.indexes[1 : 1 + spare]
            found.omitted += spare
        return found

    def timeline(self, holders: Sequence[str] = ()) -> Timeline:
        """As of the entries that were told. `holders`: nodes known to hold the message now, for one
        of whom no later entry tells."""
        story = self.story
        story.end()
        states = story.states()
        events, _indexes = self._stamped(holders)
        if story.omitted:
            time_ms, type_, what = events[0]
            events[0] = time_ms, type_, {**what, "events_omitted": story.omitted}
        keep_ms = story.config.retention_ms
        retained: Attributes = {"expires": "never"}
        if keep_ms >= 0:
            retained = {"expires_ms": self._first_ms + keep_ms}
        if not story.kept:
            events.append((max(time_ms for time_ms, _, _ in events), "RETAINED", retained))
        return Timeline(
            self.offset,
            self._message.message_id,
            self._message.key,
            events,
            {group.name: group for group in story.groups.values() if group.name in states},
            states,
            status_of(states, story.fate),
            self._is_exact,
        )

    # private

    @property
    def _is_exact(self) -> bool:
        outcome_notes, since = self._outcome_notes, self.story.index
        if since + 1 < max(outcome_notes.noted_from, outcome_notes.start_index):
            return False
        return self._has_past

    def _stamped(self, holders: Sequence[str] = ()) -> tuple[list[TimelineEvent], list[int]]:
        """The events so far, and the entry that brought each."""
        events, indexes = list(self.story.events), list(self.story.indexes)
        if self.is_carried:  # who had it stands in the story so far
            return events, indexes
        told = self._replication
        nodes = list(holders) or self._outcome_notes.voters_at(self.index)
        replicated = told.event or told.unknown(nodes)
        at = 2 if events[1:] and events[1][1] == "DELAYED" else 1
        while at < len(events) and events[at][0] < replicated[0]:
            at += 1
        events.insert(at, replicated)
        indexes.insert(at, told.told_at)
        return events, indexes

    def _begun(self, entry: Entry) -> StoryRecord:
        """A story that begins with what the entry holds."""
        message = self._message
        config = QueueConfig()
        for at, known in self._outcome_notes.settings:
            config = known if at[0] <= entry.index else config
        due_ms = message.due_ms()
        expires_ms = message.expires_ms(config)
        events: list[TimelineEvent] = [(message.time_ms, "PUBLISHED", message.published())]
        if due_ms:
            events.append((message.time_ms, "DELAYED", {"deliver_at_ms": due_ms}))
        record = StoryRecord(
            entry.index,
            message.key,
            due_ms,
            expires_ms,
            "delayed" if due_ms else "",
            self.is_carried,
            entry.kind == EntryKind.KEPT,
            0,
            0,
            events,
            [],
            indexes=[0 if self.is_carried else entry.index] * len(events),
        )
        if self.is_carried:
            self._carried(entry, record)
        return record

    def _carried(self, entry: Entry, record: StoryRecord) -> None:
        """What came before the carrying entry, of which no story was carried."""
        if record.fate and record.due_ms <= entry.time_ms:
            record.fate = ""
            record.events.append((record.due_ms, "DUE", {}))
        if record.expires_ms and record.expires_ms <= entry.time_ms:
            record.fate = "expired"
            record.events.append((record.expires_ms, "EXPIRED", {}))
        record.events.append((entry.time_ms, "KEPT", {}))
        record.indexes += [0] * (len(record.events) - 1 - len(record.indexes)) + [entry.index]


def project(offset: int, entries: Sequence[Entry], outcome_notes: OutcomeNotes) -> Timeline | None:
    """The timeline of a message as these entries tell it, in order and up to the newest that was
    applied; None where none of them holds it."""
    holding = holding_entry(entries, offset)
    if holding is None:
        return None
    projection = Projection(offset, outcome_notes, holding)
    for entry in entries:
        if entry.index > projection.since:
            projection.frame(entry)
            projection.tell(entry)
    return projection.timeline()


def message_ids_in(body: bytes | memoryview) -> list[int]:
    """The offsets that a carrying entry holds."""
    return [offset for reappended in decode_reappended(body) for offset in reappended.offsets]


def holding_entry(entries: Sequence[Entry], offset: int) -> Entry | None:
    """The entry that stores the message; of one that outlived that, the newest that carries it."""
    carrier: Entry | None = None
    for entry in entries:
        if entry.kind == EntryKind.RECORDS:
            if entry.base_offset <= offset < entry.base_offset + entry.record_count:
                return entry
        elif entry.kind in _CARRIERS and offset in message_ids_in(entry.body):
            carrier = entry
    return carrier


def _message_in(entry: Entry, offset: int) -> Message:
    if entry.kind == EntryKind.RECORDS:
        for batch in decode_records(entry.body, entry.base_offset):
            row = offset - batch.base_offset
            if 0 <= row < batch.count:
                return Message(entry.time_ms, RecordBatch.parse(batch.batch), row)
    elif entry.kind in _CARRIERS:
        for reappended in decode_reappended(entry.body):
            if offset in reappended.offsets:
                row = list(reappended.offsets).index(offset)
                return Message(reappended.time_ms, RecordBatch.parse(reappended.batch), row)
    raise KeyError(offset)


def stories_in(entry: Entry) -> dict[int, StoryRecord]:
    """The stories of the messages that a carrying entry holds, of those that could be told."""
    found: dict[int, StoryRecord] = {}
    if entry.kind == EntryKind.CARRIED:
        for stories in decode_stories(entry.body):
            found.update(msgspec.msgpack.decode(stories, type=dict[int, StoryRecord]))
    return found


def _story_in(entry: Entry, offset: int) -> StoryRecord | None:
    if entry.kind != EntryKind.CARRIED:
        return None
    for stories in decode_stories(entry.body):
        found = msgspec.msgpack.decode(stories, type=dict[int, msgspec.Raw]).get(offset)
        if found is not None:
            return msgspec.msgpack.decode(found, type=StoryRecord)
    return None


def stories_end(body: bytes | memoryview) -> int | None:
    """The entry up to which the stories of a carrying entry were told; None where it has none."""
    ends = [
        msgspec.msgpack.decode(msgspec.msgpack.decode(story, type=list[msgspec.Raw])[0], type=int)
        for stories in decode_stories(body)
        for story in msgspec.msgpack.decode(stories, type=dict[int, msgspec.Raw]).values()
    ]
    return min(ends, default=None)


def encode_stories(stories: dict[int, StoryRecord]) -> bytes:
    """For a carrying entry: offset -> its story."""
    written = {
        offset: msgspec.structs.replace(story, groups=[group.carried() for group in story.groups])
        for offset, story in stories.items()
    }
    return msgspec.msgpack.encode(written)


def published(batch: RecordBatch) -> list[Attributes]:
    """What is told of the publish of each row."""
    return [
        _published(batch, row, *cells)
        for row, cells in enumerate(
            zip(
                batch.lanes(),
                batch.keys(),
                batch.timestamps_ms(),
                batch.message_ids(),
                batch.headers(),
                strict=True,
            )
        )
    ]


def _published(
    batch: RecordBatch,
    row: int,
    lane: int,
    key: bytes | None,
    timestamp_ms: int,
    message_id: str | None,
    headers: Headers,
) -> Attributes:
    what: Attributes = {}
    if batch.producer_id:
        what["producer"] = batch.producer_id
        what["sequence"] = batch.base_sequence + row
    what["lane"] = LANES[lane]
    if key is not None:
        what["key"] = key.decode("utf-8", "backslashreplace")
    what["produced_at_ms"] = timestamp_ms
    if message_id is not None:
        what["message_id"] = message_id
    for name, value in headers:
        context = _TRACEPARENT.fullmatch(value) if name.lower() == "traceparent" else None
        if context is not None:
            what["trace_id"], what["span_id"] = context[1].decode(), context[2].decode()
    return what
