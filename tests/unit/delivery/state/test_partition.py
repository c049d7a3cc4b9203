"""A partition's state is the sum of its entries, and refuses those that do not follow."""

from __future__ import annotations

import msgspec
import pytest

from delivery.errors import Diverged, SnapshotUnreadable, UnknownKind
from delivery.state.partition import PartitionState, PublishResult
from goqueue.wire.types import Index
from log.entry import EntryKind, make_entry
from tests.unit.delivery.batches import START_MS, batch, records, trim


def test_offsets_are_dense_over_batches_and_entries() -> None:
    state = PartitionState()

    first = state.apply(records(2, 0, (batch(3), 1), (batch(2), 2)))
    second = state.apply(records(3, 5, (batch(1), 3)))

    assert first == [PublishResult(0, 3), PublishResult(3, 2)]
    assert second == [PublishResult(5, 1)]
    assert (state.next_offset, state.applied_index) == (6, 3)


def test_an_entry_at_another_offset_stops_the_replica() -> None:
    state = PartitionState()
    state.apply(records(2, 0, (batch(3), 1)))
    before = state.snapshot()

    with pytest.raises(Diverged, match="offset 4, not 3"):
        state.apply(records(3, 4, (batch(), 2)))

    assert state.snapshot() == before


def test_an_entry_is_not_applied_twice() -> None:
    state = PartitionState()
    entry = records(2, 0, (batch(3), 1))
    state.apply(entry)

    with pytest.raises(Diverged, match="entry 2 after entry 2"):
        state.apply(entry)


def test_an_entry_of_a_newer_version_stops_the_replica() -> None:
    state = PartitionState()

    with pytest.raises(UnknownKind, match="kind 99"):
        state.apply(make_entry(index=2, term=1, time_ms=0, kind=99))

    assert state.applied_index == 0


def test_entries_of_raft_pass_without_trace() -> None:
    state = PartitionState()

    assert state.apply(make_entry(index=2, term=1, time_ms=9, kind=EntryKind.NOOP)) is None

    assert (state.applied_index, state.next_offset) == (2, 0)


def test_a_trim_moves_the_start_and_never_back() -> None:
    state = PartitionState()
    for index in range(2, 8):
        state.apply(records(index, index - 2, (batch(), index)))

    state.apply(trim(8, 5, 3))
    assert (state.log_start_index, state.log_start_offset) == (5, 3)

    state.apply(trim(9, 3, 1))
    assert (state.log_start_index, state.log_start_offset) == (5, 3)


def test_a_trim_beyond_the_end_keeps_to_it() -> None:
    state = PartitionState()
    state.apply(records(2, 0, (batch(), 1)))

    state.apply(trim(3, 100, 100))

    assert (state.log_start_index, state.log_start_offset) == (3, 1)


def test_a_snapshot_brings_the_whole_state_back() -> None:
    state = PartitionState()
    state.apply(records(2, 0, (batch(2, producer=5, sequence=0), 0), (batch(), 42)))
    state.apply(trim(3, 2, 0))
    restored = PartitionState()

    restored.restore(state.snapshot())

    assert restored.snapshot() == state.snapshot()
    following = records(4, 3, (batch(producer=5, sequence=2), 0), time_ms=START_MS + 5)
    assert restored.apply(following) == state.apply(following)
    assert restored.snapshot() == state.snapshot()
    assert restored.applied_index == Index(4)


@pytest.mark.parametrize("damaged", [b"", b"\x90", b"not msgpack", msgspec.msgpack.encode([2])])
def test_a_snapshot_that_is_not_one_changes_nothing(damaged: bytes) -> None:
    state = PartitionState()
    state.apply(records(2, 0, (batch(), 1)))
    before = state.snapshot()

    with pytest.raises(SnapshotUnreadable):
        state.restore(damaged)

    assert state.snapshot() == before
