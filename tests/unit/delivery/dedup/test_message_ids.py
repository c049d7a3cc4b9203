"""Message ids are known within the window and the bound, at a cost that neither changes."""

from __future__ import annotations

import tracemalloc
from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from delivery.dedup import message_ids
from delivery.dedup.message_ids import LEAF_MAX, SWEEP_EVERY, MessageIds
from goqueue.wire.types import Offset

START_MS = 1_700_000_000_000


def store(known: MessageIds, *ids: str | None, at: int = 0, after_ms: int = 0) -> None:
    known.stored(ids, Offset(at), START_MS + after_ms)


def fill(known: MessageIds, first: int, count: int, time_ms: int = START_MS) -> None:
    known.stored([f"id-{at}" for at in range(first, first + count)], Offset(first), time_ms)
    known.forget(time_ms)


def test_an_id_is_known_by_the_offset_of_its_row() -> None:
    known = MessageIds()

    store(known, "a", None, "b", at=7)

    assert (known.offset_of("a"), known.offset_of("b"), known.offset_of("c")) == (7, 9, None)
    assert len(known) == 2


def test_an_id_is_known_for_the_whole_window_and_not_much_longer() -> None:
    known = MessageIds(window_ms=300_000)
    store(known, "a")

    known.forget(START_MS + 300_000)
    assert known.offset_of("a") == 0

    known.forget(START_MS + 300_001)
    assert known.offset_of("a") is None
    assert len(known) == known.held == 0


def test_ids_that_came_together_go_within_a_small_part_of_the_window() -> None:
    known = MessageIds(window_ms=102_400)
    store(known, "first", at=0)
    store(known, "soon after", at=1, after_ms=100)
    store(known, "later", at=2, after_ms=101)

    known.forget(START_MS + 102_401)
    assert known.offset_of("first") == 0

    known.forget(START_MS + 102_501)
    assert (known.offset_of("first"), known.offset_of("soon after")) == (None, None)
    assert known.offset_of("later") == 2


def test_beyond_the_bound_the_oldest_go_early() -> None:
    known = MessageIds(count_max=100)

    fill(known, 0, 250)

    assert len(known) == 100
    assert known.offset_of("id-149") is None
    assert [known.offset_of(f"id-{at}") for at in range(150, 250)] == list(range(150, 250))


def test_an_id_that_is_stored_again_counts_once_and_from_then_on() -> None:
    known = MessageIds(window_ms=1000)
    store(known, "a", "b", at=0)
    store(known, "a", at=5, after_ms=900)

    assert (len(known), known.offset_of("a")) == (2, 5)
    known.forget(START_MS + 1500)
    assert (len(known), known.offset_of("a"), known.offset_of("b")) == (1, 5, None)


@pytest.mark.parametrize(("window_ms", "count_max"), [(0, 1000), (1000, 0)])
def test_dedup_that_is_off_remembers_nothing(window_ms: int, count_max: int) -> None:
    known = MessageIds()
    store(known, "a")

    known.configure(window_ms, count_max)
    store(known, "b")

    assert (known.offset_of("a"), known.offset_of("b"), len(known), known.held) == (
        None,
        None,
        0,
        0,
    )


def test_a_shorter_window_and_a_smaller_bound_hold_at_once() -> None:
    known = MessageIds(window_ms=10_000, count_max=1000)
    for second in range(10):
        fill(known, 10 * second, 10, START_MS + 1000 * second)

    known.configure(5000, 1000)
    known.forget(START_MS + 9000)
    assert [known.offset_of(f"id-{at}") for at in (39, 40)] == [None, 40]

    known.configure(5000, 10)
    known.forget(START_MS + 9000)
    assert len(known) <= 10


def test_what_is_forgotten_leaves_the_memory_as_new_ids_come() -> None:
    known = MessageIds(count_max=20_000)

    for first in range(0, 100_000, 1000):
        fill(known, first, 1000)
        assert known.held <= 1.25 * len(known) + 2 * LEAF_MAX


