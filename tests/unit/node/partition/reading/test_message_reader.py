"""Single messages out of stored batches: decoded once, bounded, and never a wedge."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import pytest

from delivery.entries.records import AppendBatch, encode_records
from goqueue.wire.batch import Record, RecordBatch, encode_batch
from goqueue.wire.types import Index, Offset, PartitionId, TopicId
from log.entry import Entry, EntryKind, make_entry
from log.errors import LogError
from node.partition.reading import message_reader
from node.partition.reading.message_reader import BatchCache, DecodedBatch, MessageReader
from node.partition.reading.reader import PartitionReader
from node.rpc.queue import MessageRow

GROUP = PartitionId(TopicId(1, 2), 0)


class Reader:
    """Entries of two batches with three messages each; entry 2 is damaged."""

    def __init__(self) -> None:
        self.reads = 0

    def entry_at(self, offset: Offset) -> Entry | None:
        self.reads += 1
        number = offset // 6
        if number == 2:
            raise LogError("damaged")
        if number > 3:
            return None
        batches = [
            RecordBatch.parse(
                encode_batch([Record(f"{6 * number + 3 * b + n}".encode()) for n in range(3)])
            )
            for b in range(2)
        ]
        return make_entry(
            index=number + 1,
            term=1,
            time_ms=1000 + number,
            kind=EntryKind.RECORDS,
            body=encode_records([AppendBatch.of(batch, 0) for batch in batches]),
            base_offset=6 * number,
            record_count=6,
        )


class Scene:
    def __init__(self, cache_bytes: int = 1 << 20) -> None:
        self.reader = Reader()
        self.cache = BatchCache(cache_bytes)
        self.carried: dict[int, int] = {}
        self.rows_carried: dict[Offset, MessageRow] = {}
        self.messages = MessageReader(
            GROUP,
            cast(PartitionReader, self.reader),
            self.cache,
            carried=lambda: self.carried,
            carried_rows=self._reappended_rows,
        )

    def _reappended_rows(self, index: Index) -> Mapping[Offset, MessageRow]:
        assert index == 99
        return self.rows_carried

    def values(self, *offsets: int, max_bytes: int = 1 << 20) -> list[bytes | None]:
        rows = self.messages.rows([Offset(offset) for offset in offsets], max_bytes)
        return [None if row is None else row.value for row in rows]


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_messages_come_in_the_order_asked_for(scene: Scene) -> None:
    assert scene.values(7, 1, 0, 5, 8) == [b"7", b"1", b"0", b"5", b"8"]


def test_a_batch_is_decoded_once_for_many_reads(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Offset] = []

    class Counting(DecodedBatch):
        def __init__(self, base: Offset, *rest: object) -> None:
            made.append(base)
            super().__init__(base, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(message_reader, "DecodedBatch", Counting)

    for offset in (0, 1, 2, 3, 4, 5):
        assert scene.values(offset) == [str(offset).encode()]
    scene.values(*range(6))

    assert made == [0, 3]


def test_what_is_gone_or_damaged_is_none_and_its_neighbours_are_read(scene: Scene) -> None:
    assert scene.values(11, 12, 100, 18) == [b"11", None, None, b"18"]


def test_an_answer_ends_where_it_is_full_and_holds_at_least_one(scene: Scene) -> None:
    assert scene.values(0, 1, 2, max_bytes=1) == [b"0"]
    assert scene.values(0, 1, 2, max_bytes=2 * message_reader.MESSAGE_BYTES + 2) == [b"0", b"1"]


def test_carried_messages_are_read_from_the_entry_that_carries_them(scene: Scene) -> None:
    row = MessageRow(1, 5, b"kept", None, (), 2, None, None, None)
    scene.carried = {1: 99, 2: 99}
    scene.rows_carried = {Offset(1): row}

    assert scene.values(0, 1, 2) == [b"0", b"kept", None]


def test_the_memory_of_decoded_batches_is_bounded() -> None:
    one = DecodedBatch(Offset(0), 1, encode_batch([Record(b"10")] * 3)).size_bytes
    scene = Scene(cache_bytes=2 * one)

    for offset in (0, 3, 6, 9, 0):
        scene.values(offset)

    assert scene.cache.used <= 2 * one
    reads = scene.reader.reads
    scene.values(9)
    assert scene.reader.reads == reads
    scene.values(3)
    assert scene.reader.reads == reads + 1
    scene.cache.forget(GROUP)
    assert scene.cache.used == 0


def test_decoded_batches_are_counted_as_they_are_decoded() -> None:
    stored = encode_batch([Record(bytes(1 << 20))], codec="zstd")

    assert len(stored) < 1000
    assert DecodedBatch(Offset(0), 1, stored).size_bytes > 1 << 20


def test_an_answer_ends_where_enough_is_decoded(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(message_reader, "DECODED_BYTES_MAX", 8)

    # the values of each batch are three bytes
    assert scene.values(0, 3, 6, 7) == [b"0", b"3"]
