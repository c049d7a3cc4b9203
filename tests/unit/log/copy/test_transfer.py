"""A replica copied into another store: wherever it is interrupted, the log is old or new."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from goqueue.wire.types import Index, Term
from log.copy.export import Export
from log.copy.manifest import FileKind, Manifest
from log.copy.staging import Staging
from log.disk.files import SyncFailed
from log.disk.memory import MemoryDisk
from log.errors import Damaged, EntryDamaged, EntryMissing, InstallRefused
from log.partition.log import PartitionLog
from log.segments.file_header import FILE_HEADER_BYTES
from log.segments.segment import TERM_BYTES, TERMS_SUFFIX
from log.store.directory import Store
from log.wal.install import UNKNOWN_END, Install
from tests.unit.log.stores import (
    GROUP,
    OTHER,
    ROOT,
    WHOLE,
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

DIRECTORY = f"{ROOT}/groups/{GROUP}"
STATE = b"the state after entry 60 " * 9


def source(*, count: int = 90, trimmed: int = 40, snapshot: int = 60) -> Store:
    """A store whose log was trimmed, and has a snapshot."""
    store = open_store(MemoryDisk())
    log = group_of(store)
    append(log, count, 3)
    flush(store)
    if snapshot:
        log.save_snapshot(Index(snapshot), STATE).run()
    log.trim_to(Index(trimmed + 1))
    for _ in range(3):
        checkpoint(store)
    return store


def copy(
    export: Export, staging: Staging, manifest: Manifest, *, chunk: int = 100, chunks: int = 1 << 30
) -> Install | None:
    """Copies at most so many chunks; what is to be installed once all is there."""
    for segment in manifest.segments:
        for part in segment.parts():
            at = staging.held(part)
            while at < part.size_bytes:
                if not chunks:
                    return None
                chunks -= 1
                data = export.read(part.kind, part.first, at, chunk)
                staging.write(part, at, data)
                at += len(data)
        staging.check_segment(segment)
    if manifest.snapshot_index:
        part = manifest.state_part()
        staging.write(part, 0, export.read(part.kind, part.first, 0, part.size_bytes))
        staging.check_state(manifest)
    return staging.finish(manifest)


def staging_of(disk: MemoryDisk, log: PartitionLog, id: int = 7) -> Staging:
    return Staging(disk, log.disk_segments.directory, log.id, log.created_lsn, id)


def pull(origin: Store, target: Store, disk: MemoryDisk, committed: int = 1 << 30) -> Install:
    """Copies all of it, and leaves the pin."""
    export = origin.partition_log(GROUP).export(Index(committed))
    manifest = export.open()
    staging = staging_of(disk, group_of(target))
    staging.open(manifest)
    install = copy(export, staging, manifest)
    assert install is not None
    return install


def hashes(log: PartitionLog) -> dict[int, str]:
    return {info.first_index: log.disk_segments.hash(info.first_index) for info in log.segments()}


def old_log(disk: MemoryDisk, count: int = 12) -> Store:
    store = open_store(disk)
    append(group_of(store), count, 1)
    append(group_of(store, OTHER), 3)
    flush(store)
    return store


def assert_copied(origin: Store, log: PartitionLog) -> None:
    theirs = origin.partition_log(GROUP)
    assert not log.quarantined
    assert frames(everything(log)) == frames(
        [found for found in everything(theirs) if found.index >= log.first_index]
    )
    snapshot = log.latest_snapshot()
    assert snapshot == theirs.latest_snapshot()
    mine = hashes(log)
    assert mine == {first: hash for first, hash in hashes(theirs).items() if first in mine}


@pytest.mark.parametrize("count", [0, 12])
def test_a_replica_that_is_behind_by_everything_becomes_equal_by_hash(count: int) -> None:
    origin, disk = source(), MemoryDisk()
    target = old_log(disk, count)
    log = target.partition_log(GROUP)
    log.save_hard_state(Term(4), "n2")

    log.install(pull(origin, target, disk))
    assert log.durable_index == 0  # nobody may be told before it is
    flush(target)

    assert log.spilled_index == log.last_index == log.durable_index == 90
    assert log.last_term == 3
    assert log.hard_state.term == 4
    assert_copied(origin, log)
    assert len(hashes(log)) > 1
    assert frames(everything(target.partition_log(OTHER))) == frames([entry(n) for n in (1, 2, 3)])


def test_the_log_goes_on_where_the_copy_ends_and_stays_equal_by_hash() -> None:
    origin, disk = source(), MemoryDisk()
    target = old_log(disk)
    log = target.partition_log(GROUP)
    log.install(pull(origin, target, disk, 77))
    flush(target)
    assert log.last_index == 77

    theirs = origin.partition_log(GROUP)
    append(theirs, 60, 5)
    flush(origin)
    while log.last_index < theirs.last_index:
        log.append(theirs.entries(Index(log.last_index + 1), max_count=7))
        flush(target)
    checkpoint(target)

    assert_copied(origin, log)
    target.close()
    assert_copied(origin, open_store(disk.clone(), seed=5).partition_log(GROUP))


def test_a_young_log_is_copied_without_a_state() -> None:
    origin, disk = source(trimmed=0, snapshot=0), MemoryDisk()
    target = old_log(disk, 0)

    install = pull(origin, target, disk)
    target.partition_log(GROUP).install(install)
    flush(target)

    assert (install.first_index, install.snapshot_index) == (1, 0)
    assert_copied(origin, target.partition_log(GROUP))


def test_only_what_is_committed_and_needed_is_copied() -> None:
    origin = source(trimmed=0)
    log = origin.partition_log(GROUP)
    log.trim_to(Index(55))

    manifest = log.export(Index(70)).open()

    assert manifest.last_index == 70
    assert manifest.snapshot_index == 60
    assert log.first_index == 1
    assert 1 < manifest.first_index <= 55
    assert manifest.problem() == ""
    earlier = log.export(Index(50)).open()  # the state is of a later entry: not yet committed
    assert (earlier.first_index, earlier.last_index, earlier.snapshot_index) == (1, 50, 0)
    with pytest.raises(EntryMissing):
        source(trimmed=0, snapshot=0).partition_log(GROUP).export(Index(0)).open()


def test_a_damaged_log_is_not_copied() -> None:
    log = source().partition_log(GROUP)
    log.quarantine(Index(70), Index(71), "test")

    with pytest.raises(EntryDamaged):
        log.export(Index(90))


def test_a_source_that_trims_meanwhile_keeps_what_is_being_copied() -> None:
    origin, disk = source(trimmed=0), MemoryDisk()
    target = old_log(disk)
    theirs = origin.partition_log(GROUP)
    export = theirs.export(Index(90))
    manifest = export.open()
    staging = staging_of(disk, target.partition_log(GROUP))
    staging.open(manifest)
    assert copy(export, staging, manifest, chunks=3) is None

    for index in (80, 85, 88):  # the snapshot that is being copied is pushed out, too
        theirs.save_snapshot(Index(index), b"newer").run()
    theirs.trim_to(Index(85))
    for _ in range(3):
        append(theirs)
        flush(origin)
        checkpoint(origin)
    assert theirs.first_index == 1

    install = copy(export, staging, manifest)
    export.close()
    theirs.release(export)
    theirs.release(export)
    assert install is not None
    for _ in range(3):
        append(theirs)
        flush(origin)
        checkpoint(origin)
    assert theirs.first_index > 80

    log = target.partition_log(GROUP)
    log.install(install)
    flush(target)
    assert log.latest_snapshot() == (60, STATE)
    assert log.last_index == 90
    assert not [path for path in disk.paths() if path.endswith(".incoming")]


class Installing:
    """A run in which a copy is made and installed, noting from where in the trace it must count."""

    def __init__(self, *, trimmed: int, old: int) -> None:
        self.origin = source(trimmed=trimmed)
        self.disk = MemoryDisk()
        self.store = old_log(self.disk, old)
        checkpoint(self.store)
        log = self.store.partition_log(GROUP)
        if old > 5:
            log.save_snapshot(Index(4), b"old").run()
        self.old = frames(everything(log))
        self.began = len(self.disk.trace)
        install = pull(self.origin, self.store, self.disk)
        self.staged = len(self.disk.trace)
        log.install(install)
        self.first = install.first_index
        origin = everything(self.origin.partition_log(GROUP), WHOLE)
        self.theirs = frames([one for one in origin if one.index >= self.first])
        job = self.store.take_flush()
        assert job is not None
        job.sync()
        self.store.complete_flush(job)
        self.decided = len(self.disk.trace)
        job.spill()
        self.store.complete_spill(job)
        self.moved = len(self.disk.trace)

    def go_on(self) -> None:
        """Appends behind it, cuts some of that off, and takes checkpoints."""
        log = self.store.partition_log(GROUP)
        for number in range(4):
            log.append([entry(log.last_index + 1, 6, size=150)])
            flush(self.store)
            if number == 1:
                checkpoint(self.store)
        log.truncate_from(Index(93))
        log.append([entry(93, 7)])
        flush(self.store)
        checkpoint(self.store)
        checkpoint(self.store)

    def check(self, store: Store, operations: int) -> None:
        log = store.partition_log(GROUP)
        assert not log.quarantined, operations
        found = frames(everything(log, WHOLE))
        if found == self.old:
            assert operations < self.decided, operations
            return
        assert operations > self.staged, operations
        assert found[: len(self.theirs)] == self.theirs, operations
        assert log.latest_snapshot() == (60, STATE), operations
        assert log.first_index == self.first
        assert frames(everything(store.partition_log(OTHER), WHOLE)) == frames(
            [entry(n) for n in (1, 2, 3)]
        )


@pytest.mark.parametrize("keep", [0.0, 0.5, 1.0])
@pytest.mark.parametrize(("trimmed", "old"), [(40, 12), (0, 12), (40, 0)])
def test_power_may_go_between_any_two_steps_of_an_install(
    keep: float, trimmed: int, old: int
) -> None:
    run = Installing(trimmed=trimmed, old=old)
    run.go_on()
    trace = list(run.disk.trace)
    rng = random.Random(round(keep * 10) + trimmed)

    for operations in range(run.began, len(trace) + 1):
        after = MemoryDisk.replay(trace[:operations]).crash(rng, keep=keep)
        store = open_store(after, seed=operations)
        run.check(store, operations)
        log = store.partition_log(GROUP)
        log.append([entry(log.last_index + 1, 9)])
        flush(store)
        again = open_store(after.crash(rng, keep=0.0), seed=operations + 1).partition_log(GROUP)
        assert not again.quarantined
        assert frames(everything(again, WHOLE)) == frames(everything(log, WHOLE))


@pytest.mark.parametrize("keep", [0.0, 0.5])
def test_power_may_go_again_while_an_install_is_finished_at_the_next_start(keep: float) -> None:
    run = Installing(trimmed=0, old=12)
    trace = list(run.disk.trace)
    rng = random.Random(3)

    for operations in range(run.decided, run.moved + 1, 3):
        crashed = MemoryDisk.replay(trace[:operations]).crash(rng, keep=keep)
        base = crashed.clone()
        open_store(base, seed=3)
        recovery = list(base.trace)
        for done in range(len(recovery)):
            again = crashed.clone()
            for name, arguments in recovery[:done]:
                again._do(name, *arguments)
            run.check(open_store(again.crash(rng, keep=keep), seed=4), operations)


@pytest.mark.parametrize("keep", [0.0, 0.5])
def test_power_may_go_while_an_install_is_finished_that_nobody_had_synced(keep: float) -> None:
    """Its record was written when the process was killed: files are not moved by that alone."""
    run = Installing(trimmed=0, old=12)
    trace = list(run.disk.trace)
    rng = random.Random(5)
    deaths = 0

    for operations in range(run.staged + 1, run.decided):
        for step in range(200):
            dead = MemoryDisk.replay(trace[:operations])
            dead.fault = dying(step)
            try:
                open_store(dead, seed=3)
                break
            except Died:
                deaths += 1
                run.check(open_store(dead.crash(rng, keep=keep), seed=4), operations)
    assert deaths > 50


def test_a_process_killed_between_any_two_steps_of_an_install_finds_the_old_or_the_new() -> None:
    run = Installing(trimmed=40, old=12)
    run.go_on()
    trace = list(run.disk.trace)

    for operations in range(run.began, len(trace) + 1):
        found = MemoryDisk.replay(trace[:operations]).clone()
        run.check(open_store(found, seed=operations), operations)


def test_a_checkpoint_that_was_out_during_an_install_changes_nothing_of_it() -> None:
    origin, disk = source(), MemoryDisk()
    target = old_log(disk)
    log = target.partition_log(GROUP)
    install = pull(origin, target, disk)
    job = target.take_checkpoint()
    assert job is not None

    log.install(install)
    flush(target)
    job.run()
    target.complete_checkpoint(job)
    flush(target)

    for after in (disk.clone(), disk.crash(random.Random(2), keep=0.0)):
        assert_copied(origin, open_store(after, seed=8).partition_log(GROUP))
    checkpoint(target)
    assert_copied(
        origin, open_store(disk.crash(random.Random(2), keep=0.0), seed=8).partition_log(GROUP)
    )


def test_files_that_wait_to_be_dropped_are_not_dropped_from_the_copy() -> None:
    origin, disk = source(trimmed=0), MemoryDisk()
    target = open_store(disk)
    log = group_of(target)
    append(log, 40)
    flush(target)
    checkpoint(target)
    log.save_snapshot(Index(30), b"old").run()
    log.trim_to(Index(30))
    append(log)
    flush(target)
    checkpoint(target)  # the log's new start is recorded: what is below goes with the next one
    append(log)
    flush(target)
    first = log.first_index
    assert first > 1
    assert disk.exists(f"{DIRECTORY}/{1:016x}.segment")
    log.quarantine(Index(35), Index(35), "test")

    log.install(replace(pull(origin, target, disk), last_term=Term(3)))
    flush(target)
    for _ in range(3):
        checkpoint(target)

    assert log.first_index == 1
    assert_copied(origin, log)


def test_an_install_waits_for_a_checkpoint_that_drops_files_of_the_group() -> None:
    origin, disk = source(), MemoryDisk()
    target = open_store(disk)
    log = group_of(target)
    append(log, 40)
    flush(target)
    checkpoint(target)
    log.save_snapshot(Index(30), b"old").run()
    log.trim_to(Index(30))
    append(log)
    flush(target)
    checkpoint(target)
    append(log)
    flush(target)
    job = target.take_checkpoint()
    assert job is not None
    assert job.dropped_segments
    install = pull(origin, target, disk)
    before = frames(everything(log))

    with pytest.raises(InstallRefused):
        log.install(install)
    assert frames(everything(log)) == before

    job.run()
    target.complete_checkpoint(job)
    log.install(install)
    flush(target)
    assert_copied(origin, log)


def test_entries_that_differ_from_a_committed_one_go_and_those_after_them() -> None:
    origin, disk = source(), MemoryDisk()
    target = old_log(disk, 95)  # of term 1, where the copy's last entry is of term 3

    target.partition_log(GROUP).install(pull(origin, target, disk))
    flush(target)

    assert_copied(origin, target.partition_log(GROUP))


def test_a_log_that_holds_the_copys_last_entry_is_left_alone() -> None:
    origin, disk = source(), MemoryDisk()
    target = open_store(disk)
    append(group_of(target), 92, 3)
    flush(target)

    with pytest.raises(InstallRefused):
        target.partition_log(GROUP).install(pull(origin, target, disk))

    assert target.partition_log(GROUP).last_index == 92


def test_what_was_acknowledged_beyond_the_copy_stays_in_a_damaged_log() -> None:
    origin, disk = source(), MemoryDisk()
    target = open_store(disk)
    log = group_of(target)
    append(log, 94, 3)
    flush(target)
    log.quarantine(Index(50), Index(51), "test")

    log.install(pull(origin, target, disk))
    flush(target)

    assert not log.quarantined
    assert log.last_index == 94
    for store in (target, open_store(disk.crash(random.Random(1), keep=0.0), seed=2)):
        assert frames(everything(store.partition_log(GROUP)))[-4:] == frames(
            [entry(n, 3) for n in range(91, 95)]
        )


def damage_term(store: Store, disk: MemoryDisk, index: int) -> None:
    """Zeroes an entry's term in the term index."""
    segments = store.partition_log(GROUP).disk_segments.chain
    segment = next(one for one in segments if one.first_index <= index <= one.last_index)
    end = FILE_HEADER_BYTES + (index - segment.first_index + 1) * TERM_BYTES
    disk.content(segment.path(TERMS_SUFFIX))[end - 8 : end] = bytes(8)


