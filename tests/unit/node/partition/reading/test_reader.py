"""Slices of a partition's log: by offset, by time, bounded, and only of what is applied."""

from __future__ import annotations

import pytest

from delivery.entries.records import AppendBatch, encode_records
from goqueue.wire.batch import Record, RecordBatch, encode_batch
from goqueue.wire.errors import OffsetOutOfRange
from goqueue.wire.types import Index, Offset, PartitionId, TopicId
from log.config import StorageConfig
from log.disk.memory import MemoryDisk
from log.entry import Entry, EntryKind, make_entry
from log.store.directory import Store
from node.api.records import Slice
from node.partition.reading.reader import Bounds, PartitionReader
from tests.unit.node.partition.compaction_scene import Scene as Partition

COUNTS = ((2, 1), (0,), (3,), (0, 1, 1, 0, 1), (4,), (0,))
"""Records of each batch of each records entry; no-ops stand between them. A batch of none is there
for its producer's sequence alone."""
END = sum(map(sum, COUNTS))
KNOWN = RecordBatch.parse(encode_batch([Record(b"v")], producer_id=5))


class Scene:
    """A log of records and no-ops; entry times are 1000, 1010, 1020, ..."""

    def __init__(self) -> None:
        store = Store.open(MemoryDisk(), "/data", StorageConfig())
        log = store.create_log(PartitionId(TopicId(1, 1), 0))
        index, offset = 1, 0
        entries: list[Entry] = []
        self.times: dict[int, int] = {}
        for counts in COUNTS:
            entries.append(make_entry(index=index, term=1, time_ms=990 + 10 * index, kind=0))
            index += 1
            batches = []
            base = offset
            for count in counts:
                records = [Record(str(offset + n).encode(), None) for n in range(count)]
                if count:
                    batches.append(AppendBatch(encode_batch(records), count, 0))
                else:
                    batches.append(AppendBatch.of_rest(None, KNOWN, 0))
                offset += count
            time_ms = 990 + 10 * index
            self.times |= dict.fromkeys(range(base, offset), time_ms)
            entries.append(
                make_entry(
                    index=index,
                    term=1,
                    time_ms=time_ms,
                    kind=EntryKind.RECORDS,
                    body=encode_records(batches),
                    base_offset=base,
                    record_count=offset - base,
                )
            )
            index += 1
        log.append(entries)
        self.bounds = Bounds(Offset(0), Offset(END), Index(index - 1))
        self.reader = PartitionReader(log, lambda: self.bounds)

    def read(
        self, offset: int, records: int = 100, size: int = 1 << 20, to_ms: int | None = None
    ) -> Slice:
        return self.reader.read(
            Offset(offset), max_records=records, max_bytes=size, to_time_ms=to_ms
        )


def rows(found: Slice) -> list[int]:
    """The offsets in a slice, each checked against the value stored at it."""
    offsets = []
    for stored in found.batches:
        for row, value in enumerate(RecordBatch.parse(stored.batch).values()):
            assert value == str(stored.base_offset + row).encode()
            offsets.append(stored.base_offset + row)
    return offsets


@pytest.mark.parametrize("offset", range(END))
def test_a_read_covers_from_its_offset_to_the_end(offset: int) -> None:
    found = Scene().read(offset)

    assert rows(found)[-1] == END - 1
    assert offset in rows(found)
    assert found.next_offset == found.end_offset == END
    assert all(stored.base_offset + 4 > offset for stored in found.batches[:1])


def test_the_log_time_of_each_batch_is_its_entrys() -> None:
    scene = Scene()

    for stored in scene.read(0).batches:
        assert stored.time_ms == scene.times[stored.base_offset]


@pytest.mark.parametrize("records", [1, 2, 3, 4, 7])
def test_following_next_offset_skips_and_repeats_nothing(records: int) -> None:
    scene, at, seen = Scene(), 0, list[int]()
    while at < END:
        found = scene.read(at, records)
        seen += [row for row in rows(found) if row >= at]
        assert found.next_offset > at
        at = found.next_offset

    assert seen == list(range(END))


def test_a_byte_bound_gives_at_least_one_batch() -> None:
    found = Scene().read(0, size=1)

    assert len(found.batches) == 1
    assert found.next_offset == 2


