"""What is noted for timelines is bounded: what was known once and is not any more is never told as
if it were exact, and an index never leaves out an entry for it."""

from __future__ import annotations

import msgspec
import pytest

from delivery.config import GroupConfig, QueueConfig
from delivery.entries.ops import (
    ACK,
    Committed,
    Configure,
    Delivered,
    DropGroup,
    Op,
    OpenGroup,
    Settled,
    encode_ops,
)
from delivery.history import outcome_notes as bounds
from delivery.history.outcome_notes import OutcomeNotes
from delivery.state.partition import PartitionState
from delivery.timeline.message import Timeline, project
from delivery.timeline.message_entry_index import MessageEntryIndex
from log.entry import Entry, EntryKind, make_entry
from tests.unit.delivery.batches import START_MS, batch, records


class Written:
    """A partition's entries, and the state that applied them."""

    def __init__(self) -> None:
        self.state = PartitionState()
        self.log: list[Entry] = []

    def publish(self) -> int:
        offset = int(self.state.next_offset)
        self.apply(records(len(self.log) + 1, offset, (batch(), 0)))
        return offset

    def do(self, *ops: Op) -> int:
        body, index = encode_ops(ops), len(self.log) + 1
        entry = make_entry(index=index, term=1, time_ms=START_MS, kind=EntryKind.QUEUE, body=body)
        self.apply(entry)
        return index

    def apply(self, entry: Entry) -> None:
        self.log.append(entry)
        self.state.apply(entry)

    def told(self, offset: int) -> Timeline:
        found = project(offset, self.log, self.state.queue.outcome_notes)
        assert found is not None
        return found


@pytest.fixture
def written() -> Written:
    return Written()


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "CHANGES_MAX", 3)
    monkeypatch.setattr(bounds, "GROUPS_GONE_MAX", 2)


def test_where_old_settings_are_forgotten_older_messages_are_not_told_as_exact(
    written: Written,
) -> None:
    old = written.publish()
    for version in range(3):
        written.do(Configure(QueueConfig(ttl_ms=1000 + version)))
    assert written.told(old).exact

    written.do(Configure(QueueConfig(ttl_ms=9)))
    new = written.publish()

    assert (written.told(old).exact, written.told(new).exact) == (False, True)


def test_where_a_groups_old_settings_are_forgotten_older_messages_are_not_told_as_exact(
    written: Written,
) -> None:
    written.do(OpenGroup(1, "g", 1, GroupConfig(), 0))
    old = written.publish()
    for version in range(2, 4):
        written.do(OpenGroup(1, "g", version, GroupConfig(max_attempts=version), 0))
    assert written.told(old).exact

    written.do(OpenGroup(1, "g", 4, GroupConfig(max_attempts=4), 0))
    new = written.publish()

    assert (written.told(old).exact, written.told(new).exact) == (False, True)


def test_where_dropped_groups_are_forgotten_their_messages_are_not_told_as_exact(
    written: Written,
) -> None:
    old = written.publish()
    for group in (1, 2):
        written.do(OpenGroup(group, f"g{group}", 1, GroupConfig(), 0))
        written.do(DropGroup(group))
    assert written.told(old).exact

    written.do(OpenGroup(3, "g3", 1, GroupConfig(), 0), DropGroup(3))
    new = written.publish()

    assert (written.told(old).exact, written.told(new).exact) == (False, True)


def test_where_old_voters_are_forgotten_older_messages_are_not_told_as_exact(
    written: Written,
) -> None:
    old = written.publish()
    for index in range(1, 5):
        written.state.queue.outcome_notes.vote(index, ["a", "b", "c"])

    assert not written.told(old).exact


def test_what_was_forgotten_of_entries_that_have_gone_makes_nothing_inexact(
    written: Written,
) -> None:
    for version in range(5):
        written.do(Configure(QueueConfig(ttl_ms=1000 + version)))
    outcome_notes = written.state.queue.outcome_notes

    outcome_notes.trim(len(written.log) + 1)
    new = written.publish()

    assert written.told(new).exact
    assert outcome_notes.noted_from == 0


def test_a_snapshot_without_notes_knows_its_groups_and_promises_nothing_of_older_messages(
    written: Written,
) -> None:
    written.do(Configure(QueueConfig()), OpenGroup(1, "g", 1, GroupConfig(max_attempts=7), 0))
    old = written.publish()
    written.do(Configure(QueueConfig()))
    snapshot = msgspec.msgpack.decode(written.state.snapshot())
    del snapshot[-1][-2:]  # as a release has left it that noted nothing, nor knew of archives
    written.state.restore(msgspec.msgpack.encode(snapshot))
    new = written.publish()
    lease = written.do(Delivered(1, "m", 1000, [old, new]))
    written.do(Settled(1, ACK, [(lease, [old, new])]))

    assert [written.told(offset).exact for offset in (old, new)] == [False, True]
    assert written.told(new).states == {"g": "acked"}
    assert written.told(old).states == {"g": "acked"}


def test_a_commit_that_may_have_done_nothing_hides_no_later_one(written: Written) -> None:
    """Its note has gone: the index can't take it for one that has settled what it says."""
    written.do(OpenGroup(1, "g", 1, GroupConfig(), 0))
    for _ in range(200):
        written.publish()
    written.do(Committed(1, 150, "nobody", 7))
    effective = written.do(Committed(1, 200))
    outcome_notes = written.state.queue.outcome_notes
    assert outcome_notes.did_nothing(effective - 1, 0)
    forgetful = OutcomeNotes(noted_from=effective)

    found = {}
    for name, known in (("noted", outcome_notes), ("forgotten", forgetful)):
        message_entries = MessageEntryIndex(1)
        message_entries.add(written.log, known)
        found[name] = message_entries.find(0)

    assert effective in found["noted"]
    assert effective in found["forgotten"]