def damage_entry(disk: MemoryDisk, index: int, term: int) -> None:
    """Flips a bit of an entry in its segment."""
    body = f"{index}.{term}:".encode()
    path = next(p for p in disk.paths() if p.endswith(".segment") and body in disk.content(p))
    content = disk.content(path)
    content[bytes(content).find(body)] ^= 1


def damaged_replica(disk: MemoryDisk, *, last: int = 94, term: int = 3) -> Store:
    """Quarantined, and all in segments; the copy, which it lacks, is of term 3."""
    target = open_store(disk)
    log = group_of(target)
    append(log, last, term)
    flush(target)
    log.evict(0)
    log.quarantine(Index(50), Index(51), "test")
    return target


@pytest.mark.parametrize("unreadable", [(), (90,)])
def test_what_was_acknowledged_beyond_the_copy_outlives_a_damaged_term_index(
    unreadable: tuple[int, ...],
) -> None:
    """Else the copy's last entry were taken for another one, and those behind it for such as never
    were committed: the replica would vote without what it has acknowledged."""
    origin, disk = source(), MemoryDisk()
    target = damaged_replica(disk)
    log = group_of(target)
    install = pull(origin, target, disk)
    damage_term(target, disk, 90)
    for index in unreadable:
        damage_entry(disk, index, 3)

    log.install(install)
    flush(target)

    assert not log.quarantined
    assert not log.suspect
    assert log.last_index == 94
    assert [log.entry(Index(n)) for n in range(90, 95)] == [entry(n, 3) for n in range(90, 95)]


