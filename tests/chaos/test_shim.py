"""The shim against a real process: each error happens, is counted, and ends when it is told to."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from log.disk.files import OsDisk
from tests.chaos.shim import ALLOCATE, READ, SYNC, WRITE, Shim, ShimUnavailable, library

CHILD = """
import sys, time
from log.disk.files import OsDisk
disk = OsDisk()
handle = disk.open(sys.argv[1], write=True, create=True)
for line in sys.stdin:
    try:
        match line.split():
            case ["sync"]: said = disk.fdatasync(handle)
            case ["write", n]: said = disk.pwritev(handle, [b"x" * (int(n) - 1), b"y"], 0)
            case ["read", n]: said = disk.pread(handle, int(n), 0)
            case ["allocate", n]: said = disk.preallocate(handle, int(n))
            case ["create", path]: said = disk.close(disk.open(path, write=True, create=True))
            case ["wall"]: said = time.time_ns()
            case ["monotonic"]: said = time.monotonic_ns()
            case ["boot"]: said = disk.boot_id()
    except OSError as error:
        said = f"errno {error.errno}"
    print(said, flush=True)
"""


class Process:
    """Does to one file what it is told, with the disk that nodes use."""

    def __init__(self, folder: Path) -> None:
        self.shim = Shim(folder / "faults")
        self.file = folder / "data" / "file"
        self.file.parent.mkdir()
        self.match = str(folder / "data")
        self._child = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(self.file)],
            env=dict(os.environ) | self.shim.environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def do(self, *words: object) -> str:
        child = self._child
        assert child.stdin is not None and child.stdout is not None
        print(*words, file=child.stdin, flush=True)
        return child.stdout.readline().strip()

    def end(self) -> None:
        self._child.kill()
        self._child.communicate()
        self.shim.close()


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Process]:
    try:
        library()
    except ShimUnavailable as error:
        pytest.skip(str(error))
    made = Process(tmp_path)
    assert made.do("write", 10) == "10"
    yield made
    made.end()


def test_no_rule_changes_nothing(process: Process) -> None:
    assert process.do("write", 100) == "100"
    assert process.do("sync") == "None"
    assert process.do("boot") == OsDisk().boot_id()
    assert process.shim.is_attached


def test_one_sync_fails_and_the_next_succeeds(process: Process) -> None:
    rule = process.shim.fail(SYNC, errno.EIO, match=process.match, times=1)

    assert [process.do("sync") for _ in range(3)] == [f"errno {errno.EIO}", "None", "None"]
    assert (rule.seen, rule.done) == (3, 1)


def test_every_sync_fails_after_those_let_pass_until_the_rules_are_cleared(
    process: Process,
) -> None:
    rule = process.shim.fail(SYNC, errno.EIO, match=process.match, skip=1)

    assert [process.do("sync") for _ in range(3)] == ["None", *[f"errno {errno.EIO}"] * 2]
    assert rule.done == 2
    process.shim.clear()
    assert process.do("sync") == "None"


def test_other_files_and_other_operations_are_left_alone(process: Process) -> None:
    process.shim.fail(SYNC, errno.EIO, match="/elsewhere/")
    process.shim.fail(WRITE, errno.EIO, match=process.match)

    assert process.do("sync") == "None"
    assert process.do("write", 5) == f"errno {errno.EIO}"
    assert process.do("read", 5) == "b'xxxxx'"


def test_a_short_write_is_completed_by_the_disk_and_counted(process: Process) -> None:
    rule = process.shim.shorten(match=process.match, times=2)

    assert process.do("write", 1000) == "1000"
    assert rule.done == 2
    assert process.file.read_bytes() == b"x" * 999 + b"y"


def test_a_short_write_may_be_followed_by_an_error(process: Process) -> None:
    process.shim.shorten(match=process.match, times=1)
    process.shim.fail(WRITE, errno.EIO, match=process.match, times=1)

    assert process.do("write", 1000) == f"errno {errno.EIO}"
    assert len(process.file.read_bytes()) == 500


def test_a_slow_sync_takes_its_time_and_succeeds(process: Process) -> None:
    rule = process.shim.delay(SYNC, 0.3, match=process.match, times=1)
    began = time.monotonic()

    assert process.do("sync") == "None"
    assert time.monotonic() - began >= 0.3
    assert rule.done == 1


def test_reads_fail_or_have_a_wrong_bit(process: Process) -> None:
    process.shim.fail(READ, errno.EIO, match=process.match, times=1)
    process.shim.flip(match=process.match, times=1)

    assert process.do("read", 3) == f"errno {errno.EIO}"
    assert process.do("read", 3) == "b'xyx'"
    assert process.do("read", 3) == "b'xxx'"


def test_a_full_disk_takes_no_new_file_and_no_room(process: Process) -> None:
    rule = process.shim.fill(match=process.match)

    assert process.do("create", process.file.with_name("new")) == f"errno {errno.ENOSPC}"
    assert process.do("allocate", 100) == f"errno {errno.ENOSPC}"
    assert process.do("write", 7) == "7"
    assert rule.done == 2
    rule.end()
    assert process.do("allocate", 100) == "None"


def test_writes_and_allocations_fail_by_one_rule(process: Process) -> None:
    rule = process.shim.fail(WRITE | ALLOCATE, errno.ENOSPC, match=process.match)

    assert process.do("write", 7) == process.do("allocate", 7) == f"errno {errno.ENOSPC}"
    assert rule.done == 2


@pytest.mark.parametrize("seconds", [86_400.25, -3_600.75])
def test_the_wall_clock_jumps_and_the_monotonic_one_does_not(
    process: Process, seconds: float
) -> None:
    def is_ahead(ahead_ns: int) -> bool:
        before = time.time_ns() + ahead_ns
        return before <= int(process.do("wall")) <= time.time_ns() + ahead_ns

    before = time.monotonic_ns()
    process.shim.set_wall(seconds)

    assert is_ahead(int(seconds * 1e9))
    assert before <= int(process.do("monotonic")) <= time.monotonic_ns()
    assert process.shim.wall_reads > 0
    process.shim.set_wall(0)
    assert is_ahead(0)


def test_the_machine_seems_to_have_started_again(process: Process) -> None:
    process.shim.set_boot_id("another")

    assert process.do("boot") == "another"


def test_more_rules_than_there_is_room_for_are_refused(process: Process) -> None:
    for _ in range(8):
        process.shim.lie(match=process.match)

    with pytest.raises(ValueError, match="8 rules"):
        process.shim.lie(match=process.match)
