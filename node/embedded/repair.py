"""Making a damaged directory usable again, by someone who accepts what is lost.

Other replicas, where there are any, have what is damaged here; a directory has none. So an entry
that can't be read is replaced by one that says nothing: what it told the queue (an ack, a lease) is
forgotten, and in the place of its messages there are expired ones. Where a snapshot knows them as
not expired, they are empty ones, with the header `goqueue-lost`. All others stay as they are. The
damaged files are kept in `damaged/`. Nothing here is done while a process has the directory open.
"""

from __future__ import annotations

import dataclasses
import itertools
from dataclasses import dataclass
from pathlib import PurePosixPath

from delivery.entries.records import AppendBatch, encode_records
from goqueue.wire.encoding import encode_columns
from goqueue.wire.errors import Conflict
from goqueue.wire.types import CLUSTER_GROUP
from log.config import StorageConfig
from log.disk.files import Disk, OsDisk
from log.disk.overlay import OverlayDisk
from log.entry import Entry, EntryKind, make_entry
from log.partition.log import PartitionLog
from log.segments.segment import SEGMENT_SUFFIX, Segment, file_header
from log.snapshots.file import SUFFIX as SNAPSHOT_SUFFIX
from log.snapshots.file import snapshot_indexes, snapshot_name
from log.store.directory import Store
from log.store.opening import GROUPS, LOCK
from node.embedded.check import Damage, damage_of
from node.embedded.settings import embedded_config
from node.server import open_store

ASIDE = "damaged"
NEW = ".renewed"
HEADER = "goqueue-lost"
"""Of a message in the place of one that was lost: the file and byte of what is damaged."""
EXPIRES_MS = 1
"""As a span after its log time: it has expired before anybody can ask for it."""


class NotRepairable(Conflict):
    """What is damaged is needed to know what the directory holds at all."""

    code = "not_repairable"


@dataclass(frozen=True, slots=True)
class Repaired:
    """What was found and dealt with, and where the damaged files are kept; empty for nowhere."""

    damage: list[Damage]
    aside: str


def repair(root: str, *, lose: bool = False, disk: Disk | None = None) -> Repaired:
    """Cut what a crash left unfinished, and with `lose` go on without what is damaged.

    Without, nothing is changed where something would be lost: the caller asks `damage_of` first.
    Killed on the way, it can be run again. Raises `directory_locked` while a process has the
    directory open, NotRepairable, and OSError.
    """
    disk = disk or OsDisk()
    lock = disk.lock(f"{root}/{LOCK}", "goqueue-cli local repair")
    try:
        found = damage_of(root, disk)
        lossy = [damage for damage in found if damage.loses]
        if lossy and not lose:
            return Repaired(found, "")
        broken = [damage for damage in found if not damage.is_tear]
        aside = _mend(root, disk, broken) if broken else ""
    finally:
        disk.unlock(lock)
    config = embedded_config(root)
    storage = dataclasses.replace(config.storage, accept_loss=lose)
    store = open_store(dataclasses.replace(config, storage=storage), disk=disk)
    for partition_id in store.partition_ids() if lose else ():
        store.partition_log(partition_id).lift_quarantine()
    store.close()
    if store.failed is not None:
        raise store.failed
    return Repaired(found, aside)


def _mend(root: str, disk: Disk, broken: list[Damage]) -> str:
    """Writes segments anew that are damaged, or whose indexes are, and takes damaged snapshots
    away; where the old files are now. Raises NotRepairable."""
    overlay = OverlayDisk(disk, f"{root}/{GROUPS}")
    number = next(n for n in itertools.count(1) if not disk.exists(f"{root}/{ASIDE}/{n}"))
    aside = f"{root}/{ASIDE}/{number}"
    stems = {damage.path.rpartition(".")[0] for damage in broken}
    snapshots = [damage for damage in broken if damage.path.endswith(SNAPSHOT_SUFFIX)]
    try:
        store = Store.open(overlay, root, StorageConfig(), accept_damage=True)
        logs = [store.partition_log(id) for id in store.partition_ids()]
        chosen = [
            (log, segment)
            for log in logs
            for segment in log.disk_segments.chain
            if segment.path().removesuffix(SEGMENT_SUFFIX) in stems
        ]
        for damage in snapshots:
            if damage.loses:
                raise NotRepairable(f"{damage}: restore it from a copy", path=damage.path)
        for log, segment in chosen:
            _check_repairable(overlay, log, segment)
        contents = [_content(log, segment) for log, segment in chosen]
        for (log, segment), content in zip(chosen, contents, strict=True):
            _replace(disk, segment, content, f"{aside}/{log.id}")
        for path in sorted({damage.path for damage in snapshots}):
            directory = path.rpartition("/")[0]
            _keep(disk, path, f"{aside}/{directory.rpartition('/')[2]}")
            disk.unlink(path)
            disk.sync_directory(directory)
    finally:
        overlay.close_all()
    return aside if disk.exists(aside) else ""


