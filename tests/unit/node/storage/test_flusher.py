"""The threads that wait for the disk: group commit, seals, checkpoints, the first failed sync."""

from __future__ import annotations

import asyncio
import errno
import random
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import pytest

from goqueue.wire.types import PartitionId, TopicId
from log.config import StorageConfig
from log.disk.memory import MemoryDisk
from log.entry import Entry, EntryKind, make_entry
from log.errors import WalDamaged
from log.partition.log import PartitionLog
from log.store.directory import Store
from node.metrics import Metrics
from node.storage.flusher import Flusher

GROUP = PartitionId(TopicId(1, 1), 0)


def entry(index: int, body: bytes = b"x") -> Entry:
    return make_entry(index=index, term=1, time_ms=index, kind=EntryKind.COMMAND, body=body)


async def eventually(condition: Callable[[], bool], deadline_s: float = 30.0) -> None:
    async with asyncio.timeout(deadline_s):
        while not condition():  # noqa: ASYNC110 - any condition: there is no event to wait for
            await asyncio.sleep(0.002)


@asynccontextmanager
async def flushing(
    disk: MemoryDisk,
    *,
    relaxed: bool = False,
    on_loop: bool = False,
    checkpoint_interval_s: float = 60.0,
    config: StorageConfig | None = None,
) -> AsyncIterator[tuple[Store, PartitionLog, list[Exception]]]:
    store = Store.open(disk, "/data", config or StorageConfig())
    log = store.create_log(GROUP)
    log.relaxed = relaxed
    failures: list[Exception] = []
    flusher = Flusher(
        store,
        Metrics(),
        checkpoint_interval_s=checkpoint_interval_s,
        on_failure=failures.append,
        on_loop=on_loop,
    )
    await flusher.start()
    try:
        yield store, log, failures
    finally:
        await flusher.stop()
        store.close()


async def test_what_a_turn_appends_shares_one_sync() -> None:
    disk = MemoryDisk()
    async with flushing(disk, config=StorageConfig(seal_after_ms=1 << 30)) as (store, log, _):
        await eventually(lambda: store.durable_lsn > 0)
        before = disk.syncs

        for index in range(1, 51):
            log.append([entry(index)])
        await eventually(lambda: log.durable_index == 50)

        assert disk.syncs - before == 1


@pytest.mark.parametrize("relaxed", [False, True])
async def test_a_pause_costs_one_more_sync_and_then_damage_is_no_tear_even_without_power(
    relaxed: bool,
) -> None:
    disk = MemoryDisk()
    config = StorageConfig(seal_after_ms=1)
    async with flushing(disk, relaxed=relaxed, config=config) as (store, log, _):
        log.append([entry(1, b"the last block")])
        await eventually(lambda: store.durable_lsn == store._sealed_lsn > log.created_lsn)
        sealed = disk.syncs
        await asyncio.sleep(0.02)
        assert disk.syncs == sealed, "no sync where nothing was written"

        after = disk.crash(random.Random(1), keep=0.0)

    newest = max(path for path in after.paths() if path.endswith(".wal"))
    content = after.content(newest)
    content[bytes(content).rfind(b"the last block")] ^= 1
    with pytest.raises(WalDamaged, match="was synced"):
        Store.open(after, "/data", config)


async def test_appends_made_during_a_sync_follow_in_the_next_one() -> None:
    disk = MemoryDisk()
    async with flushing(disk) as (_, log, _failures):
        log.append([entry(1)])
        await asyncio.sleep(0)
        log.append([entry(2)])

        await eventually(lambda: log.durable_index == 2)


