"""Directories of many groups, made at once, are synced once."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from goqueue.wire.types import PartitionId, TopicId
from log.disk.files import OsDisk
from log.disk.memory import MemoryDisk
from tests.unit.log.stores import ROOT, append, checkpoint, flush, open_store

GROUPS = [PartitionId(TopicId(1, 7), number) for number in range(20)]


def cut(disk: MemoryDisk) -> MemoryDisk:
    """The disk after a power cut in which nothing was luck."""
    return disk.crash(random.Random(1), keep=0.0)


def test_a_directory_survives_a_power_cut_once_the_one_above_is_synced() -> None:
    disk = MemoryDisk()
    disk.make_directories("/data")
    disk.make_directory("/data/one")
    assert not cut(disk).exists("/data/one")

    disk.sync_directory("/data")
    assert cut(disk).exists("/data/one")


def test_who_needs_a_directory_that_lasts_syncs_one_that_was_made_and_not_synced() -> None:
    disk = MemoryDisk()
    disk.make_directories("/data")
    disk.make_directory("/data/one")

    disk.make_directories("/data/one")

    assert cut(disk).exists("/data/one")


def test_the_file_system_is_asked_to_sync_what_was_made_and_not_synced_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, synced = OsDisk(), list[int]()
    monkeypatch.setattr(os, "fsync", synced.append)
    disk.make_directory(f"{tmp_path}/one")
    disk.make_directory(f"{tmp_path}/one")
    assert os.path.isdir(f"{tmp_path}/one") and not synced

    disk.make_directories(f"{tmp_path}/one")
    disk.make_directories(f"{tmp_path}/one")
    assert len(synced) == 1

    disk.make_directory(f"{tmp_path}/two")
    disk.sync_directory(str(tmp_path))
    disk.make_directories(f"{tmp_path}/two")
    assert len(synced) == 2


def test_new_groups_cost_no_sync_of_a_directory_each_and_are_whole_after_a_checkpoint() -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    for group in GROUPS:
        append(store.create_log(group))
    synced = list[str]()

    def note(operation: str, path: str) -> None:
        if operation == "sync_directory" and not path.endswith("wal"):
            synced.append(path)

    disk.fault = note
    flush(store)
    assert not synced
    checkpoint(store)
    assert synced.count(f"{ROOT}/groups") == 1
    flush(store)

    found = open_store(cut(disk))
    assert [found.partition_log(group).last_index for group in GROUPS] == [1] * len(GROUPS)
    assert not found.damaged_ids
