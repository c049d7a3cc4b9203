"""Deleting a group's files while other threads still work in its directory."""

from __future__ import annotations

import errno

import pytest

from goqueue.wire.types import Index, Term
from log.disk.memory import MemoryDisk
from log.errors import InstallRefused
from log.store.directory import Store
from log.wal.install import Install
from tests.unit.log.stores import (
    GROUP,
    OTHER,
    ROOT,
    append,
    checkpoint,
    everything,
    flush,
    group_of,
    open_store,
)

DIRECTORY = f"{ROOT}/groups/{GROUP}"


def two_groups() -> tuple[MemoryDisk, Store]:
    disk = MemoryDisk()
    store = open_store(disk)
    for partition_id in (GROUP, OTHER):
        append(group_of(store, partition_id), 40)
    flush(store)
    return disk, store


def vanished(path: str) -> OSError:
    return FileNotFoundError(errno.ENOENT, "no such file or directory", path)


def test_a_checkpoint_outlives_the_directory_of_a_group_that_is_removed_meanwhile() -> None:
    disk, store = two_groups()
    disk.fault = lambda operation, path: (
        vanished(path) if operation == "sync_directory" and path == DIRECTORY else None
    )

    assert checkpoint(store)

    assert store.failed is None
    assert len(everything(store.partition_log(OTHER))) == 40


def test_trimmed_segments_that_went_with_their_group_are_no_error() -> None:
    disk, store = two_groups()
    checkpoint(store)
    log = store.partition_log(GROUP)
    log.save_snapshot(log.last_index, b"state").run()
    log.trim_to(log.last_index)
    checkpoint(store)
    flush(store)
    disk.fault = lambda operation, path: (
        vanished(path) if operation == "unlink" and path.startswith(DIRECTORY) else None
    )

    job = store.take_checkpoint()
    assert job is not None
    assert job.dropped_segments
    job.run()


@pytest.mark.parametrize("meanwhile", ["added", "renamed"])
def test_a_snapshot_that_is_stored_while_its_group_is_removed_is_no_error(meanwhile: str) -> None:
    disk, store = two_groups()
    name = f"{DIRECTORY}/0000000000000001.snapshot"

    def store_meanwhile(operation: str, path: str) -> OSError | None:
        if operation == "unlink" and path.startswith(DIRECTORY):
            if meanwhile == "renamed":
                return vanished(path)
            disk.close(disk.open(name, write=True, create=True))
        return None

    store.remove_log(GROUP)
    disk.fault = store_meanwhile
    flush(store)
    append(store.partition_log(OTHER))
    flush(store)
    assert store.failed is None

    disk.fault = None
    store.close()
    reopened = open_store(disk)
    assert reopened.partition_ids() == [OTHER]
    assert disk.list_directory(DIRECTORY) == []


def test_a_damaged_entry_where_the_log_would_begin_holds_up_no_checkpoint() -> None:
    disk, store = two_groups()
    checkpoint(store)
    log = store.partition_log(GROUP)
    log.save_snapshot(log.last_index, b"state").run()
    log.trim_to(log.last_index)
    last = log.disk_segments.removable(log.last_index)[-1]
    handle = disk.open(last.path(), write=True)
    disk.pwritev(handle, [b"\xff" * 8], last.end - 8)
    append(store.partition_log(OTHER), 40)
    flush(store)

    assert checkpoint(store)
    assert store.failed is None
    assert log.quarantined


def test_what_a_full_disk_can_not_delete_is_deleted_by_a_later_checkpoint() -> None:
    """On some file systems a deletion needs room as well; it took the node for broken."""
    disk, store = two_groups()
    checkpoint(store)
    log = store.partition_log(GROUP)
    log.save_snapshot(log.last_index, b"state").run()
    log.trim_to(log.last_index)
    checkpoint(store)
    flush(store)
    disk.fault = lambda operation, path: (
        OSError(errno.ENOSPC, "no space left on device", path) if operation == "unlink" else None
    )
    job = store.take_checkpoint()
    assert job is not None
    doomed = [path for segment in job.dropped_segments for path in segment.paths()]
    assert doomed

    job.run()
    store.complete_checkpoint(job)

    assert store.failed is None
    disk.fault = None
    flush(store)
    for _ in range(3):
        append(store.partition_log(OTHER))
        flush(store)
        checkpoint(store)
    assert not [path for path in doomed if disk.exists(path)]
    assert len(everything(store.partition_log(OTHER))) == 43


@pytest.mark.parametrize("is_out", [False, True], ids=["waiting", "under way"])
def test_trimmed_files_of_a_group_that_was_made_anew_are_not_deleted_from_the_new_one(
    is_out: bool,
) -> None:
    """A replica that moved away keeps its promises in an empty log of the same directory."""
    disk, store = two_groups()
    checkpoint(store)
    old = store.partition_log(GROUP)
    old.save_snapshot(old.last_index, b"state").run()
    old.trim_to(old.last_index)
    checkpoint(store)
    flush(store)
    job = store.take_checkpoint() if is_out else None
    assert job is None or job.dropped_segments

    store.remove_log(GROUP)
    log = store.create_log(GROUP)
    append(log, 40, term=7)
    flush(store)
    if job is not None:
        job.run()
        store.complete_checkpoint(job)
        flush(store)
    checkpoint(store)

    store.close()
    log = open_store(disk).partition_log(GROUP)
    assert [entry.term for entry in everything(log)] == [7] * 40
    assert not log.quarantined


def test_what_is_found_of_a_removed_group_is_not_said_of_the_one_made_anew() -> None:
    """Somebody who still reads the log that was finds its files gone."""
    disk, store = two_groups()
    old = store.partition_log(GROUP)
    store.remove_log(GROUP)
    store.create_log(GROUP)

    old.quarantine(3, 5, "files are gone")
    old.mark_suspect()
    flush(store)

    store.close()
    log = open_store(disk).partition_log(GROUP)
    assert (log.damaged, log.suspect) == (None, False)


def test_a_copy_is_not_installed_in_the_log_of_a_removed_group() -> None:
    _disk, store = two_groups()
    old = store.partition_log(GROUP)
    store.remove_log(GROUP)
    store.create_log(GROUP)

    with pytest.raises(InstallRefused, match="removed"):
        old.install(Install(7, Index(41), 1, Index(60), Term(1), 50, (41,)))

    flush(store)
    assert store.failed is None
