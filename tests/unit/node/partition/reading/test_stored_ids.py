"""A known hash is believed only if the message that is stored has the very id."""

from __future__ import annotations

import pytest

from goqueue.wire.batch import RecordBatch, encode_columns
from goqueue.wire.errors import Unavailable
from goqueue.wire.types import Offset
from log.entry import Entry
from log.errors import LogError
from node.partition.reading.stored_ids import StoredIds
from tests.unit.delivery.batches import records


def identified(*ids: str | None) -> RecordBatch:
    return RecordBatch.parse(encode_columns([b"v"] * len(ids), message_ids=ids))


ENTRY = records(1, 10, (identified("a", None, "b"), 0), (identified("c", "d"), 0))


class Log:
    """One entry; counts how often it is read."""

    def __init__(self) -> None:
        self.reads = 0
        self.damaged = False

    def entry_at(self, offset: Offset) -> Entry | None:
        self.reads += 1
        if self.damaged:
            raise LogError("a bad frame")
        return ENTRY if 10 <= offset < 15 else None


def nowhere(_offset: Offset) -> str | None:
    return None


def test_an_id_is_that_of_the_message_at_the_offset() -> None:
    stored = StoredIds(Log().entry_at, nowhere)

    found = {name: [o for o in range(8, 17) if stored.verify(Offset(o), name)] for name in "abcde"}

    assert found == {"a": [10], "b": [12], "c": [13], "d": [14], "e": []}


def test_neighbours_are_read_once() -> None:
    log = Log()
    stored = StoredIds(log.entry_at, nowhere)

    assert all(stored.verify(Offset(o), name) for o, name in ((10, "a"), (12, "b"), (10, "a")))

    assert log.reads == 1


def test_what_cannot_be_read_is_neither_the_id_nor_another() -> None:
    log = Log()
    stored = StoredIds(log.entry_at, nowhere)
    log.damaged = True

    with pytest.raises(Unavailable) as refused:
        stored.verify(Offset(10), "a")

    assert (refused.value.outcome, refused.value.retriable) == ("none", True)


def test_a_message_that_outlived_the_log_has_its_id() -> None:
    stored = StoredIds(Log().entry_at, {3: "old", 4: None}.get)

    assert [stored.verify(Offset(o), "old") for o in (2, 3, 4, 10, 3)] == [
        False,
        True,
        False,
        False,
        True,
    ]
