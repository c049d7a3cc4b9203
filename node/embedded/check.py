"""Everything in a data directory, read and compared with its checksums; nothing is written.

It may be in use meanwhile: what is read is what was there when the check began, and a check that a
writer has disturbed is begun anew by whoever asked for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from goqueue.wire.types import PartitionId
from log.config import StorageConfig
from log.disk.files import Disk, OsDisk
from log.disk.overlay import OverlayDisk
from log.errors import Damaged, LogError
from log.partition.log import PartitionLog
from log.segments.file_header import FILE_HEADER_BYTES
from log.segments.segment import OFFSETS_SUFFIX, TERM, TERMS_SUFFIX, Segment
from log.segments.verify import Findings
from log.snapshots.file import read_snapshot, snapshot_indexes
from log.store.directory import Store
from log.store.opening import GROUPS, WAL
from log.wal.format import BLOCK_MAGIC, FILE_ID_AT
from log.wal.reader import WalImage, read_wal


class DirectoryDamaged(LogError):
    """Bytes of a directory fail their checksums, or are missing; `damage` in its data names each
    place. Nothing was changed."""

    code = "directory_damaged"


@dataclass(frozen=True, slots=True)
class Damage:
    """One place that is not as it was written."""

    path: str
    position: int
    reason: str
    loses: str = ""
    """What can't be read because of it; empty where all of it can be made again."""
    is_tear: bool = False
    """The end of a write that a crash cut short: it was never acknowledged, and is cut off."""

    def __str__(self) -> str:
        if self.is_tear:
            return f"{self.path} is torn at byte {self.position}: {self.reason}"
        text = f"{self.path} is damaged at byte {self.position}: {self.reason}"
        return f"{text}; lost: {self.loses}" if self.loses else text


def refuse_damage(root: str, store: Store, disk: Disk) -> None:
    """Raises DirectoryDamaged where a group of the open store lacks what was acknowledged: it would
    never lead, and nobody but its user can say that what is lost may be."""
    if not any(store.partition_log(id).quarantined for id in store.partition_ids()):
        return
    found = [str(damage) for damage in damage_of(root, disk) if damage.loses]
    first = found[0] if found else f"{root} is damaged"
    more = f", and {len(found) - 1} more" if len(found) > 1 else ""
    advice = f"`goqueue-cli local verify {root}` names all, and `local repair` goes on without"
    raise DirectoryDamaged(f"{first}{more}. {advice}", path=root, damage=found)


def damage_of(root: str, disk: Disk | None = None) -> list[Damage]:
    """All damage and tears of a data directory, in order of file and place. Raises NewerFormat,
    OSError."""
    overlay = OverlayDisk(disk or OsDisk(), f"{root}/{GROUPS}")
    try:
        return sorted(_all(overlay, root), key=lambda found: (found.path, found.position))
    finally:
        overlay.close_all()


def _all(disk: OverlayDisk, root: str) -> Iterator[Damage]:
    is_wal_sound = True
    try:
        image = read_wal(disk, f"{root}/{WAL}", lambda _header: None, lambda _record: None)
        if image is not None:
            yield from _tear(image)
        store = Store.open(disk, root, StorageConfig())
    except Damaged as error:
        is_wal_sound, lost = False, "what was acknowledged last"
        yield Damage(_path(error), _position(error), _reason(error), lost)
        store = Store.open(disk, root, StorageConfig(), accept_damage=True)
    try:
        for partition_id in store.partition_ids():
            log = store.partition_log(partition_id)
            yield from _segments(log)
            if is_wal_sound:
                yield from _end(log)
            yield from _snapshots(disk, log, partition_id)
    finally:
        store.close()


def _tear(image: WalImage) -> Iterator[Damage]:
    """A block that begins where the log ends, and is not whole."""
    last = image.last
    at = last.position(image.end_lsn)
    mine = last.header.file_id.to_bytes(8, "little")
    if last.data[at + FILE_ID_AT : at + FILE_ID_AT + 8] != mine:
        return
    if last.data[at : at + len(BLOCK_MAGIC)] == BLOCK_MAGIC:
        yield Damage(last.path, at, "the last write was cut short", is_tear=True)


def _segments(log: PartitionLog) -> Iterator[Damage]:
    chain = log.disk_segments
    expected: int = log.first_index
    for segment in chain.chain:
        if segment.first_index > expected:
            entries = f"entries {expected} to {segment.first_index - 1} of {log.id}"
            yield Damage(segment.path(), 0, "the segment before it is missing", entries)
        verification = chain.verification(segment, segment.last_index, lambda _entry: None)
        try:
            while verification.step():
                pass
        finally:
            verification.close()
        yield from _found(log, segment, verification.findings)
        expected = segment.last_index + 1


def _end(log: PartitionLog) -> Iterator[Damage]:
    """Entries are lost from the log's end, which was cut off there."""
    expected = log.last_index + 1
    if log.damaged is not None and log.damaged[0] >= expected:
        entries = f"entries from {log.damaged[0]} on of {log.id}"
        where = log.disk_segments.chain
        path = where[-1].path() if where else log.disk_segments.directory
        position = where[-1].end if where else 0
        yield Damage(path, position, "the log ends before what was acknowledged", entries)


def _found(log: PartitionLog, segment: Segment, findings: Findings) -> Iterator[Damage]:
    for first, last in findings.entries:
        entries = f"entry {first}" if first == last else f"entries {first} to {last}"
        position = _claimed(log, segment, first)
        yield Damage(segment.path(), position, f"{entries} can't be read", f"{entries} of {log.id}")
    for suffix in findings.headers:
        yield Damage(segment.path(suffix), 0, "the header is damaged, or the file missing")
    if findings.terms:
        number = min(findings.terms)
        text = f"{len(findings.terms)} items disagree with the segment"
        yield Damage(segment.path(TERMS_SUFFIX), _item_at(number), text)
    if findings.offsets is not None:
        yield Damage(segment.path(OFFSETS_SUFFIX), 0, "the index disagrees with the segment")


def _claimed(log: PartitionLog, segment: Segment, index: int) -> int:
    """Where the entry stands by the term index; 0 where that does not say."""
    at = _item_at(index - segment.first_index)
    try:
        item = log.disk_segments.read_file(segment.first_index, TERMS_SUFFIX, TERM.size, at)
    except (Damaged, OSError):
        return 0
    return int(TERM.unpack(item)[0]) if len(item) == TERM.size else 0


def _item_at(number: int) -> int:
    return FILE_HEADER_BYTES + number * TERM.size


def _snapshots(disk: Disk, log: PartitionLog, partition_id: PartitionId) -> Iterator[Damage]:
    directory = log.disk_segments.directory
    damaged: list[Damaged] = []
    has_start = log.first_index == 1
    for index in snapshot_indexes(disk, directory):
        try:
            read_snapshot(disk, directory, partition_id, log.created_lsn, index)
        except Damaged as error:
            damaged.append(error)
        else:
            has_start |= index >= log.first_index - 1
    loses = "" if has_start else f"all that {partition_id} begins with"
    for found in damaged:
        yield Damage(_path(found), _position(found), _reason(found), loses)


def _path(error: Damaged) -> str:
    return str(error.data["path"])


def _position(error: Damaged) -> int:
    position = error.data["position"]
    assert isinstance(position, int)
    return position


def _reason(error: Damaged) -> str:
    return str(error.data["reason"])
