"""Any mix of publishes, null values, delays, compactions that end anywhere, and restarts: a reader
from the start sees the last value of each key, at its offset, whatever came between."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    rule,
    run_state_machine_as_test,
)

from delivery.config import GroupConfig
from delivery.entries.ops import Cancelled, OpenGroup, Tick, encode_ops
from delivery.group.lag import coming
from goqueue.wire.batch import Record
from log.entry import EntryKind
from node.partition.retention import compaction, compaction_scan
from node.partition.retention.compaction_scan import LastOffsets
from tests.unit.node.partition.compaction_scene import Scene, Seen

DELAY_MS = 1000
KEYS = [b"a", b"b", b"c", b"", b"x" * 40, b"y" * 40]
rows = st.lists(
    st.tuples(st.sampled_from(KEYS), st.booleans(), st.sampled_from([0, 0, 0, 500, 5000])),
    min_size=1,
    max_size=6,
)


class CompactionMachine(RuleBasedStateMachine):
    @initialize(
        keys_max=st.sampled_from([1, 2, 1000]), kept_bytes=st.sampled_from([1, 300, 1 << 18])
    )
    def begin(self, keys_max: int, kept_bytes: int) -> None:
        self.scene = Scene(delete_retention_ms=DELAY_MS)
        self.published: list[tuple[bytes, bytes | None, int]] = []
        self.cancelled: set[int] = set()
        compaction.KEPT_BYTES, compaction.REST = kept_bytes, 0.0
        LastOffsets.__init__.__defaults__ = (keys_max,)
        self.do(OpenGroup(1, "g", 1, GroupConfig()))

    def teardown(self) -> None:
        compaction.KEPT_BYTES, compaction.REST = 256 << 10, 1.0
        LastOffsets.__init__.__defaults__ = (compaction_scan.KEYS_A_PASS,)

    def do(self, op: Any) -> None:
        self.scene.apply(EntryKind.QUEUE, encode_ops([op]))

    @rule(rows=rows)
    def publish(self, rows: list[tuple[bytes, bool, int]]) -> None:
        records = []
        for key, is_null, delay_ms in rows:
            value = None if is_null else b"%d" % len(self.published)
            records.append(Record(value, key, deliver_at_ms=delay_ms or None))
            self.published.append((key, value, self.scene.now_ms))
        self.scene.publish(*records)

    @rule(wait_ms=st.sampled_from([1, 300, 600, 2000]))
    def wait(self, wait_ms: int) -> None:
        self.scene.now_ms += wait_ms
        self.do(Tick())

    @rule(number=st.integers(0, 100))
    def cancel(self, number: int) -> None:
        hidden = list(self.scene.state.queue.hidden)
        if hidden:
            offset = hidden[number % len(hidden)]
            self.do(Cancelled([offset]))
            if offset not in self.scene.state.queue.hidden and offset in (
                self.scene.state.queue.cancelled
            ):
                self.cancelled.add(offset)

    @rule(fails_after=st.sampled_from([None, None, 0, 1, 2, 3, 5]))
    def compact(self, fails_after: int | None) -> None:
        before = self.view()
        dry = asyncio.run(self.scene.compact(dry_run=True))
        assert self.view() == before
        done = asyncio.run(self.scene.compact(fails_after=fails_after))
        if fails_after is None and dry.outcome == "done":
            assert (done.outcome, done.kept) == ("done", dry.kept)
        self.check()

    @rule()
    def restart(self) -> None:
        before = self.scene.state.snapshot()
        self.scene.restart()
        assert self.scene.state.snapshot() == before
        self.check()

    @rule(step=st.integers(1, 4))
    def read(self, step: int) -> None:
        assert self.scene.seen(step) == self.scene.seen()
        self.check()

    def view(self) -> list[Seen]:
        return self.scene.seen()

    def check(self) -> None:
        state, queue = self.scene.state, self.scene.state.queue
        assert state.snapshot() == self.scene.follower.snapshot()
        found = {row.offset: row for row in self.view()}
        assert list(found) == sorted(found)
        for offset, row in found.items():
            assert (row.key, row.value) == self.published[offset][:2]
        assert set(range(state.log_start_offset, state.next_offset)) <= set(found)
        assert set(queue.hidden) <= set(found)
        last: dict[bytes, int] = {}
        for offset, (key, _, _) in enumerate(self.published):
            if offset not in queue.hidden and offset not in self.cancelled:
                last[key] = offset
        for offset in last.values():
            _, value, time_ms = self.published[offset]
            may_be_gone = value is None and time_ms + DELAY_MS <= self.scene.now_ms
            assert offset in found or may_be_gone, f"the last value of a key is gone: {offset}"
        superseded = [
            o for o in queue.compacted if o not in last.values() and o not in queue.hidden
        ]
        assert all(o in queue.delayed_ever or last_was_late(self, o) for o in superseded)
        self.check_groups(set(found))

    def check_groups(self, found: set[int]) -> None:
        """A new group is to get all that is there, and one that settled nothing as well; and what
        was delayed, though it is superseded."""
        queue = self.scene.state.queue
        fresh = queue.begun(OpenGroup(2, "h", 1, GroupConfig()), self.scene.now_ms)
        wanted = found - set(queue.withdrawn)
        assert wanted <= set(coming(fresh)) <= wanted | set(queue.late)
        assert set(coming(queue.groups[1])) >= wanted


def last_was_late(machine: CompactionMachine, offset: int) -> bool:
    """Whether a later message of its key came, or fell due, only after it was kept."""
    key = machine.published[offset][0]
    return any(later[0] == key for later in machine.published[offset + 1 :])


def test_every_key_has_its_last_value_whatever_came_between() -> None:
    run_state_machine_as_test(
        CompactionMachine,
        settings=settings(
            max_examples=100,
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