def test_where_nobody_can_tell_what_went_with_a_copy_the_log_is_suspect() -> None:
    origin, disk = source(), MemoryDisk()
    target = damaged_replica(disk)
    log = group_of(target)
    install = pull(origin, target, disk)
    damage_term(target, disk, 90)
    damage_entry(disk, 90, 3)
    damage_entry(disk, 91, 3)

    log.install(install)
    flush(target)

    assert (log.last_index, log.suspect, log.damaged) == (90, True, (91, 91))
    after = open_store(disk.crash(random.Random(1), keep=0.0), seed=2).partition_log(GROUP)
    assert (after.last_index, after.suspect) == (90, True)
    log.clear_suspect()
    assert (log.suspect, log.quarantined) == (False, False)


@pytest.mark.parametrize("last", [90, 94])
def test_damaged_entries_that_never_were_committed_do_not_keep_a_copy_from_its_place(
    last: int,
) -> None:
    """By seed 5883 of the simulation: the copy was refused for as long as nobody published."""
    origin, disk = source(), MemoryDisk()
    target = damaged_replica(disk, last=last, term=2)
    log = group_of(target)
    damage_entry(disk, 90, 2)

    log.install(pull(origin, target, disk))
    flush(target)

    assert (log.last_index, log.suspect, log.quarantined) == (90, False, False)
    assert_copied(origin, log)


