"""Timelines of what streams were given; a story that is carried names its stream."""

from __future__ import annotations

import msgspec

from delivery.config import GroupConfig
from delivery.entries.ops import (
    DeliveredToStream,
    Granted,
    OpenGroup,
    StreamId,
    StreamsEnded,
    encode_ops,
)
from delivery.entries.records import AppendBatch, encode_records
from delivery.state.partition import PartitionState
from delivery.timeline.groups import GroupStory, TimelineEvent
from delivery.timeline.message import encode_stories, project
from delivery.timeline.story import StoryRecord
from goqueue.wire.batch import encode_columns
from log.entry import Entry, EntryKind, make_entry
from tests.unit.delivery.batches import START_MS

STREAM = StreamId(7, 1)
KNOWN_BEFORE = 12
"""Fields of a group's story that the release before streams knows."""


class Log:
    def __init__(self) -> None:
        self.state = PartitionState()
        self.entries: list[Entry] = []

    def apply(self, kind: EntryKind, body: bytes, count: int = 0) -> object:
        entry = make_entry(
            index=len(self.entries) + 1,
            term=1,
            time_ms=START_MS,
            kind=kind,
            body=body,
            base_offset=0,
            record_count=count,
        )
        self.entries.append(entry)
        return self.state.apply(entry)

    def deliver(self, stream: StreamId, visibility_ms: int = 0) -> None:
        op = DeliveredToStream(1, "m", visibility_ms, [0], stream=stream)
        (granted,) = self.apply(EntryKind.QUEUE, encode_ops([op]))  # type: ignore[misc]
        assert isinstance(granted, Granted)
        assert granted.grants

    def end(self, *, lost: bool, streams: list[int]) -> None:
        self.apply(EntryKind.QUEUE, encode_ops([StreamsEnded(1, STREAM.run, streams, lost)]))

    def events(self) -> list[TimelineEvent]:
        found = project(0, self.entries, self.state.queue.outcome_notes)
        assert found is not None
        return [event for event in found.events if "group" in event[2]]


def test_a_timeline_tells_whose_stream_had_the_message_and_how_it_ended() -> None:
    log = Log()
    body = encode_records([AppendBatch(encode_columns([b"v"]), 1, 0)])
    log.apply(EntryKind.RECORDS, body, 1)
    log.apply(EntryKind.QUEUE, encode_ops([OpenGroup(1, "g", 1, GroupConfig(max_attempts=2))]))

    log.deliver(STREAM)
    log.end(lost=False, streams=[2])
    log.end(lost=False, streams=[1])
    log.deliver(STREAM, visibility_ms=500)
    log.end(lost=True, streams=[])
    log.deliver(STREAM)
    log.end(lost=True, streams=[1])

    told = [(type_, what) for _time, type_, what in log.events()]
    by = {"group": "g", "consumer": "m", "member": "m"}
    stream = {"stream": str(STREAM)}
    until = {"visible_until_ms": START_MS + 500}
    assert told == [
        ("DELIVERED", {**by, "attempt": 1, **stream}),
        ("RELEASED", by),
        ("DELIVERED", {**by, "attempt": 1, **until, **stream}),
        ("REDELIVERED", {**by, "attempt": 1, "reason": "consumer_lost"}),
        ("DELIVERED", {**by, "attempt": 2, **stream}),
        ("DEAD_LETTERED", {"group": "g", "attempts": 2, "reason": "consumer lost"}),
    ]


def test_a_carried_story_is_as_the_release_before_knows_it_where_no_stream_has_the_message() -> (
    None
):
    plain, streamed = GroupStory(1, "plain"), GroupStory(2, "streamed")
    plain.lease(5, "m", 9)
    streamed.lease(5, "m", 0, STREAM)
    story = StoryRecord(5, None, 0, 0, "", False, False, 0, 0, [], [plain, streamed])

    written = encode_stories({0: story})

    (groups,) = [told[10] for told in msgspec.msgpack.decode(written, strict=False).values()]
    assert [len(group) for group in groups] == [KNOWN_BEFORE, KNOWN_BEFORE + 1]
    (read,) = msgspec.msgpack.decode(written, type=dict[int, StoryRecord]).values()
    assert read.groups == [plain, streamed]
    streamed.end_lease("coming")
    assert streamed.stream is None
