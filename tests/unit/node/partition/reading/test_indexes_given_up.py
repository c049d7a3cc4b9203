"""Indexes beside segments, made by threads for look-ups whose time may be over at any moment."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from benchmarks.timeline_log import LoggedPartition
from log.config import StorageConfig
from log.disk.files import OsDisk
from log.segments.hash_file import HashFile
from log.segments.message_entry_index import MessageEntryFile
from node.partition.reading.search_hashes import PartitionHashes

SMALL = StorageConfig(watermark_percent=0, watermark_bytes=0, segment_bytes=6000)


@pytest.fixture
def partition(tmp_path: Path) -> Iterator[LoggedPartition]:
    found = LoggedPartition(OsDisk(), str(tmp_path / "data"), SMALL)
    for _ in range(20):
        found.publish(50)
        found.now_ms += 10
    found.flush()
    yield found
    found.close()


async def _cancelled_while_writing(
    work: Coroutine[Any, Any, object],
    file: type[HashFile] | type[MessageEntryFile],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Cancelled while a thread writes a block, as a look-up is whose time is over."""
    writing, go_on, written = threading.Event(), threading.Event(), threading.Event()
    really = file.append

    def slowly(*arguments: Any) -> None:
        writing.set()
        assert go_on.wait(10)
        really(*arguments)
        written.set()

    monkeypatch.setattr(file, "append", slowly)
    task = asyncio.ensure_future(work)
    await asyncio.to_thread(writing.wait, 10)
    task.cancel()
    asyncio.get_running_loop().call_later(0.05, go_on.set)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await asyncio.to_thread(written.wait, 10)
    monkeypatch.setattr(file, "append", really)


async def test_a_look_up_given_up_while_a_block_is_written_leaves_the_index_sound(
    partition: LoggedPartition, monkeypatch: pytest.MonkeyPatch
) -> None:
    message_entries = partition.message_entries
    await _cancelled_while_writing(
        message_entries.catch_up(math.inf), MessageEntryFile, monkeypatch
    )
    assert await message_entries.catch_up(math.inf)

    assert await partition.timeline(3)


async def test_a_search_given_up_while_a_block_is_written_leaves_the_hashes_sound(
    partition: LoggedPartition, monkeypatch: pytest.MonkeyPatch
) -> None:
    workers = ThreadPoolExecutor(2)
    hashes = PartitionHashes(partition.log, lambda: partition.applied_index, workers)
    working = hashes.catch_up(math.inf)
    await _cancelled_while_writing(working, HashFile, monkeypatch)

    assert await hashes.catch_up(math.inf)
    assert hashes.bookkeeping().behind_entries == 0
    workers.shutdown()
