"""Any mix of publishes, reports of archives, retention, compaction, restarts, and leaders that know
nothing of an archive: while it is required, nothing goes that was not reported, and what was does.

Each bug that is planted below must be found by the same walk.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from delivery.entries.ops import Archived, ArchivedResult, RequireArchive, encode_ops
from delivery.entries.records import encode_trim
from delivery.history.archive import Archive
from delivery.history.compacted_set import Compaction, encode_compaction
from delivery.offsets.bitmaps import BitMap64
from delivery.state.partition import PartitionState
from goqueue.wire.batch import Record
from goqueue.wire.types import Index, Offset
from log.entry import EntryKind
from node.partition.retention import compaction
from node.partition.retention.archiving import Archiving
from tests import walk as walks
from tests.unit.node.partition.compaction_scene import Scene
from tests.walk import walk

RUNS, STEPS = 60, 40
RUNS_WITH_A_BUG = 200
RETENTION_MS = 1000
PLACES = ["s3://a", "s3://b"]
CLEANUPS = ["delete", "compact", "compact,delete"]
number = st.integers(0, 2**16)


class ArchiveMachine(RuleBasedStateMachine):
    @initialize(cleanup=st.sampled_from(CLEANUPS), required=st.booleans())
    def begin(self, cleanup: str, required: bool) -> None:
        self.loop = asyncio.new_event_loop()
        compaction.REST = 0.0
        self.scene = Scene(cleanup=cleanup, retention_ms=RETENTION_MS, delete_retention_ms=1)
        self.required, self.place, self.position = False, "", 0
        """What the log has been told, by a model that knows of nothing else."""
        self.there: set[int] = set()
        self.require(required, False)

    def teardown(self) -> None:
        self.loop.close()
        compaction.REST = 1.0

    # what happens

    @rule(count=st.integers(1, 4), key=st.integers(0, 3), is_null=st.booleans())
    def publish(self, count: int, key: int, is_null: bool) -> None:
        value = None if is_null and self.scene.config.is_compacted else b"v"
        self.scene.publish(*[Record(value, b"%d" % key)] * count)
        self.check()

    @rule(wait_ms=st.sampled_from([1, 400, 2000]))
    def wait(self, wait_ms: int) -> None:
        self.scene.now_ms += wait_ms

    @rule(required=st.booleans(), only_the_setting=st.booleans())
    def require(self, required: bool, only_the_setting: bool) -> None:
        """The setting reaches the log later."""
        self.scene.config = replace(self.scene.config, require_archive=required)
        if not only_the_setting:
            self.do(RequireArchive(required))
            self.required = required
        self.check()

    @rule(at=number, place=st.sampled_from(PLACES), anew=st.booleans())
    def report(self, at: int, place: str, anew: bool) -> None:
        position = at % (self.scene.state.next_offset + 2)
        self.do(Archived(place, position, anew and at % 5 == 0))
        position = min(position, self.scene.state.next_offset)
        is_same = self.place in ("", place)
        if (anew and at % 5 == 0) or (is_same and position >= self.position):
            self.place, self.position = place, position
        self.check()

    @precondition(lambda self: self.place)
    @rule(back=st.integers(0, 9))
    def go_on(self, back: int) -> None:
        """The archive is nearly up to the end."""
        self.report(max(0, self.scene.state.next_offset - back), self.place, False)

    @rule(required=st.booleans())
    def look_after_a_while(self, required: bool) -> None:
        """The setting is there, but not in the log; all is old, and the leader looks at it."""
        self.require(required, True)
        self.wait(2000)
        self.retain()
        self.compact()

    @rule()
    def retain(self) -> None:
        """What is old and archived goes: nothing holds it up for ever."""
        self.loop.run_until_complete(self.scene.retention.run())
        self.check(leads=True)
        state, kept = self.scene.state, self.scene.state.queue.compacted
        waits = self.required or self.scene.config.require_archive
        if self.scene.config.is_deleted and not (waits and kept and kept.max() >= self.position):
            bound = self.position if waits else state.next_offset
            expected = min(self.batch_of(bound), self.aged())
            assert state.log_start_offset >= expected, "retention stands still"

    @rule()
    def compact(self) -> None:
        self.loop.run_until_complete(self.scene.compact())
        self.check(leads=True)

    @rule()
    def wait_for_it_when_much_is_compacted(self) -> None:
        self.require(False, False)
        self.compact()
        self.require(True, False)

    @rule()
    def forget(self) -> None:
        self.loop.run_until_complete(self.scene.compactor.run())
        self.check(leads=True)

    @rule(at=number)
    def trim_by_a_leader_that_knows_of_no_archive(self, at: int) -> None:
        index, offset = self.place_of(at)
        self.scene.apply(EntryKind.TRIM, encode_trim(index, offset))
        self.check()

    @rule(at=number, only_what_was_kept=st.booleans())
    def compact_by_a_leader_that_knows_of_no_archive(
        self, at: int, only_what_was_kept: bool
    ) -> None:
        if only_what_was_kept and not self.scene.state.queue.compacted:
            return
        start = self.scene.state.log_start_index
        index, offset = self.place_of(0 if only_what_was_kept else at)
        nothing = BitMap64()
        since = Index(0 if only_what_was_kept else len(self.scene.log.all) + 1)
        decision = Compaction(start, index, offset, since, nothing, nothing)
        self.scene.apply(EntryKind.COMPACT, encode_compaction(decision))
        self.check()

    @rule()
    def restart(self) -> None:
        self.scene.restart()
        self.check()

    # what holds

    def check(self, *, leads: bool = False) -> None:
        """A leader that `leads` knows the setting before the log does."""
        state, archive = self.scene.state, self.scene.state.queue.archive
        assert state.snapshot() == self.scene.follower.snapshot()
        assert (archive.location, archive.position) == (self.place, self.position)
        there = {*state.queue.compacted, *range(state.log_start_offset, state.next_offset)}
        lost = self.there - there
        waits = self.required or (leads and self.scene.config.require_archive)
        assert not waits or max(lost, default=-1) < self.position, f"lost {sorted(lost)}"
        self.there = there

    # in short

    def do(self, op: Any) -> None:
        self.scene.apply(EntryKind.QUEUE, encode_ops([op]))

    def place_of(self, at: int) -> tuple[Index, Offset]:
        """Some entry from the log's start on, and the offset that those before it end at."""
        entries = self.scene.log.all[self.scene.state.log_start_index - 1 :]
        chosen = entries[at % len(entries)]
        index = Index(chosen.index)
        return index, self.scene.retention.offset_from(index)

    def batch_of(self, offset: int) -> int:
        """Where the batch begins that holds the message; the end beyond them."""
        held = [e for e in self.scene.log.all if e.record_count and e.base_offset <= offset]
        is_end = not held or offset >= held[-1].base_offset + held[-1].record_count
        return offset if is_end else held[-1].base_offset

    def aged(self) -> int:
        """The end of what is older than the retention."""
        old_ms = self.scene.now_ms - RETENTION_MS
        ends = [e.base_offset + e.record_count for e in self.scene.log.all if e.time_ms < old_ms]
        return max(ends, default=0)


