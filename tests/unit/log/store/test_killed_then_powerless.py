"""A process is killed, or its disk fails, the next one recovers, and then the power goes."""

from __future__ import annotations

import contextlib
import copy
import random
from collections.abc import Callable

import pytest

from goqueue.wire.types import Index, Term
from log.disk.files import SyncFailed
from log.disk.memory import MemoryDisk
from log.store.directory import Store
from tests.unit.log.stores import (
    GROUP,
    Died,
    append,
    checkpoint,
    dying,
    entry,
    everything,
    flush,
    frames,
    group_of,
    open_store,
    refused,
)


@pytest.mark.parametrize("seed", range(20))
def test_segments_that_a_killed_process_removed_do_not_come_back(seed: int) -> None:
    """Their removal was in the page cache alone when the process died: whoever opens the directory
    next must sync it before it vouches for what it found."""
    disk = MemoryDisk()
    store = open_store(disk)
    log = group_of(store)
    append(log, 6, size=180)
    flush(store)
    checkpoint(store)
    assert [segment.first_index for segment in log.segments()] == [1, 3, 5]
    log.truncate_from(Index(3))
    append(log, 2, term=2)  # small enough for the first segment
    flush(store)
    before = frames(everything(log))
    disk.process_died()

    second = open_store(disk, seed=2)
    assert frames(everything(second.partition_log(log.id))) == before
    disk.process_died()
    after = disk.crash(random.Random(seed), keep=0.5)

    third = open_store(after, seed=3)
    assert third.partition_log(log.id).last_index == 4
    assert frames(everything(third.partition_log(log.id))) == before


def begun() -> tuple[MemoryDisk, Store]:
    """A log of six entries in three segments, checkpointed, with snapshots of the fourth and fifth
    entry; nothing of it is lost in a power cut."""
    disk = MemoryDisk()
    store = open_store(disk)
    log = group_of(store)
    append(log, 6, size=180)
    log.save_hard_state(Term(3), "n2")
    flush(store)
    checkpoint(store)
    for index in (4, 5):
        log.save_snapshot(Index(index), b"state").run()
    return disk, store


def append_more(store: Store) -> None:
    append(store.partition_log(GROUP), 2, term=3)


def replace_the_last(store: Store) -> None:
    store.partition_log(GROUP).truncate_from(Index(3))
    append(store.partition_log(GROUP), 2, term=3)


def trim(store: Store) -> None:
    store.partition_log(GROUP).trim_to(Index(5))
    store.take_checkpoint()
    assert store.partition_log(GROUP).first_index == 5


CHANGES = [append_more, replace_the_last, trim]
ENDS = {"killed": lambda: dying(0), "failed": lambda: refused("fdatasync")}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("end", ENDS)
def test_a_recovery_acts_on_nothing_that_a_power_cut_takes_away(
    change: Callable[[Store], None], end: str
) -> None:
    """The last block was written, and its sync failed, or never began: it is read back, and may be
    on no disk. Whoever recovers by it cuts and deletes files, and vouches for it, before it dies
    and the power goes: nothing that was acknowledged before is missed, then."""
    disk, store = begun()
    change(store)
    job = store.take_flush()
    assert job is not None
    fault = ENDS[end]()
    disk.fault = lambda name, path: fault(name, path) if name == "fdatasync" else None
    with pytest.raises((Died, SyncFailed)):
        job.sync()
    disk.process_died()

    for step in range(100):
        dead = copy.deepcopy(disk)
        dead.fault = dying(step)
        with contextlib.suppress(Died):
            open_store(dead, seed=2)
            assert step > 20
            return
        for seed in range(12):
            keep = (0.0, 0.5, 0.9)[seed % 3]
            again = open_store(dead.crash(random.Random(seed), keep=keep), seed=3)
            log = again.partition_log(GROUP)
            assert (log.damaged, log.suspect) == (None, False), (step, seed)
            assert (log.hard_state.term, log.last_index >= 4) == (3, True)
            assert frames(everything(log))[:2] == frames(
                [entry(log.first_index + n, size=180) for n in (0, 1)]
            )
    raise AssertionError("it never ends")


@pytest.mark.parametrize("operation", ["fdatasync", "pwritev"])
def test_a_log_whose_last_place_takes_nothing_any_more_goes_on_in_another_file(
    operation: str,
) -> None:
    disk, store = begun()
    append(store.partition_log(GROUP), 2, term=3)
    flush(store)
    before = frames(everything(store.partition_log(GROUP)))
    path = max(path for path in disk.paths() if path.endswith(".wal"))
    disk.process_died()

    disk.fault = lambda name, at: refused(operation, lasts=True)(name, at) if at == path else None
    second = open_store(disk, seed=2)

    assert frames(everything(second.partition_log(GROUP))) == before
    after = open_store(disk.crash(random.Random(1), keep=0.0), seed=3)
    assert frames(everything(after.partition_log(GROUP))) == before


def test_what_is_saved_without_a_log_is_synced_whole() -> None:
    """The process was killed before a checkpoint, and the log that could tell so is damaged."""
    disk = MemoryDisk()
    store = open_store(disk)
    append(group_of(store), 6, size=180)
    flush(store)
    before = frames(everything(store.partition_log(GROUP)))
    disk.process_died()
    for path in disk.paths():
        if path.endswith(".wal"):
            disk.content(path)[0] ^= 1

    open_store(disk, accept_damage=True, seed=2)

    after = open_store(disk.crash(random.Random(1), keep=0.0), seed=3)
    assert frames(everything(after.partition_log(GROUP))) == before