async def test_a_block_that_makes_many_files_holds_up_no_later_sync(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun, over = threading.Event(), threading.Event()
    async with flushing(MemoryDisk()) as (_, log, failures):
        append = log.disk_segments.append

        def slow(entries: Sequence[Entry]) -> None:
            begun.set()
            assert over.wait(30.0)
            append(entries)

        monkeypatch.setattr(log.disk_segments, "append", slow)
        log.append([entry(1)])
        await eventually(begun.is_set)

        log.append([entry(2)])
        await eventually(lambda: log.durable_index == 2)
        assert log.spilled_index == 0
        over.set()
        await eventually(lambda: log.spilled_index == 2)
        assert failures == []


async def test_everything_appended_before_stop_is_there_after_a_restart() -> None:
    disk = MemoryDisk()
    async with flushing(disk) as (_, log, _failures):
        log.append([entry(1), entry(2)])

    store = Store.open(disk, "/data", StorageConfig())
    assert store.partition_log(GROUP).last_index == 2
    store.close()


async def test_the_first_failed_sync_fails_the_node_and_acks_nothing() -> None:
    disk = MemoryDisk()
    async with flushing(disk) as (store, log, failures):
        log.append([entry(1)])
        await eventually(lambda: log.durable_index == 1)
        disk.fault = lambda operation, _path: (
            OSError(errno.EIO, "no") if operation in ("fdatasync", "sync") else None
        )

        log.append([entry(2)])
        await eventually(lambda: bool(failures))
        disk.fault = None  # a retry would succeed, and would lie

        assert isinstance(store.failed, OSError)
        assert log.durable_index == 1
        await asyncio.sleep(0.01)
        assert log.durable_index == 1
        assert len(failures) == 1


async def test_a_pause_seals_the_last_block() -> None:
    disk = MemoryDisk()
    async with flushing(disk) as (store, log, _):
        log.append([entry(1)])
        await eventually(lambda: log.durable_index == 1)
        end = store.written_lsn

        await eventually(lambda: store.written_lsn > end)


async def test_relaxed_appends_are_acked_unsynced_and_synced_soon() -> None:
    disk = MemoryDisk()
    async with flushing(disk, relaxed=True) as (store, log, _):
        await eventually(lambda: store.durable_lsn > 0)
        before = store.durable_lsn

        log.append([entry(1)])
        await eventually(lambda: log.durable_index == 1)

        assert store.durable_lsn == before
        await eventually(lambda: store.durable_lsn > before)


async def test_checkpoints_run_by_themselves_and_let_write_ahead_files_go() -> None:
    disk = MemoryDisk()
    config = StorageConfig(wal_file_bytes=64 << 10)
    async with flushing(disk, config=config, checkpoint_interval_s=0.02) as (store, log, _):
        for index in range(1, 60):
            log.append([entry(index, b"y" * 8000)])
            await eventually(lambda: log.durable_index == log.last_index)

        assert store.durable_lsn > 6 * config.wal_file_bytes
        await eventually(lambda: store.wal_files <= 2)


async def test_any_fault_of_the_writer_thread_ends_the_node(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = MemoryDisk()
    async with flushing(disk) as (_, log, failures):
        log.append([entry(1)])
        await eventually(lambda: log.durable_index == 1)

        def broken(_entries: object) -> None:
            raise AssertionError("segments and log disagree")

        monkeypatch.setattr(log.disk_segments, "append", broken)
        log.append([entry(2)])
        await eventually(lambda: len(failures) == 1)


async def test_a_spill_that_met_a_full_disk_is_tried_again_while_nothing_is_appended() -> None:
    disk = MemoryDisk()
    config = StorageConfig(reserve_bytes=0)
    async with flushing(disk, checkpoint_interval_s=0.02, config=config) as (_, log, failures):
        met: list[str] = []

        def no_room(_operation: str, path: str) -> OSError | None:
            if "/groups/" not in path:
                return None
            met.append(path)
            return OSError(errno.ENOSPC, "no space left on device")

        disk.fault = no_room
        log.append([entry(1)])
        await eventually(lambda: log.durable_index == 1)
        await eventually(lambda: bool(met))
        assert log.spilled_index == 0

        disk.fault = None
        await eventually(lambda: log.spilled_index == 1)
        assert failures == []


async def test_the_loop_itself_syncs_where_it_keeps_nobody_waiting() -> None:
    disk, threads = MemoryDisk(), set[str]()

    def note(operation: str, path: str) -> None:
        if operation in ("pwritev", "fdatasync"):
            threads.add(threading.current_thread().name)

    async with flushing(disk, on_loop=True) as (_, log, failures):
        disk.fault = note
        for index in range(1, 4):
            log.append([entry(index)])
            await eventually(lambda index=index: log.spilled_index == index)  # type: ignore[misc]
            assert log.durable_index == index

    assert threads == {threading.current_thread().name}
    assert failures == []


async def test_what_the_loop_writes_is_appended_to_segments_together_and_at_the_latest_by_a_stop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("node.storage.flusher.SPILL_S", 3600.0)
    disk, written = MemoryDisk(), Counter[str]()

    def note(operation: str, path: str) -> None:
        if operation == "pwritev":
            written["wal" if "/wal/" in path else path.rpartition(".")[2]] += 1

    async with flushing(disk, on_loop=True) as (_, log, failures):
        disk.fault = note
        for index in range(1, 11):
            log.append([entry(index)])
            await eventually(lambda index=index: log.durable_index == index)  # type: ignore[misc]
        assert (written["wal"] >= 10, written["segment"], log.spilled_index) == (True, 0, 0)

    assert (written["segment"], log.spilled_index) == (2, 10)  # a header, and all of them
    assert failures == []


async def test_what_waits_for_segments_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("node.storage.flusher.SPILL_S", 3600.0)
    monkeypatch.setattr("node.storage.flusher.SPILL_BYTES", 10_000)
    async with flushing(MemoryDisk(), on_loop=True) as (_, log, _):
        log.append([entry(1, bytes(6000))])
        await eventually(lambda: log.durable_index == 1)
        assert log.spilled_index == 0

        log.append([entry(2, bytes(6000))])
        await eventually(lambda: log.durable_index == 2)

        assert log.spilled_index == 2


async def test_what_a_full_disk_refuses_the_loop_waits_with_the_writer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("node.storage.flusher.RETRY_S", 0.01)
    disk = MemoryDisk()
    async with flushing(disk, on_loop=True) as (store, log, failures):
        await eventually(lambda: store.durable_lsn > 0)
        disk.fault = lambda operation, path: (
            OSError(errno.ENOSPC, "no space left on device") if "/wal" in path else None
        )
        log.append([entry(1)])
        await eventually(lambda: store.stalled is not None)
        assert log.durable_index == 0

        disk.fault = None
        await eventually(lambda: log.durable_index == 1 == log.spilled_index)
        log.append([entry(2)])
        await eventually(lambda: log.durable_index == 2 == log.spilled_index)
        assert failures == []