def test_a_source_tells_the_terms_of_entries_not_what_a_damaged_index_has() -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    append(group_of(store), 90, 3)
    flush(store)
    group_of(store).save_snapshot(Index(60), STATE).run()
    group_of(store).trim_to(Index(61))
    group_of(store).evict(0)
    manifest = group_of(store).export(Index(90)).open()
    assert manifest.first_index > 1
    damage_term(store, disk, 90)
    damage_term(store, disk, manifest.first_index - 1)

    assert group_of(store).export(Index(90)).open() == manifest
    assert (manifest.base_term, manifest.last_term) == (3, 3)


def test_a_log_cut_at_damage_stays_quarantined_until_all_it_acknowledged_is_back() -> None:
    origin, disk = source(), MemoryDisk()
    target = old_log(disk, 12)
    log = target.partition_log(GROUP)
    log.quarantine(Index(13), Index(99), "the end is damaged")

    log.install(pull(origin, target, disk))
    flush(target)

    assert log.damaged == (91, 99)
    reopened = open_store(disk.crash(random.Random(1), keep=0.0), seed=2)
    assert reopened.partition_log(GROUP).damaged == (91, 99)
    for store in (target, reopened):
        again = store.partition_log(GROUP)
        append(again, 8, 3)
        assert again.quarantined
        append(again, 1, 3)
        assert not again.quarantined


