"""Deleting a group's files while other threads still work in its directory."""

from __future__ import annotations

import errno

from log.memory_disk import MemoryDisk
from log.store import Store
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
    for group in (GROUP, OTHER):
        append(group_of(store, group), 40)
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
    assert len(everything(store.group(OTHER))) == 40


def test_trimmed_segments_that_went_with_their_group_are_no_error() -> None:
    disk, store = two_groups()
    checkpoint(store)
    log = store.group(GROUP)
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
