"""Opening a data directory: recover what it holds, then start a write-ahead log of its own.

Whatever the last process left behind, afterwards all segments are synced up to the log's end, one
new write-ahead file states so, and the older ones are gone. A crash on the way changes nothing
that the next attempt reads.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from goqueue.wire.types import CLUSTER_GROUP, Lsn, PartitionId
from log.config import StorageConfig
from log.disk.descriptors import Descriptors
from log.disk.failed_sync import FailedSync
from log.disk.files import Disk, is_full
from log.disk.space import Space
from log.entry import Entry
from log.errors import Damaged, WalDamaged
from log.partition.tail import is_bare
from log.segments.chain import PartitionSegments
from log.snapshots.file import newest_creation, remove_foreign_snapshots, remove_snapshots_beyond
from log.store.set_aside import SetAside
from log.store.wal_only import whole_logs
from log.wal.format import LogMeta, WalState
from log.wal.install import UNKNOWN_END
from log.wal.recovery import Replay, replay_wal
from log.wal.tail_sync import settle
from log.wal.writer import NEW, TEMPORARY, WalWriter

LOCK = "LOCK"
WAL = "wal"
WAL_DAMAGED = "wal.damaged"
GROUPS = "groups"

_NOT_OURS = {errno.EACCES, errno.EPERM, errno.EROFS, errno.EINVAL, errno.ENOTSUP}

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Opened:
    """What the store takes over."""

    incarnation: int
    end_lsn: Lsn
    state: WalState
    writer: WalWriter
    """Its files are those found; in a store opened for writing, the one it has begun."""
    segments: dict[PartitionId, PartitionSegments] = field(default_factory=dict)
    tails: dict[PartitionId, Sequence[Entry]] = field(default_factory=dict)
    lasts: dict[PartitionId, int] = field(default_factory=dict)
    wal_only: set[PartitionId] = field(default_factory=set)
    """Of those, the logs that need no segments yet."""
    damaged: int = 0
    unclean_boot: bool = False


class Opening:
    """One attempt to open `root`."""

    def __init__(
        self,
        disk: Disk,
        root: str,
        config: StorageConfig,
        files: Descriptors,
        random_u64: Callable[[], int],
    ) -> None:
        self._disk = disk
        self._root = root
        self._wal = f"{root}/{WAL}"
        self._config = config
        self._files = files
        self._random_u64 = random_u64
        self._failed_sync = FailedSync(disk, root)

    @staticmethod
    def partition_directory(root: str, partition_id: PartitionId) -> str:
        return f"{root}/{GROUPS}/{partition_id}"

    def lock(self) -> int:
        """Creates the directory where needed, and locks it. Raises DirectoryLocked, OSError."""
        if not self._disk.list_directory(self._wal):
            self._sync_above()
        self._disk.make_directories(self._root)
        holder = f"pid {os.getpid()}, node {self._config.node or 'unnamed'}"
        return self._disk.lock(f"{self._root}/{LOCK}", holder)

    def _sync_above(self) -> None:
        """Directories that are there already are synced into those above, up to the file system's
        root: whoever made them may have died before, and a power cut would take all with them.

        Those that this user may not read, or that can't be synced, are nothing of ours.
        """
        path = os.path.abspath(self._root)
        while (parent := os.path.dirname(path)) != path:
            if self._disk.exists(path):
                try:
                    self._disk.sync_directory(parent)
                except OSError as error:
                    if error.errno not in _NOT_OURS:
                        raise
            path = parent

    def recover(self, *, read_only: bool, accept_damage: bool, set_aside: bool) -> Opened:
        """Raises WalDamaged, NewerFormat, OSError; a full disk only without a reserve."""
        if read_only:
            return self._read(self._replay())
        for directory in (WAL, GROUPS):
            self._disk.make_directories(f"{self._root}/{directory}")
        # The last process may have died after making directories, and before syncing that.
        self._disk.sync_directory(self._root)
        self._disk.sync_directory(f"{self._root}/{GROUPS}")
        try:
            return self._write(accept_damage, set_aside)
        except OSError as error:
            space = Space(self._disk, self._root, self._config)
            if not is_full(error) or not space.release():
                raise
        return self._write(accept_damage, set_aside)

    def _write(self, accept_damage: bool, set_aside: bool) -> Opened:
        self._sweep_wal()
        try:
            opened = self._read(self._settled(self._replay()))
        except WalDamaged as error:
            if set_aside:
                opened = self._begin_anew(error)
            elif accept_damage:
                _log.error("write_ahead_log_set_aside %s", error)
                opened = self._salvage()
            else:
                raise
        for partition_id, segments in opened.segments.items():
            if self._is_wal_only(opened, partition_id):
                opened.wal_only.add(partition_id)
                continue
            segments.append(opened.tails[partition_id])
            if self._disk.exists(segments.directory):
                # The last process may have removed segments and died before syncing that: a power
                # cut would bring them back, below the checkpoint that is about to be declared.
                segments.touched.add(segments.directory + "/")
            self._sync(segments)
            meta = opened.state.partitions[partition_id]
            remove_foreign_snapshots(self._disk, segments.directory, meta.created_lsn)
            if meta.suspect:
                remove_snapshots_beyond(
                    self._disk, segments.directory, meta.first_index, opened.lasts[partition_id]
                )
        for partition_id, meta in opened.state.partitions.items():
            if partition_id not in opened.wal_only:
                meta.checkpoint_index = opened.lasts[partition_id]
        opened.state.checkpoint_lsn = opened.end_lsn
        writer = opened.writer
        older = list(writer.files)
        whole = whole_logs((id.pack(), opened.tails[id]) for id in sorted(opened.wal_only))
        opened.end_lsn = writer.begin(opened.state, opened.end_lsn, whole)
        for file in older:
            writer.retire(file)
        del writer.files[: len(older)]
        self._failed_sync.forget()
        self._remove_orphans(opened)
        with suppress(OSError):  # a checkpoint tries again, once there is room
            Space(self._disk, self._root, self._config).reserve()
        return opened

    def _is_wal_only(self, opened: Opened, partition_id: PartitionId) -> bool:
        """Whether nothing but the write-ahead log is to hold it, or ever did."""
        meta, segments = opened.state.partitions[partition_id], opened.segments[partition_id]
        return (
            partition_id != CLUSTER_GROUP
            and meta.first_index == 1
            and not (meta.checkpoint_index or meta.damaged_last or meta.suspect)
            and is_bare(opened.tails[partition_id])
            and not self._disk.exists(segments.directory)
        )

    def _replay(self) -> Replay:
        replay = replay_wal(self._disk, self._wal)
        if replay.image is None and self._disk.list_directory(f"{self._root}/{GROUPS}"):
            raise WalDamaged(self._wal, 0, "there are groups, but no write-ahead log")
        return replay

    def _settled(self, replay: Replay) -> Replay:
        """Before anything is done that it says: files are cut, moved and deleted by it."""
        if replay.image is not None:
            settle(self._disk, replay.image)
        return replay

    def _read(self, replay: Replay) -> Opened:
        image = replay.image
        incarnation = image.incarnation if image else self._random_u64() or 1
        end = image.end_lsn if image else Lsn(0)
        opened = Opened(incarnation, end, replay.state, self._writer(incarnation))
        opened.writer.files = list(image.files) if image else []
        opened.unclean_boot = replay.state.begin(
            self._disk.boot_id(), sync_failed=self._failed_sync.is_noted
        )
        for partition_id, meta in replay.state.partitions.items():
            self._open_partition(opened, partition_id, meta, replay)
        return opened

    def _open_partition(
        self, opened: Opened, partition_id: PartitionId, meta: LogMeta, replay: Replay
    ) -> None:
        segments = self._segments(partition_id)
        if (install := replay.installed(partition_id)) is not None and self._files.write:
            segments.move_in(install)
        checkpoint = meta.checkpoint_index
        sound, first, last = segments.open(meta.first_index, checkpoint)
        entries, problem = replay.tail(partition_id)
        newest = entries[-1].index if entries else checkpoint
        if sound < checkpoint:
            entries, last, newest = [], max(last, newest), sound
            meta.suspect = True  # what was cut off may never have been committed, and not come back
        elif problem:
            first, last, newest = first or checkpoint + 1, UNKNOWN_END, checkpoint
        if first:
            opened.damaged += 1
            _log.error(
                "entries_damaged group=%s first=%d last=%d %s", partition_id, first, last, problem
            )
        opened.segments[partition_id] = segments
        opened.tails[partition_id] = entries
        opened.lasts[partition_id] = newest
        _judge_damage(meta, segments, newest, first, last)

    def _begin_anew(self, error: WalDamaged) -> Opened:
        """An empty directory of another incarnation; what was here is kept aside."""
        where = SetAside(self._disk, self._root).move()
        _log.error("data_set_aside where=%s %s", where, error)
        return self._read(self._replay())

    def _salvage(self) -> Opened:
        """A new incarnation of what the segments prove, without the write-ahead log."""
        aside = f"{self._root}/{WAL_DAMAGED}"
        self._disk.make_directories(aside)
        for name in self._disk.list_directory(self._wal):
            self._disk.rename(f"{self._wal}/{name}", f"{aside}/{name}")
        self._disk.sync_directory(aside)
        self._disk.sync_directory(self._wal)
        incarnation = self._random_u64() or 1
        opened = Opened(incarnation, Lsn(0), WalState(), self._writer(incarnation))
        opened.state.begin(self._disk.boot_id())
        for name in self._disk.list_directory(f"{self._root}/{GROUPS}"):
            try:
                partition_id = PartitionId.parse(name)
            except ValueError:
                continue
            segments = self._segments(partition_id)
            first, last = segments.open_verified()
            opened.state.partitions[partition_id] = LogMeta(
                first_index=first,
                checkpoint_index=last,
                damaged_first=last + 1,
                damaged_last=UNKNOWN_END,
                created_lsn=newest_creation(self._disk, segments.directory),
            )
            opened.segments[partition_id], opened.tails[partition_id] = segments, []
            opened.lasts[partition_id] = last
            opened.damaged += 1
        return opened

    def _writer(self, incarnation: int) -> WalWriter:
        return WalWriter(
            self._disk, self._wal, self._config.wal_file_bytes, incarnation, self._random_u64
        )

    def _segments(self, partition_id: PartitionId) -> PartitionSegments:
        directory = self.partition_directory(self._root, partition_id)
        return PartitionSegments(self._files, directory, partition_id, self._config)

    def _sync(self, segments: PartitionSegments) -> None:
        for path in sorted(segments.touched):
            if path.endswith("/"):
                self._disk.sync_directory(path[:-1])
                continue
            self._files.sync(path)
        segments.touched = set()

    def _sweep_wal(self) -> None:
        for name in self._disk.list_directory(self._wal):
            if name.endswith((NEW, TEMPORARY)):
                self._disk.unlink(f"{self._wal}/{name}")

    def _remove_orphans(self, opened: Opened) -> None:
        known = {str(partition_id) for partition_id in opened.state.partitions}
        for name in self._disk.list_directory(f"{self._root}/{GROUPS}"):
            if name in known:
                continue
            try:
                partition_id = PartitionId.parse(name)
            except ValueError:
                continue
            self._segments(partition_id).remove_all()


def _judge_damage(
    meta: LogMeta, segments: PartitionSegments, newest: int, first: int, last: int
) -> None:
    """Joins new damage to what was known, or finds that known damage can be read by now."""
    if first:
        known = meta.damaged_last > 0
        meta.damaged_first = min(first, meta.damaged_first) if known else first
        meta.damaged_last = max(last, meta.damaged_last)
        return
    if meta.damaged_last == UNKNOWN_END:
        return  # only a copy can tell what it should hold
    if not meta.damaged_last:
        return
    start = max(meta.first_index, meta.damaged_first)
    end = min(meta.checkpoint_index, meta.damaged_last)
    try:
        while start <= end:
            start = segments.read(start, end, 1 << 20, 1 << 20)[-1].index + 1
    except Damaged:
        return
    if meta.damaged_last <= newest:
        meta.damaged_first = meta.damaged_last = 0
    else:
        meta.damaged_first = newest + 1