def test_a_log_of_which_nobody_knows_how_much_is_lost_is_suspect_behind_the_copy() -> None:
    origin, disk = source(), MemoryDisk()
    target = old_log(disk, 12)
    log = target.partition_log(GROUP)
    log.quarantine(Index(13), Index(UNKNOWN_END), "the write-ahead log was set aside")

    log.install(pull(origin, target, disk))
    flush(target)

    for store in (target, open_store(disk.crash(random.Random(1), keep=0.0), seed=2)):
        found = store.partition_log(GROUP)
        assert not found.quarantined
        assert found.suspect
        assert found.last_index == 90


def bits(data: bytes) -> Iterator[bytes]:
    for at in (0, 5, len(data) // 2, len(data) - 1):
        yield data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :]


@pytest.mark.parametrize("kind", [FileKind.SEGMENT, FileKind.TERMS])
def test_a_flipped_bit_in_a_copied_file_is_found_and_the_file_is_copied_anew(
    kind: FileKind,
) -> None:
    origin, disk = source(), MemoryDisk()
    target = old_log(disk)
    export = origin.partition_log(GROUP).export(Index(90))
    manifest = export.open()
    staging = staging_of(disk, target.partition_log(GROUP))
    staging.open(manifest)
    for segment in manifest.segments[:3]:
        [spoilt] = [part for part in segment.parts() if part.kind == kind]
        whole = export.read(kind, spoilt.first, 0, spoilt.size_bytes)
        for data in bits(whole):
            for part in segment.parts():
                good = export.read(part.kind, part.first, 0, part.size_bytes)
                staging.write(part, 0, data if part.kind == kind else good)
            with pytest.raises(Damaged):
                staging.check_segment(segment)
            assert all(staging.held(part) == 0 for part in segment.parts())

    install = copy(export, staging, manifest)
    assert install is not None
    target.partition_log(GROUP).install(install)
    flush(target)
    assert_copied(origin, target.partition_log(GROUP))


