"""A node that can't know any more what it has promised begins anew, and loses nothing by that."""

from __future__ import annotations

import errno

import pytest

from goqueue.wire.types import PartitionId, Term
from log.disk.memory import MemoryDisk
from log.errors import WalDamaged
from log.store.set_aside import SetAside
from log.wal.reader import READ_TRIES
from tests.unit.log.stores import (
    GROUP,
    OTHER,
    ROOT,
    append,
    checkpoint,
    flush,
    group_of,
    open_store,
    seal,
)


def damaged_disk() -> MemoryDisk:
    """Two groups in segments and in the write-ahead log, which has lost a block."""
    disk = MemoryDisk()
    store = open_store(disk)
    append(group_of(store), 4)
    append(group_of(store, OTHER), 2)
    group_of(store).save_hard_state(Term(3), "n1")
    flush(store)
    checkpoint(store)
    append(group_of(store), 2)
    flush(store)
    assert seal(store)
    newest = max(path for path in disk.paths() if path.endswith(".wal"))
    at = bytes(disk.content(newest)).rfind(b"6.1:")
    disk.content(newest)[at] ^= 1
    return disk.clone()


def test_everything_is_moved_aside_and_the_store_is_empty_under_another_incarnation() -> None:
    disk = damaged_disk()
    before = sum(len(disk.content(path)) for path in disk.paths() if "/LOCK" not in path)

    store = open_store(disk, set_aside=True, seed=9)

    assert store.partition_ids() == []
    assert store.set_aside.exists
    assert store.set_aside.partition_ids() == [GROUP, OTHER]
    kept = sum(len(disk.content(path)) for path in disk.paths() if "/set-aside/" in path)
    assert kept == before
    append(group_of(store))
    flush(store)
    store.close()
    again = open_store(disk, set_aside=True, seed=10)
    assert again.incarnation == store.incarnation
    assert again.partition_log(GROUP).last_index == 1
    assert again.set_aside.partition_ids() == [GROUP, OTHER]


def test_what_is_whole_again_is_removed_group_by_group_and_then_all() -> None:
    disk = damaged_disk()
    aside = open_store(disk, set_aside=True, seed=9).set_aside

    aside.remove_log(OTHER)
    assert aside.partition_ids() == [GROUP]
    aside.remove()
    assert not aside.exists
    assert [path for path in disk.paths() if "set-aside" in path] == []


def test_without_being_told_to_a_store_refuses_and_moves_nothing() -> None:
    disk = damaged_disk()
    before = disk.paths()
    with pytest.raises(WalDamaged):
        open_store(disk, seed=9)
    assert disk.paths() == before


def test_a_crash_on_the_way_never_leaves_less_than_everything_to_be_opened() -> None:
    disk = damaged_disk()
    start = len(disk.trace)
    files = {p: bytes(disk.content(p)) for p in disk.paths()}
    open_store(disk, set_aside=True, seed=9)

    moves = [at for at in range(start, len(disk.trace)) if disk.trace[at][0] == "rename"]
    for end in moves:
        found = MemoryDisk()
        for path, data in files.items():
            found.make_directories(path.rpartition("/")[0])
            handle = found.open(path, write=True, create=True)
            found.pwritev(handle, [data], 0)
            found.close(handle)
        for name, arguments in disk.trace[start:end]:
            if name == "rename" and "/set-aside/" in str(arguments[1]):
                source, target = map(str, arguments)
                found.make_directories(target.rpartition("/")[0])
                found.rename(source, target)
        store = open_store(found, set_aside=True, seed=11)
        assert store.partition_ids() == [], end
        assert SetAside(found, ROOT).partition_ids() == [GROUP, OTHER], end


@pytest.mark.parametrize(
    ("refusals", "partition_ids"), [(READ_TRIES - 1, [GROUP, OTHER]), (1 << 20, [])]
)
def test_a_medium_that_is_back_in_a_few_seconds_is_not_taken_for_a_damaged_one(
    refusals: int, partition_ids: list[PartitionId]
) -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    for partition_id in (GROUP, OTHER):
        store.create_log(partition_id)
    store.close()
    left = refusals

    def refuse(operation: str, path: str) -> OSError | None:
        nonlocal left
        if operation != "pread" or not path.startswith(f"{ROOT}/wal/") or not left:
            return None
        left -= 1
        return OSError(errno.EIO, "no answer")

    disk.fault = refuse
    store = open_store(disk, set_aside=True, seed=9)

    assert store.partition_ids() == partition_ids
    assert disk.pauses == READ_TRIES - 1
