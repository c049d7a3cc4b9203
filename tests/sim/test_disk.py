"""The simulated disk and store: what they say of a data directory to the world around."""

import random
from itertools import count

import pytest

from goqueue.wire.types import PartitionId, TopicId
from log.config import StorageConfig
from tests.sim.disk import ROOT, Died, DiskSpeed, SimDisk, Storage
from tests.sim.loop import Loop, ProcessTime, Trace
from tests.sim.setup import Setup

CONFIG = StorageConfig(wal_file_bytes=1 << 14, reserve_bytes=1 << 12)
WAL = f"{ROOT}/wal/0000000000000001.wal"
AT = 20
"""In the file's header: damage that no process takes for a torn write."""


def test_a_store_says_that_it_begins_anew_whoever_set_its_data_aside() -> None:
    for operations in count():
        disk = damaged_disk()
        former = disk.incarnation

        disk.die_after(operations)
        died = False
        try:
            storage = open_store(disk, seed=2)
        except Died:
            died = True
            disk.process_died()
            disk.die_after(None)
            storage = open_store(disk, seed=3)

        assert storage.set_aside, operations
        assert storage.store.incarnation != former
        assert not disk.is_wal_damaged
        if not died:
            break
    assert operations > 20


def test_a_store_that_opens_what_it_had_does_not_say_so() -> None:
    disk = SimDisk()
    former = open_store(disk).store.incarnation
    disk.process_died()

    storage = open_store(disk, seed=2)

    assert not storage.set_aside
    assert storage.store.incarnation == former


@pytest.mark.parametrize(
    ("seed", "only"),
    [(8630, (0, 1, 2, 3)), (5883, (0, 1, 2, 4, 5, 6, 10))],
    ids=["died as it set its data aside", "an entry that never was committed"],
)
def test_damage_that_once_went_wrong_ends_well(seed: int, only: tuple[int, ...]) -> None:
    assert Setup(only=only).run(seed).violations == []


def open_store(disk: SimDisk, *, seed: int = 1) -> Storage:
    time = ProcessTime(Loop(Trace()))
    return Storage(disk, time, random.Random(seed), CONFIG, DiskSpeed())


def damaged_disk() -> SimDisk:
    """Of a node that has a group, is down, and whose write-ahead log has a bad header."""
    disk = SimDisk()
    store = open_store(disk).store
    store.create_log(PartitionId(TopicId(7, 1), 0))
    job = store.take_flush(0)
    assert job is not None
    job.sync()
    store.complete_flush(job)
    disk.process_died()

    handle = disk.open(WAL, write=True)
    flipped = disk.pread(handle, 1, AT)[0] ^ 1
    disk.pwritev(handle, [bytes((flipped,))], AT)
    disk.fdatasync(handle)
    disk.close(handle)
    disk.is_wal_damaged = True
    return disk