def test_nothing_goes_that_is_not_archived_and_what_is_does() -> None:
    assert walk(ArchiveMachine, runs=RUNS, steps=STEPS) == RUNS * STEPS


_reached = Archive.reached


def _goes_back(self: Archive, op: Archived, end: int, time_ms: int) -> ArchivedResult:
    if op.location == self.location:
        self.position = min(self.position, op.position)
    return _reached(self, op, end, time_ms)


def _takes_any(self: Archive, op: Archived, end: int, time_ms: int) -> ArchivedResult:
    self.location = self.location and op.location
    return _reached(self, op, end, time_ms)


def _forgets(_self: Archive) -> None:
    return None


def _believes(self: Archive, op: Archived, end: int, time_ms: int) -> ArchivedResult:
    return _reached(self, op, op.position, time_ms)


_drops = PartitionState.may_drop


def _drops_by_compaction(
    self: PartitionState, offset: int, kept: BitMap64 | None = None, *, required: bool = False
) -> bool:
    return kept is not None or _drops(self, offset, kept, required=required)


def _drops_what_was_kept(
    self: PartitionState, offset: int, kept: BitMap64 | None = None, *, required: bool = False
) -> bool:
    waits = required or self.queue.archive.required
    return not waits or offset <= max(self.queue.archive.position, self.log_start_offset)


BUGS = {
    "trims are obeyed whatever is archived": (Archive, "lets_go", lambda *_, **__: True),
    "compactions are obeyed whatever is archived": (
        PartitionState,
        "may_drop",
        _drops_by_compaction,
    ),
    "what compaction had kept is not counted": (PartitionState, "may_drop", _drops_what_was_kept),
    "a late report takes the position back": (Archive, "reached", _goes_back),
    "any archive counts": (Archive, "reached", _takes_any),
    "a position beyond the end is believed": (Archive, "reached", _believes),
    "a snapshot forgets the archive": (Archive, "dump", _forgets),
    "retention ignores the archive": (
        Archiving,
        "end_index",
        lambda self: Index(self._state.applied_index + 1),
    ),
    "the setting counts only once the log has it": (
        Archiving,
        "is_required",
        property(lambda self: self._state.queue.archive.required),
    ),
}


@pytest.mark.parametrize("bug", BUGS)
def test_each_planted_bug_is_found(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, name, faulty = BUGS[bug]
    monkeypatch.setattr(owner, name, faulty)
    monkeypatch.setattr(walks, "SHRINK_S", 0.0)

    with pytest.raises(AssertionError):
        walk(ArchiveMachine, runs=RUNS_WITH_A_BUG, steps=STEPS)
