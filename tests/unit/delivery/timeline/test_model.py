"""Timelines of every message, over any mix of operations, against who watched the queue itself."""

from __future__ import annotations

import os
from typing import Any, ClassVar

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from delivery.entries.reappended import ReappendedBatch, encode_reappended
from delivery.entries.records import encode_trim
from delivery.lookup.message_states import STATES, offsets_in, states_of, status_of
from delivery.lookup.verdict import Around, Subject
from delivery.lookup.why import why
from delivery.timeline.message import Projection, encode_stories, holding_entry, project
from goqueue.wire.types import Index, Offset
from log.entry import Entry, EntryKind, make_entry
from tests.unit.delivery.state.test_queue_model import QueueMachine, many
from tests.unit.delivery.timeline.recorder import Recorder, see
from tests.walk import walk

RUNS, STEPS = 160, 80
TOLD_LEAST = 5_000
"""Events in timelines that were compared, other than those of a publish."""
WITHDRAWN = ("cancelled", "expired")
"""What a group had done with by then is told so by timelines only."""
PLAIN = ("PUBLISHED", "REPLICATED", "DELAYED", "RETAINED")


class Told:
    """Events that this run of the tests compared, by type."""

    events: ClassVar[dict[str, int]] = {}
    states: ClassVar[dict[str, int]] = {}
    """States that were compared, by name."""
    exact = 0
    """Timelines that were compared."""


class TimelineMachine(QueueMachine):
    """The queue as before; its entries are kept as a log keeps them."""

    def apply(self, kind: EntryKind, body: Any, base: int = 0, count: int = 0) -> Any:
        if not self.index:
            self.recorder, self.log = Recorder(), list[Entry]()
            self.cuts: dict[int, int] = {}
            self.torn: set[int] = set()
            """Messages that a careless leader's trim may have taken a part of the story from."""
        self.recorder.watch(self.leader.queue)
        self.log.append(
            make_entry(
                index=self.index + 1,
                term=1,
                time_ms=self.now_ms,
                kind=kind,
                body=body,
                base_offset=base,
                record_count=count,
            )
        )
        return super().apply(kind, body, base, count)

    @precondition(lambda self: self.model.end > 6)
    @rule(number=many, careless=st.integers(0, 3))
    def trim(self, number: int, careless: int) -> None:
        """As before; what must outlive the log is carried with its story, which may be older. What
        stays carried is carried again where the log would lose what came after its story."""
        stored = [entry for entry in self.log if entry.kind == EntryKind.RECORDS]
        if not stored:
            return
        first = stored[number % len(stored)]
        index, offset = first.index, max(int(first.base_offset), self.model.log_start)
        carried = self.leader.queue.reappended
        needed = [o for o in self.leader.queue.needed_below(offset) if carried.get(o, 0) < index]
        cut = [o for o, at in carried.items() if at >= index and self.cuts[o] < index - 1]
        left = sorted({*needed, *cut})
        if left and careless:
            told = {o: self.story(o, index) for o in left}
            self.cuts.update({o: story.index for o, story in told.items()})
            body = encode_reappended([*map(self.row, left)], encode_stories(told))
            self.apply(EntryKind.CARRIED, body)
            self.model.reappended.update(dict.fromkeys(left, self.index))
        elif left:
            self.torn.update(left)
        self.apply(EntryKind.TRIM, encode_trim(Index(index), Offset(offset)))
        self.model.trim(index, offset)
        start = self.leader.log_start_index
        self.log = [entry for entry in self.log if entry.index >= start]
        self.compare()

    def row(self, offset: int) -> ReappendedBatch:
        """The message as it was stored."""
        holding = holding_entry(self.log, offset)
        assert holding is not None
        stored = Projection(offset, self.leader.queue.outcome_notes, holding)._message
        return ReappendedBatch(stored.time_ms, [offset], stored.batch.select([stored.row]).buffer)

    def story(self, offset: int, index: int) -> Any:
        """Told up to the entry before this one, which the log may begin with, or further."""
        upto = self.index if offset % 2 else max(index - 1, 0)
        outcome_notes = self.leader.queue.outcome_notes
        holding = holding_entry(self.log, offset)
        assert holding is not None
        projection = Projection(offset, outcome_notes, holding)
        upto = max(upto, projection.since)
        for entry in self.log:
            if entry.index <= upto:
                projection.frame(entry)
                projection.tell(entry)
        return projection.record(Index(upto))

    def teardown(self) -> None:
        queue = self.leader.queue
        for offset in range(self.model.end):
            timeline = project(offset, self.log, queue.outcome_notes)
            if offset < self.leader.log_start_offset and queue.held_in(offset) is None:
                assert timeline is None or timeline.events
                continue
            assert timeline is not None
            if not timeline.exact:
                assert offset in self.torn
                continue
            Told.exact += 1
            told = [event for event in timeline.events if event[1] not in PLAIN]
            assert told == self.recorder.events.get(offset, []), self.apart(offset, told)
            assert timeline.events[0][1] == "PUBLISHED"
            for _time, type_, _what in told:
                Told.events[type_] = Told.events.get(type_, 0) + 1
            self.compare_states(offset, timeline.states)
            if timeline.states == states_of(queue, offset):
                assert timeline.status == status_of(queue, offset), offset

    def apart(self, offset: int, told: list[Any]) -> str:
        """Where the timeline and what was seen part."""
        seen = self.recorder.events.get(offset, [])
        at = next(
            (n for n, pair in enumerate(zip(told, seen, strict=False)) if pair[0] != pair[1]),
            len(told),
        )
        start = self.leader.log_start_offset
        return (
            f"offset {offset} of {start}: {at}: told {told[at : at + 3]}, seen {seen[at : at + 3]}"
        )

    def compare_states(self, offset: int, states: dict[str, str]) -> None:
        """With where the queue has it, with what searches say, and with `why`."""
        queue = self.leader.queue
        found, around = states_of(queue, offset), Around(waiting=True)
        assert set(states) == set(found), offset
        for group in queue.groups.values():
            state = found.get(group.name)
            verdict = why(queue, group, Subject(offset), self.now_ms, around)
            over = [r for r in verdict.reasons if r.code == "expired" and r.facts.get("over")]
            assert over or verdict.state == (state or "never"), (offset, group.name)
            for name in STATES:
                assert (offset in offsets_in(queue, name, group)) == (name == state), (offset, name)
            told = states.get(group.name)
            assert told == state or (told == "acked" and state in WITHDRAWN), (offset, told, state)
            Told.states[state or "never"] = Told.states.get(state or "never", 0) + 1
        for group in self.leader.queue.groups.values():
            place, state = see(group).place(offset), states.get(group.name)
            if place == "coming":
                assert state in ("ready", "retrying", "delayed"), (offset, state)
            elif place == "settled":
                assert state in (None, "acked", "cancelled", "expired"), (offset, state)
            else:
                assert state == {"leased": "in_flight", "dead": "dead"}[place]


def test_timelines_tell_what_the_queue_did(capsys: pytest.CaptureFixture[str]) -> None:
    walk(TimelineMachine, runs=RUNS, steps=STEPS)
    with capsys.disabled():
        seed = os.environ.get("WALK_SEED", "0")
        print(f"\n{Told.events}, WALK_SEED={seed}")
        print(Told.states)
    assert sum(Told.events.values()) >= TOLD_LEAST
    assert set(Told.states) == {*STATES, "never"}
