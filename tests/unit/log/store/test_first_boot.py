"""A data directory that is new, or whose disk is full before it is opened."""

from __future__ import annotations

import errno
import os
import random
from pathlib import Path

import pytest

from log.config import StorageConfig
from log.disk.files import OsDisk, SyncFailed
from log.disk.memory import MemoryDisk
from log.errors import DirectoryLocked
from log.store.directory import Store

CONFIG = StorageConfig(wal_file_bytes=1 << 16, reserve_bytes=0)


def test_a_directory_whose_maker_died_at_once_survives_a_power_cut_after_the_next_opening() -> None:
    first = MemoryDisk()
    Store.open(first, "/var/data", CONFIG).close()
    lost = []
    for done in range(len(first.trace) + 1):
        disk = MemoryDisk.replay(first.trace[:done])
        opened = Store.open(disk, "/var/data", CONFIG)
        opened.close()
        again = Store.open(disk.crash(random.Random(1), keep=0), "/var/data", CONFIG)
        if again.incarnation != opened.incarnation:
            lost.append(first.trace[done - 1][:2])

    assert lost == []


@pytest.mark.parametrize(("error", "is_ours"), [(errno.EACCES, False), (errno.EIO, True)])
def test_a_directory_above_that_is_not_ours_to_sync_keeps_nobody_from_opening(
    monkeypatch: pytest.MonkeyPatch, error: int, is_ours: bool
) -> None:
    disk = MemoryDisk()
    disk.make_directories("/var/data")
    sync = disk.sync_directory

    def fails(path: str) -> None:
        if path == "/":
            raise SyncFailed(error, os.strerror(error), path)
        sync(path)

    monkeypatch.setattr(disk, "sync_directory", fails)

    if is_ours:
        with pytest.raises(SyncFailed):
            Store.open(disk, "/var/data", CONFIG)
    else:
        Store.open(disk, "/var/data", CONFIG).close()


def fail_at_lock(monkeypatch: pytest.MonkeyPatch, error: int) -> None:
    write = os.pwrite

    def fails(handle: int, data: bytes, offset: int) -> int:
        if os.readlink(f"/proc/self/fd/{handle}").endswith("LOCK"):
            raise OSError(error, os.strerror(error))
        return write(handle, data, offset)

    monkeypatch.setattr(os, "pwrite", fails)


def test_a_full_disk_has_no_room_for_the_holders_name_and_is_locked_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = str(tmp_path / "data")
    Store.open(OsDisk(), root, CONFIG).close()
    fail_at_lock(monkeypatch, errno.ENOSPC)

    store = Store.open(OsDisk(), root, CONFIG)
    with pytest.raises(DirectoryLocked, match="another process"):
        Store.open(OsDisk(), root, CONFIG)
    store.close()


def test_a_lock_that_can_not_be_written_is_free_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = str(tmp_path / "data")
    with monkeypatch.context() as broken, pytest.raises(OSError, match="Input/output error"):
        fail_at_lock(broken, errno.EIO)
        Store.open(OsDisk(), root, CONFIG)

    Store.open(OsDisk(), root, CONFIG).close()
