"""Files of the disk in memory are as those of the machine's, whatever is written and cut."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from log.disk.files import Disk, OsDisk
from log.disk.memory import MemoryDisk

LENGTH_MAX = 40


@pytest.mark.parametrize("is_looked_at", [False, True])
def test_files_hold_what_those_of_the_machine_do(tmp_path: Path, *, is_looked_at: bool) -> None:
    """Zeros that nobody has written take no memory: they are read all the same."""
    rng = random.Random(7)
    for number in range(100):
        memory = MemoryDisk()
        disks: list[tuple[Disk, int]] = []
        for disk, root in ((memory, "/"), (OsDisk(), f"{tmp_path}/")):
            disks.append((disk, disk.open(f"{root}{number}", write=True, create=True)))
        for _ in range(12):
            at, length = rng.randrange(LENGTH_MAX), rng.randrange(1, LENGTH_MAX)
            data, kind = rng.randbytes(length), rng.choice(("write", "cut", "sync", "look"))
            for disk, handle in disks:
                if kind == "write":
                    disk.pwritev(handle, [data], at)
                elif kind == "cut":
                    disk.truncate(handle, at)
                elif kind == "sync":
                    disk.fdatasync(handle)
            if is_looked_at and kind == "look":
                memory.content(f"/{number}")
            found, expected = (disk.pread(handle, length, at) for disk, handle in disks)
            assert found == expected
        found, expected = (disk.pread(handle, 3 * LENGTH_MAX, 0) for disk, handle in disks)
        assert found == expected
        assert memory.size(f"/{number}") == len(found)
        assert bytes(memory.content(f"/{number}")) == found
        for disk, handle in disks:
            disk.fdatasync(handle)
            disk.close(handle)
        memory.sync_directory("/")
        after = memory.crash(rng, keep=0)
        assert bytes(after.content(f"/{number}")) == expected
