"""A failed write-back is never missed, though the system tells it only to who had the file open."""

from __future__ import annotations

import errno
import random
from dataclasses import replace

import pytest

from goqueue.wire.types import Index, PartitionId, TopicId
from log.disk.descriptors import Descriptors
from log.disk.files import SyncFailed
from log.disk.memory import MemoryDisk
from log.segments.segment import SEGMENT_SUFFIX, TERMS_SUFFIX
from log.store.directory import Store
from tests.unit.log.stores import (
    SMALL,
    append,
    checkpoint,
    everything,
    flush,
    frames,
    group_of,
    open_store,
)

CONFIG = replace(
    SMALL, descriptors_max=2, wal_file_bytes=1 << 14, segment_bytes=1 << 16, checkpoint_bytes=1
)
HEADER_MOST = 64
"""A snapshot's header is the group's own."""
PARTITIONS = [PartitionId(TopicId(0xABC, 2), number) for number in range(6)]


class ForgetfulDisk(MemoryDisk):
    """What was written and not synced of a file is lost when `write_back_fails`, and that is told
    only to the descriptors that are open then: the inode of any other file has left memory."""

    def __init__(self) -> None:
        super().__init__()
        self.loses_on_close = ""
        self._owed: set[int] = set()

    def _holders(self, path: str) -> list[int]:
        return [handle for handle, (_number, name) in self._handles.items() if name == path]

    def write_back_fails(self, path: str) -> None:
        number = self._live[path]
        assert number is not None
        self._files[number].lose()
        self._owed.update(self._holders(path))
        if not self._holders(path):
            self._files[number].uncache()

    def close(self, handle: int) -> None:
        _number, path = self._handles[handle]
        super().close(handle)
        if self.loses_on_close and self.loses_on_close in path and not self._holders(path):
            self.write_back_fails(path)

    def fdatasync(self, handle: int) -> None:
        if handle in self._owed:
            self._owed.discard(handle)
            raise SyncFailed(errno.EIO, "write-back failed")
        super().fdatasync(handle)


def written(disk: MemoryDisk, **settings: int) -> Store:
    """Six partitions, one entry each, in segments that no checkpoint has synced."""
    store = open_store(disk, replace(CONFIG, **settings))
    for partition_id in PARTITIONS:
        append(group_of(store, partition_id))
        flush(store)
    return store


def whole(disk: MemoryDisk, path: str) -> bytes:
    """All of a file, as it is read."""
    handle = disk.open(path)
    try:
        return disk.pread(handle, disk.size(path), 0)
    finally:
        disk.close(handle)


def segment_of(store: Store, partition_id: PartitionId) -> str:
    return store.partition_log(partition_id).disk_segments.chain[-1].path()


def test_a_checkpoint_is_told_of_a_write_back_that_failed_before_it() -> None:
    # given more files with unsynced writes than stay open between uses
    disk = ForgetfulDisk()
    store = written(disk)

    # when the pages of the one that was used longest ago are lost
    disk.write_back_fails(segment_of(store, PARTITIONS[0]))

    # then the checkpoint knows, and the write-ahead log is kept: nothing is missing after a restart
    job = store.take_checkpoint()
    assert job is not None
    with pytest.raises(SyncFailed) as caught:
        job.run()
    store.complete_checkpoint(job, caught.value)
    assert store.failed is caught.value
    again = open_store(disk.crash(random.Random(1), keep=0.0), CONFIG, seed=2)
    for partition_id in PARTITIONS:
        assert not again.partition_log(partition_id).quarantined
        assert frames(everything(again.partition_log(partition_id))) == frames(
            everything(store.partition_log(partition_id))
        )


