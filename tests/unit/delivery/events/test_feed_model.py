"""The feed of a partition's events tells what the timelines of its messages tell, over any mix of
operations, read in any slices and from any replica."""

from __future__ import annotations

import os
from collections import Counter
from random import Random
from typing import Any, ClassVar

import pytest

from delivery.events.feed import EventFeed, changes_of
from delivery.timeline.message import Projection, holding_entry
from tests.unit.delivery.timeline.test_model import TimelineMachine
from tests.walk import walk

RUNS, STEPS = 60, 100
TOLD_LEAST = 2_000
Told = tuple[int, int, int, str, str]
"""(index, offset, log time, type, attributes)."""


class Compared:
    """Events that this run of the tests compared, by type."""

    events: ClassVar[Counter[str]] = Counter()


class EventMachine(TimelineMachine):
    """Timelines as before; two feeds read along, one from the beginning, in slices."""

    def apply(self, kind: Any, body: Any, base: int = 0, count: int = 0) -> Any:
        if not self.index:
            self.told: list[Told] = []
            self.feed: EventFeed | None = None
            self.random = Random(kind)
        result = super().apply(kind, body, base, count)
        if self.random.random() < 0.2:
            self.read()
        return result

    def read(self) -> None:
        """Goes on where it was."""
        outcome_notes = self.leader.queue.outcome_notes
        if self.feed is None:
            if self.leader.log_start_index > 1:
                return
            self.feed = EventFeed(outcome_notes, 1, 0, changes_of(outcome_notes))
        self.feed.know(outcome_notes, changes_of(outcome_notes))
        if self.feed.index + 1 < self.leader.log_start_index:
            self.feed = None
            self.told = []
            return
        self.told += take(self.feed, self.log)

    def teardown(self) -> None:
        leader = self.leader
        outcome_notes = leader.queue.outcome_notes
        late = EventFeed(
            outcome_notes,
            leader.log_start_index,
            leader.log_start_offset,
            changes_of(outcome_notes),
        )
        for offset, index in leader.queue.reappended.items():
            if offset < leader.log_start_offset:
                late.messages.foresee(next(e for e in self.log if e.index == index), [offset])
        feeds = [take(late, self.log)]
        self.read()
        if self.feed is not None:
            feeds.append(self.told)
        for offset in range(self.model.end):
            expected = self.expected(offset)
            assert self.is_gone(offset) or late.messages.is_exact(offset) == (expected is not None)
            if expected is None:
                continue
            for told in feeds:
                first = 1 if told is self.told else leader.log_start_index
                found = [row for row in told if row[1] == offset]
                wanted = [row for row in expected if row[0] >= first]
                assert sorted(found) == sorted(wanted), set(found) ^ set(wanted)
            Compared.events.update(row[3] for row in expected)

    def is_gone(self, offset: int) -> bool:
        leader = self.leader
        return offset < leader.log_start_offset and leader.queue.held_in(offset) is None

    def expected(self, offset: int) -> list[Told] | None:
        """As the message's timeline has it; None where that does not tell all."""
        leader = self.leader
        if self.is_gone(offset):
            return None
        holding = holding_entry(self.log, offset)
        assert holding is not None
        projection = Projection(offset, leader.queue.outcome_notes, holding)
        for entry in self.log:
            if entry.index > projection.since:
                projection.frame(entry)
                projection.tell(entry)
        record = projection.record(self.index)
        if not record.exact:
            return None
        stamped = zip(record.indexes, record.events, strict=True)
        return [
            (index, offset, time_ms, type_, repr(what))
            for index, (time_ms, type_, what) in stamped
            if type_ != "REPLICATED"
        ]


def take(feed: EventFeed, log: list[Any]) -> list[Told]:
    told: list[Told] = []
    for entry in log:
        if entry.index > feed.index:
            for offset, _number, time_ms, type_, what, _key in feed.take(entry).rows():
                if type_ != "REPLICATED":
                    told.append((entry.index, offset, time_ms, type_, repr(what)))
    return told


def test_a_feed_tells_what_all_timelines_tell(capsys: pytest.CaptureFixture[str]) -> None:
    walk(EventMachine, runs=RUNS, steps=STEPS)
    with capsys.disabled():
        seed = os.environ.get("WALK_SEED", "0")
        print(f"\n{Compared.events}, WALK_SEED={seed}")
    assert Compared.events.total() >= TOLD_LEAST