def test_at_the_end_there_is_nothing_and_beyond_it_an_error() -> None:
    scene = Scene()

    assert scene.read(END).batches == []
    with pytest.raises(OffsetOutOfRange) as caught:
        scene.read(END + 1)
    assert caught.value.data == {"offset": END + 1, "first": 0, "next": END}


def test_below_the_log_start_reading_begins_at_the_log_start() -> None:
    scene = Scene()
    scene.bounds = Bounds(Offset(3), Offset(END), scene.bounds.applied)

    found = scene.read(0)

    assert rows(found)[0] == 3
    assert found.log_start == 3


def test_what_is_not_applied_is_not_read() -> None:
    scene = Scene()
    scene.bounds = Bounds(Offset(0), Offset(6), Index(6))

    assert rows(scene.read(0)) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("to_ms", [1000, 1010, 1011, 1030, 1050, 1070, 2000])
def test_an_end_in_time_is_exclusive_and_exact(to_ms: int) -> None:
    scene = Scene()

    wanted = [offset for offset, time_ms in scene.times.items() if time_ms < to_ms]

    assert rows(scene.read(0, to_ms=to_ms)) == wanted


@pytest.mark.parametrize("time_ms", [0, 1000, 1010, 1011, 1050, 1070, 1071])
def test_the_first_offset_at_or_after_a_time_is_found(time_ms: int) -> None:
    scene = Scene()

    at_or_after = [offset for offset, at in scene.times.items() if at >= time_ms]

    assert scene.reader.offset_at(time_ms) == (at_or_after[0] if at_or_after else None)


def test_an_offset_finds_its_entry_and_time() -> None:
    scene = Scene()

    assert {o: scene.reader.time_at(Offset(o)) for o in range(END)} == scene.times
    assert scene.reader.time_at(Offset(END)) is None


def test_reading_below_what_is_left_begins_with_the_first_message_there_is() -> None:
    disk, limits = MemoryDisk(), StorageConfig(segment_bytes=1, ram_tail_bytes=0)
    store = Store.open(disk, "/data", limits)
    log = store.create_log(PartitionId(TopicId(1, 1), 0))
    for number in range(1, 9):
        batch = encode_batch([Record(b"%d" % number, None)])
        body = encode_records([AppendBatch(batch, 1, 0)])
        log.append(
            [
                make_entry(
                    index=number,
                    term=1,
                    time_ms=number,
                    kind=EntryKind.RECORDS,
                    body=body,
                    base_offset=number - 1,
                    record_count=1,
                )
            ]
        )

    def step() -> None:
        while (job := store.take_flush()) is not None:
            job.sync()
            store.complete_flush(job)
            job.spill()
            store.complete_spill(job)
        checkpoint = store.take_checkpoint()
        if checkpoint is not None:
            checkpoint.run()
            store.complete_checkpoint(checkpoint)

    step()
    log.save_snapshot(Index(6), b"state").run()
    log.trim_to(Index(5))
    step()
    step()
    assert log.first_index == 5

    # The state was restored from a snapshot that is older than the trim.
    reader = PartitionReader(log, lambda: Bounds(Offset(0), Offset(8), Index(8)))
    found = reader.read(Offset(1), max_records=100, max_bytes=1 << 20)
    assert [stored.base_offset for stored in found.batches] == [4, 5, 6, 7]
    assert found.next_offset == 8


@pytest.mark.parametrize("behind", [True, False])
def test_the_next_message_behind_many_other_entries_is_searched_for_not_walked_to(
    monkeypatch: pytest.MonkeyPatch, *, behind: bool
) -> None:
    scene = Partition()
    for number in range(3):
        scene.publish(Record(b"%d" % number, b"k"))
    first = scene.log.last_index + 1
    scene.now_ms += 1000
    for _ in range(2000):
        scene.apply(EntryKind.NOOP, b"")
    offset = scene.publish(Record(b"late", b"k")) if behind else None
    steps: list[int] = []
    read = scene.log.entries

    def counted(first: int, *, max_bytes: int, max_count: int) -> list[Entry]:
        steps.append(first)
        return read(first, max_bytes=max_bytes, max_count=max_count)

    monkeypatch.setattr(scene.log, "entries", counted)

    assert scene.reader.offset_from(Index(first)) == offset
    assert scene.reader.offset_at(scene.now_ms) == offset
    assert scene.retention.offset_from(Index(first)) == scene.state.next_offset - int(behind)
    assert len(steps) < 50
