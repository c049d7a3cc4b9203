"""A disk that is only read: what is written stays in memory, and what was written below shows."""

from __future__ import annotations

import random

import pytest

from log.disk.memory import MemoryDisk
from log.disk.overlay import PAGE_BYTES, OverlayDisk

SIZE = 3 * PAGE_BYTES + 100


@pytest.fixture
def below() -> MemoryDisk:
    disk = MemoryDisk()
    disk.make_directories("/data/groups/a")
    for name in ("one", "groups/a/two"):
        handle = disk.open(f"/data/{name}", write=True, create=True)
        disk.pwritev(handle, [bytes(number % 251 for number in range(SIZE))], 0)
        disk.close(handle)
    return disk


def test_whatever_is_written_reads_back_and_nothing_reaches_the_disk_below(
    below: MemoryDisk,
) -> None:
    rng = random.Random(7)
    untouched = below.clone()
    disk, truth = OverlayDisk(below), below.clone()
    handles = [one.open("/data/one", write=True) for one in (disk, truth)]

    for _ in range(300):
        at, length = rng.randrange(SIZE + 5000), rng.randrange(1, 6000)
        if rng.random() < 0.2:
            for one, handle in zip((disk, truth), handles, strict=True):
                one.truncate(handle, at)
        else:
            data = rng.randbytes(length)
            for one, handle in zip((disk, truth), handles, strict=True):
                assert one.pwritev(handle, [data[:10], data[10:]], at) == length
        assert disk.size("/data/one") == truth.size("/data/one")
        at, length = rng.randrange(SIZE), rng.randrange(1, 20_000)
        assert disk.pread(handles[0], length, at) == truth.pread(handles[1], length, at)

    assert below.content("/data/one") == untouched.content("/data/one")
    assert below.paths() == untouched.paths()


def test_files_are_made_renamed_and_removed_in_memory_alone(below: MemoryDisk) -> None:
    disk = OverlayDisk(below)
    disk.make_directories("/data/new")
    made = disk.open("/data/new/file", write=True, create=True)
    disk.pwritev(made, [b"made"], 0)
    disk.rename("/data/one", "/data/new/moved")
    disk.unlink("/data/groups/a/two")
    disk.remove_directory("/data/groups/a")

    assert disk.list_directory("/data/new") == ["file", "moved"]
    assert disk.list_directory("/data") == ["groups", "new"]
    assert disk.list_directory("/data/groups") == []
    assert not disk.exists("/data/one")
    assert disk.size("/data/new/moved") == SIZE
    with pytest.raises(FileNotFoundError):
        disk.open("/data/groups/a/two")
    assert below.paths() == ["/data/groups/a/two", "/data/one"]


def test_no_later_file_shows_in_what_is_frozen_and_what_grows_is_read(below: MemoryDisk) -> None:
    disk = OverlayDisk(below, "/data/groups")
    for name in ("groups/a/three", "four"):
        below.close(below.open(f"/data/{name}", write=True, create=True))
    handle = below.open("/data/groups/a/two", write=True)
    below.pwritev(handle, [b"more"], SIZE)

    assert disk.list_directory("/data/groups/a") == ["two"]
    assert not disk.exists("/data/groups/a/three")
    assert disk.exists("/data/four")
    assert disk.pread(disk.open("/data/groups/a/two"), 10, SIZE) == b"more"


def test_what_is_closed_is_closed_below(below: MemoryDisk) -> None:
    disk = OverlayDisk(below)
    disk.close(disk.open("/data/one"))
    assert below.open_handles == 0

    changed = disk.open("/data/one", write=True)
    disk.pwritev(changed, [b"changed"], 0)
    disk.unlink("/data/one")
    disk.close(changed)
    disk.close_all()
    disk.close_all()
    assert below.open_handles == 0
