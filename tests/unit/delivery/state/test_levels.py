"""What a later version wrote is refused by name, and changes nothing."""

from __future__ import annotations

import msgspec
import pytest

from delivery.entries import ops
from delivery.entries.ops import Committed, Tick, encode_ops, feature_of
from delivery.errors import SnapshotUnreadable, UnknownKind
from delivery.state.partition import PartitionState
from log.entry import Entry, EntryKind, make_entry
from log.levels import Unspoken


def entry(kind: int, body: bytes = b"") -> Entry:
    return make_entry(index=1, term=1, time_ms=1, kind=kind, body=body)


@pytest.mark.parametrize(
    "later",
    [
        entry(99),
        entry(EntryKind.QUEUE, msgspec.msgpack.encode([[99, 1]])),
        entry(EntryKind.QUEUE, msgspec.msgpack.encode([[8, 1, 2, "", 0, "one field more"]])),
    ],
    ids=["kind", "operation", "field"],
)
def test_entry_of_a_later_version_is_refused_and_changes_nothing(later: Entry) -> None:
    state = PartitionState()
    before = state.snapshot()

    with pytest.raises(UnknownKind) as refused:
        state.apply(later)

    assert isinstance(refused.value, Unspoken)
    assert state.snapshot() == before


def test_snapshot_with_an_unknown_field_is_refused() -> None:
    fields = msgspec.msgpack.decode(PartitionState().snapshot())

    with pytest.raises(SnapshotUnreadable):
        PartitionState().restore(msgspec.msgpack.encode([*fields, "of a later version"]))


def test_entry_needs_the_highest_level_of_its_operations(monkeypatch: pytest.MonkeyPatch) -> None:
    assert feature_of([]) == feature_of([Tick(), Committed(1, 2)]) == 1

    monkeypatch.setattr(ops, "FEATURES", {Committed: 3})

    assert feature_of([Tick(), Committed(1, 2)]) == 3
    assert len(encode_ops([Tick()])) > 0