def test_what_is_forgotten_leaves_the_memory_when_no_ids_come() -> None:
    known = MessageIds(window_ms=1000)
    fill(known, 0, 20_000)
    fill(known, 20_000, 100, START_MS + 500)

    for turn in range(20_000 // 256 * 2):
        known.forget(START_MS + 1400 + turn // 100)

    assert (len(known), known.held) == (100, 100)


def test_an_id_takes_at_most_25_bytes() -> None:
    known = MessageIds(count_max=40_000)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for first in range(0, 52_000, 1000):
            fill(known, first, 1000)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert len(known) > 39_600
    assert after - before < 25 * len(known)


def test_the_cost_does_not_grow_with_the_window() -> None:
    """What an insertion moves, and a search looks at, is one array."""
    known = MessageIds()

    fill(known, 0, 60_000)

    assert max(map(len, known._hashes)) <= LEAF_MAX


def test_a_colliding_id_hides_the_older_one_and_nothing_breaks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(message_ids, "_hash", lambda _id: 99)
    known = MessageIds()

    store(known, "a", at=3)
    store(known, "b", at=4)

    assert known.offset_of("a") == known.offset_of("b") == 4
    assert len(known) == 1


# snapshots


def test_ids_are_the_same_after_a_snapshot() -> None:
    known, restored = MessageIds(), MessageIds()
    for first in range(0, 5000, 500):
        fill(known, first, 500, START_MS + first)

    restored.load(known.dump())

    assert restored.dump() == known.dump()
    assert (len(restored), restored.held) == (len(known), known.held)
    assert [restored.offset_of(f"id-{at}") for at in range(5000)] == list(range(5000))


def test_an_empty_snapshot_empties() -> None:
    known = MessageIds()
    store(known, "a")

    known.load(MessageIds(window_ms=5).dump())

    assert known.offset_of("a") is None
    assert known.dump() == MessageIds(window_ms=5).dump()


@pytest.mark.parametrize("dumped", [b"", b"\x02" * 80, b"cut"])
def test_what_is_no_dump_is_refused_and_changes_nothing(dumped: bytes) -> None:
    known = MessageIds()
    store(known, "a")

    with pytest.raises(ValueError, match="dump of message ids"):
        known.load(dumped)
    with pytest.raises(ValueError, match="another length"):
        known.load(known.dump()[:-1])

    assert known.offset_of("a") == 0


@dataclass
class Model:
    """All ids in a dict, each with when it came, in the order of their latest storing."""

    stored: dict[str, tuple[int, int]] = field(default_factory=dict)
    step_ms: int = 0
    """Of the longest window so far: ids that came in one step of it are forgotten together, also
    when the window is shorter by then."""

    def forget(self, known: MessageIds, now_ms: int, window_ms: int, count_max: int) -> None:
        step = self.step_ms = max(self.step_ms, window_ms // message_ids.BUCKETS_OF_WINDOW)
        excess = len(self.stored) > count_max
        for name, (offset, time_ms) in list(self.stored.items()):
            found = known.offset_of(name)
            if now_ms - time_ms > window_ms + step:
                assert found is None, "it is too old"
            elif found is None:
                assert now_ms - time_ms > window_ms or excess, "it was forgotten too early"
            if found is None:
                del self.stored[name]
            else:
                assert found == offset


class MessageIdsMachine(RuleBasedStateMachine):
    """A leader's ids, those of a follower that restores snapshots, and a dict."""

    @initialize(window_ms=st.sampled_from([1, 50, 4096]), count_max=st.sampled_from([3, 40, 3000]))
    def begin(self, window_ms: int, count_max: int) -> None:
        self.window_ms, self.count_max = window_ms, count_max
        self.known = MessageIds(window_ms, count_max)
        self.follower = MessageIds(window_ms, count_max)
        self.model = Model()
        self.next = 0
        self.now_ms = START_MS

    @rule(
        fresh=st.integers(0, 3 * SWEEP_EVERY),
        repeated=st.lists(st.integers(0, 400), max_size=3),
        none=st.booleans(),
        later_ms=st.integers(0, 60),
    )
    def store(self, fresh: int, repeated: list[int], none: bool, later_ms: int) -> None:
        self.now_ms += later_ms
        ids: list[str | None] = [f"id-{self.next + at}" for at in range(fresh)]
        ids += [None] * none
        ids += [f"id-{max(0, self.next - back)}" for back in repeated]
        for each in (self.known, self.follower):
            each.stored(ids, Offset(self.next), self.now_ms)
        for row, name in enumerate(ids):
            if name is not None:
                self.model.stored.pop(name, None)
                self.model.stored[name] = (self.next + row, self.now_ms)
        self.next += len(ids)
        self._forget()

    @rule(later_ms=st.sampled_from([0, 1, 40, 3000, 5000]))
    def wait(self, later_ms: int) -> None:
        self.now_ms += later_ms
        self._forget()

    @rule(window_ms=st.sampled_from([1, 50, 4096]), count_max=st.sampled_from([3, 40, 3000]))
    def configure(self, window_ms: int, count_max: int) -> None:
        self.window_ms, self.count_max = window_ms, count_max
        for each in (self.known, self.follower):
            each.configure(window_ms, count_max)
        for name in [name for name in self.model.stored if self.known.offset_of(name) is None]:
            del self.model.stored[name]
        self._forget()

    @rule()
    def restore(self) -> None:
        restored = MessageIds()
        restored.load(self.follower.dump())
        self.follower = restored

    def _forget(self) -> None:
        for each in (self.known, self.follower):
            each.forget(self.now_ms)

    @invariant()
    def agrees(self) -> None:
        if hasattr(self, "known"):
            self.model.forget(self.known, self.now_ms, self.window_ms, self.count_max)
            assert len(self.known) == len(self.model.stored) <= self.count_max
            assert self.follower.dump() == self.known.dump()


TestMessageIds = MessageIdsMachine.TestCase
TestMessageIds.settings = settings(max_examples=60, stateful_step_count=60, deadline=None)