def test_a_damaged_state_is_not_believed() -> None:
    origin, disk = source(), MemoryDisk()
    target = old_log(disk)
    export = origin.partition_log(GROUP).export(Index(90))
    manifest = export.open()
    staging = staging_of(disk, target.partition_log(GROUP))
    staging.open(manifest)
    part = manifest.state_part()

    for data in (*bits(STATE), STATE[:-1], STATE + b"x", b""):
        staging.write(part, 0, data)
        with pytest.raises(Damaged):
            staging.check_state(manifest)
        assert staging.held(part) == 0


def test_a_copy_goes_on_where_it_was_interrupted_and_nothing_torn_is_kept() -> None:
    origin = source()
    theirs = origin.partition_log(GROUP)
    export = theirs.export(Index(90))
    manifest = export.open()
    chunks = sum(-(-part.size_bytes // 100) for part in manifest.parts())
    rng = random.Random(4)

    for done in range(0, chunks, 5):
        disk = MemoryDisk()
        target = old_log(disk)
        staging = staging_of(disk, target.partition_log(GROUP), 7)
        staging.open(manifest)
        assert copy(export, staging, manifest, chunks=done) is None or done >= chunks - 5

        after = disk.crash(rng)
        reopened = open_store(after, seed=2)
        again = staging_of(after, reopened.partition_log(GROUP), 8)
        again.open(manifest)
        try:
            install = copy(export, again, manifest)
        except Damaged:  # a torn file is given up, and comes whole the next time
            install = copy(export, again, manifest)
        assert install is not None
        reopened.partition_log(GROUP).install(install)
        flush(reopened)
        assert_copied(origin, reopened.partition_log(GROUP))


def test_a_copied_file_whose_sync_failed_is_not_taken_for_copied() -> None:
    """What is read of it may be in memory alone, and another sync would prove nothing."""
    for number in range(100):
        origin, disk = source(), MemoryDisk()
        target = old_log(disk)
        log = target.partition_log(GROUP)
        manifest = (export := origin.partition_log(GROUP).export(Index(90))).open()
        staging = staging_of(disk, log)
        staging.open(manifest)
        disk.fault = refused("fdatasync", ".incoming", after=number)
        try:
            copy(export, staging, manifest)
        except SyncFailed:
            disk.fault = None
        else:
            assert number > 5
            return

        again = staging_of(disk, log, 99)
        again.open(manifest)
        install = copy(export, again, manifest)
        assert install is not None
        log.install(install)
        flush(target)
        checkpoint(target)
        after = open_store(disk.crash(random.Random(number), keep=0.0), seed=2)
        assert_copied(origin, after.partition_log(GROUP))
    raise AssertionError("it always fails")


def test_whole_segments_of_an_interrupted_copy_are_not_copied_again_also_from_another_node() -> (
    None
):
    first, second, disk = source(), source(trimmed=20), MemoryDisk()
    target = old_log(disk)
    manifest = (export := first.partition_log(GROUP).export(Index(80))).open()
    staging = staging_of(disk, target.partition_log(GROUP))
    staging.open(manifest)
    copy(export, staging, manifest)

    other = second.partition_log(GROUP).export(Index(90)).open()
    again = staging_of(disk, target.partition_log(GROUP), 99)
    again.open(other)

    sealed = [segment for segment in other.segments if segment in manifest.segments]
    assert len(sealed) >= 2
    for segment in sealed:
        held = {part.kind: again.held(part) for part in segment.parts()}
        assert held[FileKind.SEGMENT] == segment.segment_bytes
        again.check_segment(segment)


def test_leftovers_of_a_copy_are_never_taken_for_the_log() -> None:
    origin, disk = source(), MemoryDisk()
    target = old_log(disk)
    before = frames(everything(target.partition_log(GROUP)))
    pull(origin, target, disk)
    target.close()

    reopened = open_store(disk.clone(), seed=4)
    log = reopened.partition_log(GROUP)
    assert frames(everything(log)) == before
    assert log.latest_snapshot() is None
    assert staging_of(disk, log).remove() > 3
    assert not [path for path in disk.paths() if path.endswith(".incoming")]
    assert frames(everything(log)) == before


def test_a_second_copy_begun_after_an_install_is_not_taken_for_the_first() -> None:
    origin, disk = source(), MemoryDisk()
    target = old_log(disk)
    log = target.partition_log(GROUP)
    log.install(pull(origin, target, disk))
    flush(target)
    export = origin.partition_log(GROUP).export(Index(90))
    manifest = export.open()
    second = staging_of(disk, log, 8)
    second.open(manifest)
    copy(export, second, manifest, chunks=4)

    for after in (disk.clone(), disk.crash(random.Random(6)), disk.crash(random.Random(7))):
        assert_copied(origin, open_store(after, seed=3).partition_log(GROUP))


def test_a_list_that_describes_no_replica_is_refused() -> None:
    manifest = source().partition_log(GROUP).export(Index(90)).open()
    assert not manifest.problem()
    assert replace(manifest, segments=()).problem()
    assert replace(manifest, segments=manifest.segments[1:]).problem()
    assert replace(manifest, last_index=Index(91)).problem()
    assert replace(manifest, snapshot_index=91).problem()
    assert replace(manifest, snapshot_index=manifest.first_index - 2).problem()
    assert replace(manifest, state_bytes=-1).problem()
    short = replace(manifest.segments[0], segment_bytes=48)
    assert replace(manifest, segments=(short, *manifest.segments[1:])).problem()


def test_an_install_is_the_same_after_packing() -> None:
    install = Install(1 << 63, Index(41), 3, Index(90), Term(3), 60, (41, 60, 81))

    assert Install.unpack(install.pack()) == install
    assert Install.unpack(memoryview(install.pack())) == install
