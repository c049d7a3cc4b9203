"""Every operation on the disk fails once, in every way: what was acked is there, and nothing else.

The store is driven as a node drives it: a full disk is waited for, any other error ends the
process. A failed sync loses what it should have saved while reads still show it, as kernels do.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import pickle
import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from goqueue.wire.types import Index, Term
from log.disk.files import is_full
from log.disk.memory import MemoryDisk, ShortWrite
from log.entry import Entry
from log.errors import EntryDamaged, LogError
from log.store.directory import Store
from tests.unit.log.store.test_crash import BARE, GROUPS, Workload
from tests.unit.log.stores import (
    GROUP,
    OTHER,
    SMALL,
    Died,
    append,
    checkpoint,
    dying,
    entry,
    everything,
    flush,
    group_of,
    open_store,
)

CONFIG = replace(SMALL, wal_file_bytes=900, segment_bytes=300, reserve_bytes=1000)
ROOMY = 1 << 30
WAITS_MAX = 3
NEVER = 1 << 60
STEPS = 50
"""Operations of a recovery, about: it dies after one of them."""


class Ended(Exception):
    """The process is over: it met an error that it must not outlive."""


class Faulty(Workload):
    """A workload whose operation number `at` meets a fault."""

    def __init__(self, at: int, kind: str) -> None:
        self.at, self.kind = at, kind
        self.operations: list[str] = []
        self.waits = 0
        self.is_quiet = False
        self.disk = MemoryDisk(capacity=ROOMY)
        self.disk.fault = self.fault
        self.must = []
        self.may = {id: [[]] for id in GROUPS}
        self.store = self.opened(1)

    def fault(self, operation: str, path: str) -> OSError | None:
        if self.is_quiet:
            return None
        self.operations.append(operation)
        if len(self.operations) - 1 != self.at:
            return None
        if self.kind == "full":
            self.disk.capacity = ROOMY - self.disk.space(path)[0]
            return None
        number = errno.EIO if self.kind.endswith("eio") else errno.ENOSPC
        if self.kind.startswith("short") and operation == "pwritev":
            return ShortWrite(number, 7)
        return OSError(number, os.strerror(number), path)

    def wait(self) -> None:
        """The disk is full: others try for a while, then there is room again."""
        self.waits += 1
        if self.waits >= WAITS_MAX:
            self.disk.capacity = ROOMY
        assert self.waits < 3 * WAITS_MAX, "waits for ever"

    def opened(self, seed: int) -> Store:
        while True:
            try:
                return open_store(self.disk, CONFIG, seed=seed)
            except OSError as error:
                if not is_full(error):
                    raise Ended from error
                self.wait()  # a supervisor starts the node again

    def flush(self) -> None:
        store = self.store
        job = store.take_flush()
        if job is None:
            return
        while True:
            try:
                job.sync()
                break
            except OSError as error:
                if not is_full(error):
                    store.complete_flush(job, error)
                    raise Ended from error
                store.stall_flush(job, error)
                self.wait()
        store.complete_flush(job)
        assert store.stalled is None
        self.acked()
        self.guarded(job.spill)
        store.complete_spill(job)
        if store.failed is not None:
            raise Ended

    def checkpoint(self) -> None:
        job = self.store.take_checkpoint()
        if job is not None:
            try:
                job.run()
            except OSError as error:
                self.store.complete_checkpoint(job, error)
                raise Ended from error
            self.store.complete_checkpoint(job)
            self.flush()

    def respill(self) -> None:
        while (job := self.store.take_respill()) is not None:
            self.wait()
            job.sync()
            self.store.complete_flush(job)
            job.spill()
            self.store.complete_spill(job)

    def snapshot(self, index: int) -> None:
        try:
            self.store.partition_log(GROUP).save_snapshot(Index(index), b"state").run()
        except OSError:
            return  # it is logged; the log still has what it would have held

    def reopen(self) -> None:
        self.store.close()
        if self.store.failed is not None:
            raise Ended
        self.acked()
        self.store = self.opened(9)

    def guarded(self, work: Callable[[], object]) -> None:
        """Reads may meet a bad sector."""
        try:
            work()
        except (LogError, OSError) as error:
            raise Ended from error

    def change(self, group: object, entries: list[Entry], *, truncate: int | None = None) -> None:
        super_change = super().change
        self.quietly(lambda: super_change(group, entries, truncate=truncate))  # type: ignore[arg-type]

    def acked(self) -> None:
        super_acked = super().acked
        self.quietly(super_acked)

    def fault_is_over(self) -> None:
        """The process is gone, and the disk is sound again."""
        self.disk.process_died()
        self.disk.fault, self.disk.capacity = None, ROOMY
        self.disk.trace.clear()

    def quietly(self, work: Callable[[], object]) -> None:
        self.is_quiet = True
        try:
            work()
        finally:
            self.is_quiet = False


def run(work: Faulty) -> None:
    """What a store does in its life, in small: rolls of both kinds of files, conflicts, snapshots,
    trims, checkpoints, a restart."""
    for partition_id in GROUPS:
        group_of(work.store, partition_id)
    work.flush()
    log = work.store.partition_log(GROUP)
    for number in range(1, 9):
        work.change(GROUP, [entry(log.last_index + 1, 1)])
        if number % 2 == 0:
            work.flush()
    log.save_hard_state(Term(2), "n3")
    work.flush()
    work.change(OTHER, [entry(1, 2), entry(2, 2)])
    work.change(BARE, [entry(1, 2, records=0), entry(2, 2, records=0)])
    work.checkpoint()
    work.change(GROUP, [entry(5, 3)], truncate=5)
    work.change(BARE, [entry(2, 3, records=0)], truncate=2)
    work.flush()
    work.checkpoint()
    for index in range(6, 14):
        work.change(GROUP, [entry(index, 3, size=60)])
        work.flush()
        if index % 4 == 0:
            work.checkpoint()
            work.checkpoint()
    work.change(GROUP, [entry(13, 4, size=150)], truncate=13)
    work.flush()
    work.respill()
    work.reopen()
    work.change(OTHER, [entry(3, 5)])
    work.flush()
    work.checkpoint()
    work.change(BARE, [entry(3, 5)])
    work.snapshot(8)
    work.flush()


def judge_a_death_in_recovery(work: Faulty, step: int, what: object) -> None:
    """The next process dies while it recovers, after so many operations, and then the power goes:
    the one after that finds all that was acked."""
    disk: MemoryDisk = pickle.loads(pickle.dumps(work.disk))  # a tenth of what deepcopy takes
    disk.fault = dying(step)
    with contextlib.suppress(Died):
        open_store(disk, CONFIG, seed=76)
    disk.fault = None
    for keep in (0.0, 0.5):
        after = disk.crash(random.Random(step), keep=keep)
        work.check(open_store(after, CONFIG, seed=80), NEVER, (what, step, keep, "died, power cut"))


def judge(work: Faulty, what: object) -> None:
    """The next process finds all that was acked; so does one after a power cut, before or after,
    or after a recovery that was cut short."""
    disk = work.disk
    work.fault_is_over()
    judge_a_death_in_recovery(work, random.Random(work.at).randrange(STEPS), what)
    cut = disk.crash(random.Random(3), keep=0.0)
    work.check(open_store(cut, CONFIG, seed=77), NEVER, (what, "power cut"))
    store = open_store(disk, CONFIG, seed=78)
    work.check(store, NEVER, (what, "restart"))
    later = disk.crash(random.Random(4), keep=0.0)
    work.check(open_store(later, CONFIG, seed=79), NEVER, (what, "restart, power cut"))


@functools.cache
def operations() -> list[str]:
    """What the workload does to the disk, without a fault."""
    work = Faulty(NEVER, "none")
    run(work)
    judge(work, "no fault")
    return work.operations


@pytest.mark.parametrize("kind", ["eio", "enospc", "short eio", "short enospc", "full"])
def test_a_fault_at_any_operation_loses_nothing_acked_and_acks_nothing_lost(kind: str) -> None:
    ended = 0
    found = [
        at
        for at, operation in enumerate(operations())
        if operation == "pwritev" or not kind.startswith("short")
    ]
    assert len(found) > 50
    for at in found:
        try:
            work = Faulty(at, kind)
        except Ended:
            continue  # a directory that was never opened holds nothing
        try:
            run(work)
        except (Ended, EntryDamaged):
            ended += 1
        judge(work, (kind, at))
    print(f"{kind}: {len(found)} operations, {ended} of them ended the process")
    assert (ended > 0) == (kind != "full")


def test_a_node_is_started_again_on_a_disk_without_any_room() -> None:
    config = replace(SMALL, reserve_bytes=1000)
    disk = MemoryDisk(capacity=ROOMY)
    store = open_store(disk, config)
    log = group_of(store)
    append(log, 20)
    flush(store)
    checkpoint(store)
    checkpoint(store)
    disk.capacity = ROOMY - disk.space("/")[0]
    append(log, 3)
    flush(store)
    assert (log.durable_index, store.failed, store.stalled) == (23, None, None)

    disk.process_died()
    store = open_store(disk, config, seed=2)
    log = store.partition_log(GROUP)
    assert [entry.index for entry in everything(log)] == list(range(1, 24))
    append(log)
    flush(store)

    assert log.durable_index == 24
    assert store.failed is None


def test_a_log_that_is_checkpointed_goes_round_in_files_that_it_has() -> None:
    disk = MemoryDisk()
    store = open_store(disk, replace(SMALL, wal_file_bytes=900))
    log = group_of(store)
    allocated: list[str] = []

    def note(operation: str, path: str) -> None:
        if operation == "truncate" and "/wal/" in path:
            allocated.append(path)

    for number in range(60):
        if number == 10:
            disk.fault = note
        append(log, 2)
        flush(store)
        checkpoint(store)

    assert max(int(path[-20:-4], 16) for path in disk.paths() if path.endswith(".wal")) > 20
    assert not allocated
    after = open_store(disk.clone(), replace(SMALL, wal_file_bytes=900), seed=2)
    assert [entry.index for entry in everything(after.partition_log(GROUP))] == list(range(1, 121))
