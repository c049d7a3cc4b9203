"""Data that this directory can no longer answer for, moved aside until it is not needed.

A node whose write-ahead log lost what was acknowledged does not know what it has promised: which
terms it voted in, which entries it acknowledged. Among others it begins anew, empty and under
another incarnation, and copies everything from them. What it held stays here meanwhile: where the
others turn out to be worse off, people can still go back to it.
"""

from __future__ import annotations

from contextlib import suppress

from goqueue.wire.types import PartitionId
from log.disk.files import Disk

SET_ASIDE = "set-aside"


class SetAside:
    """What lies in one data directory's `set-aside`; any thread, all raise OSError."""

    def __init__(self, disk: Disk, root: str) -> None:
        self._disk = disk
        self._root = root
        self._path = f"{root}/{SET_ASIDE}"

    @property
    def exists(self) -> bool:
        return self._disk.exists(self._path)

    def move(self) -> str:
        """Moves the write-ahead log and all groups; the directory in which they are now.

        The log first, oldest file first: whatever is left after a crash on the way is damaged, too.
        """
        number = len(self._disk.list_directory(self._path)) + 1
        target = f"{self._path}/{number}"
        self._move(f"{self._root}/wal", f"{target}/wal")
        self._disk.make_directories(f"{target}/groups")
        groups = f"{self._root}/groups"
        for name in self._disk.list_directory(groups):
            self._move(f"{groups}/{name}", f"{target}/groups/{name}")
            self._disk.remove_directory(f"{groups}/{name}")
        self._disk.sync_directory(groups)
        return target

    def partition_ids(self) -> list[PartitionId]:
        """Whose data are there, sorted."""
        found: set[PartitionId] = set()
        for path in self._moves():
            for name in self._disk.list_directory(f"{path}/groups"):
                with suppress(ValueError):
                    found.add(PartitionId.parse(name))
        return sorted(found)

    def remove_log(self, partition_id: PartitionId) -> None:
        """Deletes what is left of a group that is whole again, or was deleted everywhere."""
        for path in self._moves():
            self._remove(f"{path}/groups/{partition_id}")

    def remove(self) -> None:
        """Deletes everything."""
        for path in self._moves():
            groups = f"{path}/groups"
            for name in self._disk.list_directory(groups):
                self._remove(f"{groups}/{name}")
            for directory in (groups, f"{path}/wal"):
                self._remove(directory)
            self._disk.remove_directory(path)
        self._disk.remove_directory(self._path)
        self._disk.sync_directory(self._root)

    # -- private

    def _moves(self) -> list[str]:
        return [f"{self._path}/{name}" for name in self._disk.list_directory(self._path)]

    def _move(self, source: str, target: str) -> None:
        """Moves the files of a directory; the directory itself stays."""
        self._disk.make_directories(target)
        for name in self._disk.list_directory(source):
            self._disk.rename(f"{source}/{name}", f"{target}/{name}")
        self._disk.sync_directory(target)
        self._disk.sync_directory(source)

    def _remove(self, path: str) -> None:
        """Deletes a directory of files, if it is there."""
        if not self._disk.exists(path):
            return
        for name in self._disk.list_directory(path):
            self._disk.unlink(f"{path}/{name}")
        self._disk.remove_directory(path)
