"""Files of the write-ahead log that somebody has deleted: what is left is never taken for all."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import combinations

import pytest

from goqueue.wire.types import Term
from log.disk.memory import MemoryDisk, Operation
from log.errors import WalDamaged
from log.partition.journal import HardState
from log.store.directory import Store
from log.wal.format import BLOCK_BYTES, decode_header, goes_on
from tests.unit.log.stores import (
    GROUP,
    SMALL,
    append,
    checkpoint,
    everything,
    flush,
    frames,
    group_of,
    open_store,
)

CONFIG = replace(SMALL, wal_file_bytes=700, wal_files_max=9, checkpoint_bytes=1 << 20)
KEPT = (1, 2, 3)
ENDS = ("killed", "closed")


def wal_files(disk: MemoryDisk) -> list[str]:
    return [path for path in disk.paths() if path.endswith(".wal")]


def log_of(files: int) -> tuple[MemoryDisk, Store]:
    """A store that keeps so many files, the newest of which alone has the last vote and entries."""
    disk = MemoryDisk()
    store = open_store(disk, CONFIG)
    log = group_of(store)
    log.save_hard_state(Term(1), "n1")
    while store.wal_files < files:
        append(log, 1)
        flush(store)
    log.save_hard_state(Term(9), "n3")
    append(log, 1, 9)
    flush(store)
    assert store.wal_files == files == len(wal_files(disk))
    return disk, store


def left_behind(disk: MemoryDisk, store: Store, end: str) -> MemoryDisk:
    """What the next process finds."""
    if end == "closed":
        store.close()
    return disk.clone()


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("files", KEPT)
def test_a_log_without_any_of_the_files_that_it_needs_is_damaged(files: int, end: str) -> None:
    disk, store = log_of(files)
    found = left_behind(disk, store, end)
    names = wal_files(found)

    for count in range(1, files + 1):
        for gone in combinations(names, count):
            damaged = found.clone()
            for path in gone:
                damaged.unlink(path)
            with pytest.raises(WalDamaged):
                open_store(damaged, CONFIG, seed=5)


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("files", KEPT)
def test_a_node_with_peers_that_lost_its_newest_file_has_promised_nothing(
    files: int, end: str
) -> None:
    disk, store = log_of(files)
    found = left_behind(disk, store, end)
    found.unlink(wal_files(found)[-1])

    again = open_store(found, CONFIG, set_aside=True, seed=5)

    assert again.incarnation != store.incarnation
    assert again.partition_ids() == []
    assert again.set_aside.partition_ids() == [GROUP]


@pytest.mark.parametrize("end", ENDS)
def test_a_node_that_accepts_the_loss_of_its_newest_file_is_another_voter(end: str) -> None:
    disk, store = log_of(2)
    found = left_behind(disk, store, end)
    found.unlink(wal_files(found)[-1])

    again = open_store(found, CONFIG, accept_damage=True, seed=5)

    assert again.incarnation != store.incarnation
    assert again.partition_log(GROUP).quarantined


def test_files_that_a_checkpoint_has_passed_may_be_missing() -> None:
    disk, store = log_of(3)
    checkpoint(store)
    log = store.partition_log(GROUP)
    found = disk.clone()
    names = wal_files(found)
    assert len(names) == 3, "they go with the next checkpoint"
    for path in names[:-1]:
        found.unlink(path)

    again = open_store(found, CONFIG, seed=5).partition_log(GROUP)

    assert again.hard_state == HardState(Term(9), "n3")
    assert frames(everything(again)) == frames(everything(log))


Acked = tuple[int, int, int]
"""How many operations it took, and the last entry and the term that were acknowledged then."""


def three_files() -> tuple[list[Operation], list[Acked]]:
    """All operations of a log that comes to three files, and what was acknowledged on the way."""
    disk = MemoryDisk()
    store = open_store(disk, CONFIG)
    log = group_of(store)
    flush(store)
    acked: list[Acked] = []
    while store.wal_files < 3:
        log.save_hard_state(Term(log.hard_state.term + 1), "n2")
        append(log, 1, log.hard_state.term)
        flush(store)
        acked.append((len(disk.trace), log.last_index, log.hard_state.term))
    return disk.trace, acked


def holds(store: Store, operations: int, acked: list[Acked]) -> bool:
    """Whether all is there that was acknowledged after so many operations."""
    past = [(index, term) for at, index, term in acked if at <= operations]
    if not past:
        return True
    log = store.partition_log(GROUP)
    return (log.last_index, log.hard_state.term) >= past[-1] and not log.quarantined


@pytest.mark.parametrize("cut", ["killed", "power 0.0", "power 0.5", "power 1.0"])
def test_wherever_a_process_ends_its_log_is_whole_and_without_the_newest_file_never_wrong(
    cut: str,
) -> None:
    """Between the making of a file and the note in the one before that the log goes on there, too:
    no log is refused that lost nothing, and none that lost something is taken for whole."""
    trace, acked = three_files()
    rng = random.Random(3)
    refused = 0

    for operations in range(acked[0][0], len(trace) + 1):
        disk = MemoryDisk.replay(trace[:operations])
        keep = float(cut.removeprefix("power ")) if cut != "killed" else None
        found = disk.clone() if keep is None else disk.crash(rng, keep=keep)

        assert holds(open_store(found.clone(), CONFIG, seed=2), operations, acked), operations

        if len(names := wal_files(found)) > 1:
            found.unlink(names[-1])
            try:
                left = open_store(found, CONFIG, seed=2)
            except WalDamaged as error:
                assert "the file is missing" in str(error)
                refused += 1
                continue
            assert holds(left, operations, acked), operations
    assert refused > 20


def where_it_goes_on(disk: MemoryDisk, path: str) -> int:
    """Where in a file that has a successor it says so."""
    header = decode_header(bytes(disk.content(path)), path)
    names = wal_files(disk)
    after = names[names.index(path) + 1]
    end = decode_header(bytes(disk.content(after)), after).start_lsn
    at = header.header_bytes + end - header.start_lsn
    assert goes_on(memoryview(bytes(disk.content(path))), at)
    return at


@pytest.mark.parametrize("end", ENDS)
def test_a_directory_of_an_earlier_release_has_no_notes_and_is_whole(end: str) -> None:
    disk, store = log_of(3)
    truth = frames(everything(store.partition_log(GROUP)))
    found = left_behind(disk, store, end)
    for path in wal_files(found)[:-1]:
        at = where_it_goes_on(found, path)
        found.content(path)[at : at + BLOCK_BYTES] = bytes(BLOCK_BYTES)

    log = open_store(found, CONFIG, set_aside=True, seed=5).partition_log(GROUP)

    assert log.hard_state == HardState(Term(9), "n3")
    assert (log.quarantined, log.suspect) == (False, False)
    assert frames(everything(log)) == truth


def test_a_running_node_notices_that_the_note_is_damaged_and_goes_on_in_another_file() -> None:
    disk, store = log_of(2)
    first, newest = wal_files(disk)
    disk.content(first)[where_it_goes_on(disk, first) + 8] ^= 1

    check = store.wal_check()
    assert check is not None
    with pytest.raises(WalDamaged, match="nothing says that the log goes on") as caught:
        while check.step():
            pass
    check.close()
    assert first in str(caught.value)

    store.renew_wal(first)
    for _ in range(4):
        flush(store)
        checkpoint(store)
    assert not {first, newest} & set(wal_files(disk))


def test_the_last_block_of_a_full_file_is_no_tear_either_once_it_was_synced() -> None:
    """There is room for the block that vouches for it in every file."""
    for size in range(20, 70):
        disk = MemoryDisk()
        store = open_store(disk, CONFIG)
        log = group_of(store)
        before = disk.clone()
        while store.wal_files < 2:
            before = disk.clone()
            append(log, 1, size=size)
            flush(store)
        content = before.content(wal_files(before)[-1])
        body = f"{log.last_index - 1}.1:".encode()
        content[bytes(content).rfind(body)] ^= 1

        with pytest.raises(WalDamaged, match="was synced"):
            open_store(before, CONFIG, seed=2)
