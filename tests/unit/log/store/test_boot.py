"""A power cut is known by the machine's boot id; what relaxed groups lost by it is suspected."""

from __future__ import annotations

import errno
import random

import pytest

from goqueue.wire.types import Index, PartitionId
from log.disk.files import OsDisk
from log.disk.memory import MemoryDisk
from log.store.directory import Store
from log.wal import format as wal
from tests.unit.log.stores import (
    GROUP,
    OTHER,
    append,
    checkpoint,
    flush,
    group_of,
    open_store,
    write,
)


def relaxed_store(disk: MemoryDisk) -> Store:
    """One relaxed group and one that is not, each with a synced entry."""
    store = open_store(disk)
    group_of(store, GROUP).relaxed = True
    for partition_id in (GROUP, OTHER):
        append(group_of(store, partition_id))
    flush(store)
    return store


def suspects(store: Store) -> list[PartitionId]:
    return [
        partition_id
        for partition_id in store.partition_ids()
        if store.partition_log(partition_id).suspect
    ]


def test_relaxed_group_alone_is_suspect_after_a_power_cut() -> None:
    disk = MemoryDisk()
    relaxed_store(disk)

    store = open_store(disk.crash(random.Random(1)))

    assert store.unclean_boot
    assert suspects(store) == [GROUP]
    assert store.partition_log(GROUP).relaxed


def test_killed_process_leaves_nobody_suspect() -> None:
    disk = MemoryDisk()
    relaxed_store(disk)

    store = open_store(disk.clone())

    assert not store.unclean_boot
    assert suspects(store) == []


def test_failed_sync_leaves_relaxed_groups_suspect_in_the_same_boot() -> None:
    """Pages that it was to save pass for clean, and the kernel may let go of them."""
    disk = MemoryDisk()
    store = relaxed_store(disk)
    log = store.partition_log(GROUP)
    append(log)
    write(store, 1000)
    assert log.durable_index == 2
    disk.fault = lambda name, _path: OSError(errno.EIO, "failed") if name == "fdatasync" else None
    last = store.take_flush(2000)
    assert last is not None
    with pytest.raises(OSError, match="failed"):
        last.sync()
    for path in disk.paths():
        disk.uncache(path)

    left = disk.clone()
    again = open_store(left)
    assert again.partition_log(GROUP).last_index == 1
    assert suspects(again) == [GROUP]

    again.partition_log(GROUP).clear_suspect()
    flush(again)
    assert suspects(open_store(left.clone())) == []


def test_store_that_was_closed_may_lose_power() -> None:
    disk = MemoryDisk()
    relaxed_store(disk).close()
    after = disk.crash(random.Random(1))

    store = open_store(after)
    assert not store.unclean_boot
    assert suspects(store) == []

    assert suspects(open_store(after.crash(random.Random(1)))) == [GROUP], "closed once, not again"


def test_suspicion_lasts_until_it_is_lifted_durably() -> None:
    disk = MemoryDisk()
    relaxed_store(disk)
    disk = disk.crash(random.Random(1))
    store = open_store(disk)
    store.close()
    disk = disk.clone()
    store = open_store(disk)
    assert suspects(store) == [GROUP]

    store.partition_log(GROUP).clear_suspect()
    assert suspects(open_store(disk.clone())) == [GROUP]
    flush(store)

    assert suspects(open_store(disk.clone())) == []


def test_suspicion_and_durability_survive_new_files_and_checkpoints() -> None:
    disk = MemoryDisk()
    relaxed_store(disk)
    disk = disk.crash(random.Random(1))
    store = open_store(disk)
    files = store.wal_files
    for _ in range(40):
        append(store.partition_log(GROUP), size=100)
        flush(store)
    assert store.wal_files > files
    checkpoint(store)

    again = open_store(disk.clone())
    assert suspects(again) == [GROUP]
    assert again.partition_log(GROUP).relaxed


def test_group_that_is_relaxed_no_longer_has_synced_what_it_had_written() -> None:
    disk = MemoryDisk()
    store = relaxed_store(disk)
    log = store.partition_log(GROUP)
    append(log)
    job = write(store, 1000)
    assert not job.synced

    log.relaxed = False
    assert log.durable_index == 1
    flush(store)
    assert log.durable_index == 2

    after = open_store(disk.crash(random.Random(1), keep=0.0))
    assert suspects(after) == []
    assert after.partition_log(GROUP).last_index == 2


def test_snapshot_beyond_a_log_that_lost_its_end_is_deleted() -> None:
    disk = MemoryDisk()
    store = relaxed_store(disk)
    log = store.partition_log(GROUP)
    append(log)
    write(store, 1000)
    for index in (1, 2):
        log.save_snapshot(Index(index), b"state").run()

    after = open_store(disk.crash(random.Random(1), keep=0.0))
    append(after.partition_log(GROUP), 2, term=2)

    assert after.partition_log(GROUP).latest_snapshot() == (1, b"state")


def test_log_of_a_release_without_boot_ids_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = MemoryDisk()
    with monkeypatch.context() as earlier:
        earlier.setattr(wal, "_encode_boot", lambda _state: b"")
        relaxed_store(disk)

    store = open_store(disk.crash(random.Random(1)))

    assert not store.unclean_boot
    assert suspects(store) == []
    assert suspects(open_store(disk.clone())) == []
    assert store.partition_log(GROUP).last_index == 1


def test_machine_tells_one_boot_id_while_it_runs() -> None:
    first, second = OsDisk().boot_id(), OsDisk().boot_id()

    assert first
    assert len(first) < 256
    assert first == second or not OsDisk().exists("/proc/sys/kernel/random/boot_id")