def test_where_too_many_files_are_unsynced_one_is_synced_before_it_is_closed() -> None:
    disk = ForgetfulDisk()
    store = written(disk, descriptors_unsynced_max=4)
    assert disk.open_handles <= 4 + 2 + 1, "and the write-ahead log's"
    first = segment_of(store, PARTITIONS[0])
    assert not disk._holders(first)

    disk.write_back_fails(first)  # in vain: all of it is synced

    assert checkpoint(store)
    again = open_store(disk.crash(random.Random(1), keep=0.0), CONFIG, seed=2)
    assert frames(everything(again.partition_log(PARTITIONS[0]))) == frames(
        everything(store.partition_log(PARTITIONS[0]))
    )


def test_a_failure_that_such_a_sync_is_told_fails_the_store() -> None:
    disk = ForgetfulDisk()
    store = written(disk, descriptors_unsynced_max=len(PARTITIONS) * 2)
    disk.write_back_fails(segment_of(store, PARTITIONS[0]))

    append(group_of(store, PartitionId(TopicId(0xABC, 3), 0)))
    flush(store)

    assert isinstance(store.failed, SyncFailed)


def test_many_unsynced_files_call_for_a_checkpoint() -> None:
    store = written(
        MemoryDisk(), descriptors_unsynced_max=len(PARTITIONS) * 4, checkpoint_bytes=1 << 30
    )
    assert store.checkpoint_due
    assert checkpoint(store)
    assert not store.checkpoint_due


def test_what_is_written_while_a_file_is_synced_is_unsynced_still() -> None:
    disk = MemoryDisk()
    files = Descriptors(disk, 1, write=True, unsynced_max=2)
    with files.written("/f", create=True) as handle:
        disk.pwritev(handle, [b"one"], 0)

    def write_meanwhile(operation: str, _path: str) -> None:
        if operation == "fdatasync":
            disk.fault = None
            with files.written("/f") as handle:
                disk.pwritev(handle, [b"two"], 0)

    disk.fault = write_meanwhile
    files.sync("/f")
    for name in ("/g", "/h", "/i"):
        with files.borrow(name, create=True):
            pass

    assert files._unsynced.keys() == {"/f"}
    files.sync("/f")
    assert not files._unsynced


def test_forgetting_a_file_syncs_what_was_written_to_it() -> None:
    disk = ForgetfulDisk()
    files = Descriptors(disk, 4, write=True)
    with files.written("/f", create=True) as handle:
        disk.pwritev(handle, [b"one"], 0)
    disk.write_back_fails("/f")

    with pytest.raises(SyncFailed):
        files.forget("/f")

    with pytest.raises(SyncFailed, match="earlier"):
        files.sync("/f")


@pytest.mark.parametrize("suffix", [SEGMENT_SUFFIX, TERMS_SUFFIX, ".snapshot"])
def test_a_copied_file_counts_as_synced_only_if_what_was_verified_is(suffix: str) -> None:
    """Its chunks were written by descriptors that are closed: pages may be lost, and nobody told,
    between its verification and its sync."""
    # given a copy whose chunks have all arrived
    origin = open_store(MemoryDisk(), CONFIG)
    log = group_of(origin)
    append(log, 12)
    flush(origin)
    log.save_snapshot(Index(10), b"the state after entry 10").run()
    checkpoint(origin)
    export = log.export(log.last_index)
    manifest = export.open()
    disk = ForgetfulDisk()
    target = open_store(disk, CONFIG, seed=2)
    group_of(target)
    flush(target)
    staging = target.staging(log.id, 7)
    staging.open(manifest)
    [segment] = manifest.segments
    for part in (*segment.parts(), manifest.state_part()):
        staging.write(part, 0, export.read(part.kind, part.first, 0, part.size_bytes))
    [path] = [path for path in disk.paths() if suffix in path]
    before = whole(disk, path)

    # when what nobody has open is lost
    disk.loses_on_close = path
    staging.check_segment(segment)
    staging.check_state(manifest)
    staging.finish(manifest)

    # then what was declared sound is on the disk
    after = disk.crash(random.Random(1), keep=0.0)
    assert whole(after, path)[HEADER_MOST:] == before[HEADER_MOST:]