def _check_repairable(disk: Disk, log: PartitionLog, segment: Segment) -> None:
    """Raises NotRepairable where a snapshot does not stand for what is damaged."""
    covered = max(snapshot_indexes(disk, log.disk_segments.directory), default=0)
    for first, last in _damaged_runs(log, segment):
        if last > covered and (log.id == CLUSTER_GROUP or first == 1):
            what = "topics and groups" if log.id == CLUSTER_GROUP else "the partition's beginning"
            raise NotRepairable(
                f"{segment.path()}: entries {first} to {last} tell of {what}: restore it from a"
                " copy of the directory",
                path=segment.path(),
            )


def _damaged_runs(log: PartitionLog, segment: Segment) -> list[tuple[int, int]]:
    return _sound(log, segment)[1]


def _sound(log: PartitionLog, segment: Segment) -> tuple[dict[int, Entry], list[tuple[int, int]]]:
    """The segment's sound entries, and the runs of those that are not."""
    kept: dict[int, Entry] = {}
    verification = log.disk_segments.verification(
        segment, segment.last_index, lambda entry: kept.update({entry.index: entry})
    )
    try:
        while verification.step():
            pass
    finally:
        verification.close()
    return kept, verification.findings.entries


def _content(log: PartitionLog, segment: Segment) -> bytes:
    """The segment with entries that say nothing in the place of those that can't be read."""
    kept, runs = _sound(log, segment)
    ordered = sorted(kept)
    for first, last in runs:
        before = [kept[index] for index in ordered if index < first]
        after = [kept[index] for index in ordered if index > last]
        lost = _lost_messages(before, after, is_first=segment.first_index == 1)
        neighbour = before[-1] if before else after[0] if after else None
        term = neighbour.term if neighbour is not None else 1
        time_ms = neighbour.time_ms if neighbour is not None else 0
        where = f"{PurePosixPath(segment.path()).name}:{first}"
        for index in range(first, last + 1):
            messages = lost if index == first else (0, 0)
            kept[index] = _saying_nothing(index, term, time_ms, messages, where)
    frames = b"".join(kept[index].frame for index in sorted(kept))
    header = file_header(SEGMENT_SUFFIX, segment.first_index, log.id)
    return header + frames


def _lost_messages(before: list[Entry], after: list[Entry], *, is_first: bool) -> tuple[int, int]:
    """The first offset of the messages between these entries, and how many they are."""
    known = [entry for entry in before if entry.kind == EntryKind.RECORDS and entry.record_count]
    following = [entry for entry in after if entry.kind == EntryKind.RECORDS]
    if not following or not (known or is_first):
        return 0, 0
    begin = known[-1].base_offset + known[-1].record_count if known else 0
    return begin, max(0, following[0].base_offset - begin)


def _saying_nothing(
    index: int, term: int, time_ms: int, messages: tuple[int, int], where: str
) -> Entry:
    offset, count = messages
    if not count:
        return make_entry(index=index, term=term, time_ms=time_ms, kind=EntryKind.NOOP)
    batch = encode_columns(
        [b""] * count,
        timestamps_ms=time_ms,
        headers=[((HEADER, where.encode()),)] * count,
        expires_at_ms=[EXPIRES_MS] * count,
    )
    return make_entry(
        index=index,
        term=term,
        time_ms=time_ms,
        kind=EntryKind.RECORDS,
        body=encode_records([AppendBatch(batch, count, 0)]),
        base_offset=offset,
        record_count=count,
    )


def _replace(disk: Disk, segment: Segment, content: bytes, aside: str) -> None:
    """The damaged file and its indexes are kept aside, and this takes the segment's place, synced;
    what is made of segments is made anew when the directory is opened."""
    path = segment.path()
    directory, _, name = path.rpartition("/")
    stem = name.removesuffix(SEGMENT_SUFFIX)
    snapshot = snapshot_name(segment.first_index)
    for found in disk.list_directory(directory):
        if found.startswith(f"{stem}."):
            _keep(disk, f"{directory}/{found}", aside)
    handle = disk.open(path + NEW, write=True, create=True)
    try:
        disk.truncate(handle, 0)
        disk.pwritev(handle, [content], 0)
        disk.fdatasync(handle)
    finally:
        disk.close(handle)
    for found in disk.list_directory(directory):
        if found.startswith(f"{stem}.") and found not in (name, name + NEW, snapshot):
            disk.unlink(f"{directory}/{found}")
    disk.rename(path + NEW, path)
    disk.sync_directory(directory)


def _keep(disk: Disk, path: str, aside: str) -> None:
    """A synced copy of the file."""
    disk.make_directories(aside)
    source = disk.open(path)
    target = disk.open(f"{aside}/{path.rpartition('/')[2]}", write=True, create=True)
    try:
        disk.pwritev(target, [disk.pread(source, disk.size(path), 0)], 0)
        disk.fdatasync(target)
    finally:
        disk.close(source)
        disk.close(target)
    disk.sync_directory(aside)
