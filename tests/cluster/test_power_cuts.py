"""Power cuts of a queue in a directory on a real ext4: what its device holds after each sync.

The file system is an image behind a loop device; a cut leaves the image as it was at that moment,
without what the kernel still had in memory, and ext4 replays its journal as it is mounted again.
That takes root. Writes that are torn or reordered within one sync are the disk in memory's
(tests/unit/goqueue/everyday/test_power_cuts.py). GOQUEUE_POWER_CUTS=1 tries each step.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from log.disk.files import Bytes, Disk, OsDisk
from tests.chaos.storm.ground import do, missing_for_disks, unmount_image
from tests.power_cuts import Event, check, check_compacted, compacting, small_files, work

IMAGE_BYTES = 48 << 20
EVERY = int(os.environ.get("GOQUEUE_POWER_CUTS", "0"))
CUTS = 4
Work = Callable[[str, Disk, Callable[[], int]], list[Event]]
Check = Callable[[str, Disk, list[Event], int], None]
LATE = "commit=600"
"""The journal is committed by syncs alone, not by the time that passes."""


class CutDisk(OsDisk):
    """A mounted image that is copied after each step that is to survive a power cut. One operation
    at a time: nothing is written while it is copied."""

    def __init__(self, image: Path, copies: Path) -> None:
        super().__init__()
        self.steps = 0
        self._image = image
        self._copies = copies
        self._one = threading.RLock()

    def pwritev(self, handle: int, parts: Sequence[Bytes], offset: int) -> int:
        with self._one:
            return super().pwritev(handle, parts, offset)

    def preallocate(self, handle: int, length: int, *, zero: bool = True) -> None:
        with self._one:
            super().preallocate(handle, length, zero=zero)

    def truncate(self, handle: int, length: int) -> None:
        with self._one:
            super().truncate(handle, length)

    def fdatasync(self, handle: int) -> None:
        self._step(lambda: OsDisk.fdatasync(self, handle))

    def sync_directory(self, path: str) -> None:
        self._step(lambda: OsDisk.sync_directory(self, path))

    def rename(self, source: str, target: str) -> None:
        self._step(lambda: OsDisk.rename(self, source, target))

    def unlink(self, path: str) -> None:
        self._step(lambda: OsDisk.unlink(self, path))

    def _step(self, work: Callable[[], None]) -> None:
        with self._one:
            work()
            copy = self._copies / f"{self.steps}.img"
            do("cp", "--sparse=always", str(self._image), str(copy))
            self.steps += 1


@pytest.fixture
def image(tmp_path: Path) -> Iterator[Path]:
    if problem := missing_for_disks():
        pytest.skip(problem)
    path = tmp_path / "disk.img"
    path.touch()
    os.truncate(path, IMAGE_BYTES)
    do("mkfs.ext4", "-q", "-F", str(path))
    yield path
    unmount_image(path)


@pytest.mark.parametrize(
    ("work", "check"), [(work, check), (compacting, check_compacted)], ids=["queue", "compact"]
)
def test_a_power_cut_on_ext4_loses_nothing(
    work: Work, check: Check, image: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_files(monkeypatch)
    mounted, copies = tmp_path / "mounted", tmp_path / "copies"
    mounted.mkdir()
    copies.mkdir()
    do("mount", "-o", f"loop,{LATE}", str(image), str(mounted))
    disk = CutDisk(image, copies)
    told = work(str(mounted / "jobs"), disk, lambda: disk.steps)
    unmount_image(image)

    assert disk.steps > 20
    for step in range(0, disk.steps, EVERY or disk.steps // CUTS):
        cut = copies / f"{step}.img"
        do("mount", "-o", "loop", str(cut), str(mounted))
        try:
            check(str(mounted / "jobs"), OsDisk(), told, step)
        finally:
            unmount_image(cut)
        cut.unlink()
