"""What the tests of the log share: small settings, entries, and a store driven step by step."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable
from itertools import count

from goqueue.wire.types import Index, PartitionId, TopicId
from log.config import StorageConfig
from log.disk.files import Disk
from log.entry import Entry, EntryKind, make_entry
from log.errors import Damaged
from log.partition.log import PartitionLog
from log.store.directory import Store
from log.store.flush import FlushJob

ROOT = "/data/node"
GROUP = PartitionId(TopicId(0xABC, 1), 0)
OTHER = PartitionId(TopicId(0xABC, 1), 1)
SMALL = StorageConfig(
    node="n1",
    wal_file_bytes=2048,
    segment_bytes=600,
    segment_time_ms=1000,
    index_interval_bytes=200,
    ram_tail_bytes=0,
    checkpoint_bytes=1,
    descriptors_max=8,
    watermark_bytes=0,
    watermark_percent=0,
    reserve_bytes=0,
)


class Died(Exception):
    """The process is killed in the middle of this operation."""


def dying(operations: int) -> Callable[[str, str], OSError | None]:
    """A fault: the process dies after so many operations."""
    left = iter(range(operations))

    def fault(operation: str, path: str) -> None:
        if next(left, None) is None:
            raise Died(f"{operation} {path}")

    return fault


def refused(
    operation: str, part: str = "", *, after: int = 0, lasts: bool = False
) -> Callable[[str, str], OSError | None]:
    """A fault: after so many operations of this name on paths that hold `part`, one fails."""
    seen = count()

    def fault(name: str, path: str) -> OSError | None:
        if name != operation or part not in path:
            return None
        number = next(seen)
        if number < after or (number > after and not lasts):
            return None
        return OSError(errno.EIO, os.strerror(errno.EIO), path)

    return fault


def numbers(seed: int = 1) -> Callable[[], int]:
    """A generator of file ids that is the same in every run."""
    rng = random.Random(seed)
    return lambda: rng.getrandbits(64)


def entry(
    index: int,
    term: int = 1,
    *,
    size: int = 20,
    records: int = 1,
    time_ms: int | None = None,
    flags: int = 0,
) -> Entry:
    """An entry whose body tells its index and term; offsets count from 0 with the index."""
    body = f"{index}.{term}:".encode().ljust(size, b"x")
    return make_entry(
        index=index,
        term=term,
        time_ms=1000 + index * 10 if time_ms is None else time_ms,
        kind=EntryKind.RECORDS if records else EntryKind.NOOP,
        base_offset=(index - 1) if records else 0,
        record_count=records,
        body=body,
        flags=flags,
    )


def open_store(
    disk: Disk,
    config: StorageConfig = SMALL,
    *,
    root: str = ROOT,
    read_only: bool = False,
    accept_damage: bool = False,
    set_aside: bool = False,
    seed: int = 1,
) -> Store:
    return Store.open(
        disk,
        root,
        config,
        random_u64=numbers(seed),
        read_only=read_only,
        accept_damage=accept_damage,
        set_aside=set_aside,
    )


def group_of(store: Store, partition_id: PartitionId = GROUP) -> PartitionLog:
    return (
        store.partition_log(partition_id)
        if store.has_log(partition_id)
        else store.create_log(partition_id)
    )


def append(log: PartitionLog, count: int = 1, term: int = 1, *, size: int = 20) -> None:
    for _ in range(count):
        log.append([entry(log.last_index + 1, term, size=size)])


def write(store: Store, now_ms: int) -> FlushJob:
    """One turn of the flusher at this time: it syncs only what must be synced by then."""
    job = store.take_flush(now_ms)
    assert job is not None
    job.sync()
    store.complete_flush(job)
    return job


def flush(store: Store) -> FlushJob | None:
    """Flushes and spills what is pending."""
    job = store.take_flush()
    if job is not None:
        job.sync()
        store.complete_flush(job)
        job.spill()
        store.complete_spill(job)
    return job


def seal(store: Store) -> bool:
    job = store.take_seal(1000)
    if job is not None:
        job.sync()
        store.complete_flush(job)
    return job is not None


def checkpoint(store: Store) -> bool:
    """Takes a checkpoint and makes its record durable."""
    job = store.take_checkpoint()
    if job is not None:
        job.run()
        store.complete_checkpoint(job)
        flush(store)
    return job is not None


WHOLE = 1 << 20
"""A bite of `everything` that is larger than any log of these tests."""


def everything(log: PartitionLog, bite_bytes: int = 100) -> list[Entry]:
    """Every entry, read as a consumer does, in small bites."""
    entries: list[Entry] = []
    index = log.first_index
    while index <= log.last_index:
        entries += log.entries(index, max_bytes=bite_bytes)
        index = Index(entries[-1].index + 1)
    return entries


def frames(entries: list[Entry]) -> list[bytes]:
    return [entry.frame for entry in entries]


def repair(log: PartitionLog, copy: Entry) -> bool:
    """Puts a replica's copy of a damaged entry in place, as the healer does; whether it was the
    same entry. The quarantine ends once the whole damaged range can be read."""
    assert log.damaged is not None
    index, last = log.damaged
    if not log.disk_segments.repair((copy,)):
        return False
    try:
        while index <= last:
            index = Index(log.cold_entries(index)[-1].index + 1)
    except Damaged:
        return True
    log.lift_quarantine()
    return True
