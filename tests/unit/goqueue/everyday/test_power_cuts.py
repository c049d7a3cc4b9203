"""Power cuts between any two system calls of a queue in a directory: safe loses nothing.

The disk is in memory: of the writes since the last sync each survives, is torn or is lost, in any
order. GOQUEUE_POWER_CUTS says after how many system calls one is tried, 1 for after each.
"""

from __future__ import annotations

import os
import random

import pytest

from goqueue.errors import GoQueueError
from log.disk.memory import MemoryDisk
from tests.power_cuts import check, check_compacted, compacting, small_files, work

EVERY = int(os.environ.get("GOQUEUE_POWER_CUTS", "0"))
CUTS = 6


def made(disk: MemoryDisk, suffix: str) -> int:
    """How many files of this kind were begun."""
    return sum(
        name in ("create", "rename") and str(given[-1]).endswith(suffix)
        for name, given in disk.trace
    )


def test_a_power_cut_at_any_step_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    small_files(monkeypatch)
    disk = MemoryDisk()
    told = work("/jobs", disk, lambda: len(disk.trace))
    end = len(disk.trace)

    assert made(disk, ".segment") > 3, "segments were rolled"
    assert made(disk, ".wal") > 1, "the write-ahead log was rolled"
    for cut_at in range(0, end + 1, EVERY or end // CUTS):
        after = MemoryDisk.replay(disk.trace[:cut_at]).crash(random.Random(cut_at))
        check("/jobs", after, told, cut_at)


def test_a_power_cut_at_any_step_of_compacting_loses_nothing_that_is_not_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    small_files(monkeypatch)
    disk = MemoryDisk()
    told = compacting("/jobs", disk, lambda: len(disk.trace))
    end = len(disk.trace)

    gone = [given for name, given in disk.trace if name == "unlink"]
    assert sum(str(given[-1]).endswith(".segment") for given in gone) > 3, "segments went"
    for cut_at in range(0, end + 1, EVERY or end // CUTS):
        after = MemoryDisk.replay(disk.trace[:cut_at]).crash(random.Random(cut_at))
        check_compacted("/jobs", after, told, cut_at)


class LyingDisk(MemoryDisk):
    """One that says that it has synced, and has not."""

    def fdatasync(self, handle: int) -> None:
        return None


def test_a_disk_that_does_not_sync_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    small_files(monkeypatch)
    disk = LyingDisk()
    told = work("/jobs", disk, lambda: len(disk.trace))

    with pytest.raises((AssertionError, GoQueueError)):
        check("/jobs", disk.crash(random.Random(1), keep=0.0), told, len(disk.trace))
