"""Indexes beside segments, when the disk is full, the log's start moves on, or something is wrong
with one replica: others go on, and a look-up answers or says that it can't."""

from __future__ import annotations

import asyncio
import errno
import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, cast

import pytest

from benchmarks.timeline_log import LoggedPartition
from delivery.config import GroupConfig
from delivery.entries.ops import ACK, Delivered, OpenGroup, Settled
from delivery.lookup.search_hashes import MESSAGE_ID, message_id_hash
from delivery.timeline.message import Timeline, project
from goqueue.wire.types import Index
from log.config import StorageConfig
from log.disk.memory import MemoryDisk
from log.errors import Damaged
from log.segments.hash_file import HashFile
from log.segments.message_entry_index import MessageEntryFile
from node.partition.host import PartitionHost
from node.partition.indexer import Indexer
from node.partition.reading import segment_follower
from node.partition.reading.message_entry_index import IndexBehind
from node.partition.reading.search_hashes import PartitionHashes
from node.runtime.looks import Looks

SMALL = StorageConfig(watermark_percent=0, watermark_bytes=0, segment_bytes=2000)
COUNT = 100


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


@pytest.fixture
def partition(disk: MemoryDisk) -> Iterator[LoggedPartition]:
    found = _filled(disk)
    yield found
    found.close()


def _filled(disk: MemoryDisk, root: str = "/data") -> LoggedPartition:
    """Several segments: messages of which each is delivered and acked by entries of its own."""
    found = LoggedPartition(disk, root, SMALL)
    found.do(OpenGroup(1, "g", 1, GroupConfig(), 0))
    for offset in found.publish(COUNT):
        lease = found.do(Delivered(1, "a", 1000, [offset]))
        found.do(Settled(1, ACK, [(lease, [offset])]))
    found.flush()
    assert len(found.log.segments()) > 3
    return found


def _expected(partition: LoggedPartition, offset: int) -> Timeline | None:
    last, log = partition.applied_index, partition.log
    entries = [log.entry(Index(index)) for index in range(1, last + 1)]
    return project(offset, entries, partition.state.queue.outcome_notes)


def _no_room(disk: MemoryDisk, kind: type[HashFile] | type[MessageEntryFile]) -> list[str]:
    """No file of this kind can be written from now on; the names of those that were tried."""
    tried: list[str] = []

    def fault(operation: str, path: str) -> OSError | None:
        if operation != "pwritev" or not path.endswith(kind.suffix):
            return None
        tried.append(path)
        return OSError(errno.ENOSPC, "no space left on device")

    disk.fault = fault
    return tried


async def test_a_look_up_whose_time_is_over_is_told_what_is_not_indexed(
    partition: LoggedPartition,
) -> None:
    now_s = asyncio.get_running_loop().time()

    with pytest.raises(IndexBehind) as refused:
        await partition.message_entries.find(7, Index(2), now_s)

    assert refused.value.http_status == 503 and refused.value.retriable
    assert refused.value.data["entries"] == 2 * COUNT


async def test_without_room_for_an_index_a_timeline_is_still_told_and_the_disk_left_alone(
    partition: LoggedPartition, disk: MemoryDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = _no_room(disk, MessageEntryFile)
    monkeypatch.setattr(segment_follower, "ASKED_REST_S", 3600.0)

    for offset in (0, 7, COUNT - 1):
        assert await partition.timeline(offset) == _expected(partition, offset)

    assert len(tried) == 1
    assert partition.message_entries.is_resting


async def test_once_there_is_room_again_the_next_look_up_writes_its_index(
    partition: LoggedPartition, disk: MemoryDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = _no_room(disk, MessageEntryFile)
    await partition.timeline(0)
    disk.fault = None
    monkeypatch.setattr(segment_follower, "ASKED_REST_S", 0.0)

    assert partition.message_entries.is_resting
    await partition.timeline(0)

    assert tried and partition.message_entries.disk_bytes > 0
    assert not partition.message_entries.is_resting


async def test_once_there_is_room_again_the_next_search_leaves_nothing_out(
    disk: MemoryDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition, workers = _filled(disk), ThreadPoolExecutor(1)
    hashes = PartitionHashes(partition.log, lambda: partition.applied_index, workers)
    _no_room(disk, HashFile)
    hash_ = message_id_hash("nobody")
    within_s = asyncio.get_running_loop().time() + 60
    assert (await hashes.find(MESSAGE_ID, hash_, COUNT, 10, within_s)).missing
    disk.fault = None
    monkeypatch.setattr(segment_follower, "ASKED_REST_S", 0.0)

    assert hashes.is_resting
    found = await hashes.find(MESSAGE_ID, hash_, COUNT, 10, within_s)

    assert (found.missing, found.offsets) == ([], [])
    workers.shutdown()
    partition.close()


async def test_a_log_that_begins_later_meanwhile_is_no_error_of_the_disk(
    partition: LoggedPartition, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = partition.log
    second = log.segments()[1].first_index
    read = log.cold_entries

    def trimmed_meanwhile(first: Index, **bounds: int) -> list[Any]:
        if first < second:
            log.disk_segments.remove_below(second)
        return read(first, **bounds)

    monkeypatch.setattr(log, "cold_entries", trimmed_meanwhile)

    assert await partition.message_entries.catch_up(math.inf)

    assert log.segments()[0].first_index == second
    assert not partition.message_entries.is_resting


async def test_a_file_that_is_damaged_again_and_again_ends_the_look_up(
    partition: LoggedPartition, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def damaged(file: MessageEntryFile, *_: object) -> None:
        asked.append(file.path)
        raise Damaged(file.path, 0, "rows of mentions are damaged")

    monkeypatch.setattr(MessageEntryFile, "find", damaged)

    with pytest.raises(IndexBehind):
        await partition.message_entries.find(7, Index(1))

    assert len(asked) == 3


async def test_trouble_with_one_replica_keeps_no_other_one_from_being_indexed(
    disk: MemoryDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, good = _filled(disk, "/a"), _filled(disk, "/b")
    indexer = _indexer(bad, good)
    monkeypatch.setattr("node.partition.indexer.REST", 0.0)

    def broken(*_: object) -> None:
        raise RuntimeError("what nobody thought of")

    monkeypatch.setattr(bad.message_entries, "_missing", broken)

    while not good.message_entries.is_current:
        await indexer.round()

    assert bad.message_entries.is_resting
    assert await indexer.round()
    bad.close()
    good.close()


async def test_a_few_entries_are_left_to_look_ups_until_there_are_many_or_some_time_is_over(
    partition: LoggedPartition, monkeypatch: pytest.MonkeyPatch
) -> None:
    message_entries, indexer = partition.message_entries, _indexer(partition)
    monkeypatch.setattr("node.partition.indexer.REST", 0.0)
    assert await message_entries.catch_up(math.inf)

    def deliver_all() -> None:
        for _ in range(segment_follower.DUE_ENTRIES - 1):
            partition.do(Delivered(1, "a", 1000, [COUNT]))
        partition.flush()

    partition.publish(1)
    deliver_all()
    while not await indexer.round():
        pass
    assert message_entries.is_current  # as many as are worth a step

    deliver_all()
    assert await indexer.round()
    assert not message_entries.is_current
    assert await partition.timeline(COUNT) == _expected(partition, COUNT)
    assert message_entries.is_current

    deliver_all()
    monkeypatch.setattr(segment_follower, "DUE_S", 0.0)
    while not await indexer.round():
        pass
    assert message_entries.is_current


async def test_with_indexing_off_files_go_with_their_segments(
    partition: LoggedPartition, disk: MemoryDisk
) -> None:
    await partition.message_entries.catch_up(math.inf)
    partition.message_entries.forget()  # as after a restart
    log = partition.log
    named = log.disk_segments.files_beside(MessageEntryFile)
    log.disk_segments.remove_below(log.segments()[2].first_index)
    indexer = _indexer(partition, enabled=False)

    await indexer.round()

    assert sorted(log.disk_segments.files_beside(MessageEntryFile)) == sorted(named)[2:]
    assert partition.message_entries.disk_bytes == 0


def _indexer(*partitions: LoggedPartition, enabled: bool = True) -> Indexer:
    hosts = [cast(PartitionHost, partition) for partition in partitions]
    looks = cast(Looks[PartitionHost], SimpleNamespace(take=lambda: hosts, again=lambda _host: 0))
    return Indexer("timelines", looks, lambda host: host.message_entries, enabled=enabled)
