"""Damaged entries come back from any replica that has them, and no other bytes do."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import pytest

from goqueue.wire.types import Index, NodeId, PartitionId, TopicId
from log.config import StorageConfig
from log.disk.memory import MemoryDisk
from log.entry import Entry, EntryKind, make_entry
from log.errors import Damaged
from log.partition.log import PartitionLog
from log.segments.segment import SEGMENT_SUFFIX, TERMS_SUFFIX
from log.store.directory import Store
from log.wal.install import UNKNOWN_END
from node.peers.link import PeerLink
from node.storage.flusher import Flusher
from node.storage.repair.healer import Healer
from raft.link import LinkDown, RemoteError

GROUP = PartitionId(TopicId(1, 1), 0)
LIMITS = StorageConfig(ram_tail_bytes=0, watermark_percent=0, reserve_bytes=0)
ENTRIES = 30


def entry(index: int, body: bytes = b"") -> Entry:
    return make_entry(
        index=index,
        term=1,
        time_ms=index,
        kind=EntryKind.COMMAND,
        body=body or f"entry {index}".encode() * 5,
    )


def flush(store: Store) -> None:
    while (job := store.take_flush()) is not None:
        job.sync()
        store.complete_flush(job)
        job.spill()
        store.complete_spill(job)


class Inline:
    """The keeper's work, done at once."""

    def __init__(self) -> None:
        self.works = 0

    async def keep(self, work: Callable[[], Any]) -> Any:
        self.works += 1
        return work()


class Link:
    """One node's link; requests go straight to the handlers of the others."""

    def __init__(self) -> None:
        self.handlers: dict[str, Callable[[NodeId, bytes], Awaitable[bytes]]] = {}
        self.others: dict[NodeId, Link] = {}
        self.lies: dict[NodeId, bytes] = {}

    def handle(self, method: str, handler: Callable[[NodeId, bytes], Awaitable[bytes]]) -> None:
        self.handlers[method] = handler

    def connected(self) -> Mapping[NodeId, Mapping[str, Any]]:
        return {node: {} for node in self.others}

    async def request(self, node: NodeId, method: str, payload: bytes, timeout_s: float) -> bytes:
        if node in self.lies:
            return self.lies[node]
        if node not in self.others:
            raise LinkDown(node, sent=False)
        try:
            return await self.others[node].handlers[method](NodeId("asker"), payload)
        except Exception as error:
            raise RemoteError(error) from error  # type: ignore[arg-type]


class Node:
    """A store with one group, and its healer."""

    def __init__(self, disk: MemoryDisk | None = None, *, limits: StorageConfig = LIMITS) -> None:
        self.disk = disk or MemoryDisk()
        self.store = Store.open(self.disk, "/data", limits)
        self.link = Link()
        self.keeper = Inline()
        self.healed: list[PartitionId] = []
        self.damaged: list[PartitionId] = []
        self.hopeless: list[PartitionId] = []
        self.healer = Healer(
            self.store,
            cast(Flusher, self.keeper),
            cast(PeerLink, self.link),
            on_damaged=self.damaged.append,
            on_healed=self.healed.append,
            on_hopeless=self.hopeless.append,
        )
        if not self.store.has_log(GROUP):
            self.store.create_log(GROUP).append([entry(n) for n in range(1, ENTRIES + 1)])
        flush(self.store)

    @property
    def log(self) -> PartitionLog:
        return self.store.partition_log(GROUP)

    def spoil(self, *indexes: int) -> None:
        """Flips a bit in the body of these entries, and reads them."""
        [segment] = self.log.disk_segments.chain
        handle = self.disk.open(segment.path(), write=True)
        data = self.disk.pread(handle, self.disk.size(segment.path()), 0)
        for index in indexes:
            at = data.index(f"entry {index}".encode() * 5) + 4
            self.disk.pwritev(handle, [bytes([data[at] ^ 1])], at)
        self.disk.close(handle)
        for index in indexes:
            with pytest.raises(Exception, match="damaged"):
                self.log.entry(Index(index))

    def everything(self) -> list[bytes]:
        return [self.log.entry(Index(n)).frame for n in range(1, ENTRIES + 1)]


def nodes(count: int) -> list[Node]:
    found = [Node() for _ in range(count)]
    for node in found:
        node.link.others = {
            NodeId(f"n{at}"): other.link for at, other in enumerate(found) if other is not node
        }
    return found


async def test_replicas_damaged_in_different_places_heal_each_other_without_a_leader() -> None:
    first, second = nodes(2)
    whole = first.everything()
    first.spoil(7, 12)
    second.spoil(8, 25)
    assert first.log.quarantined
    assert second.log.quarantined

    await first.healer.heal()
    await second.healer.heal()

    assert not first.log.quarantined
    assert not second.log.quarantined
    assert first.everything() == second.everything() == whole
    assert first.healed == second.healed == [GROUP]


async def test_what_was_repaired_is_whole_after_a_restart() -> None:
    first, _ = nodes(2)
    whole = first.everything()
    first.spoil(7)
    flush(first.store)
    await first.healer.heal()
    flush(first.store)

    again = Node(first.disk.crash(random.Random(1), keep=0.0))
    assert not again.log.quarantined
    assert again.everything() == whole


async def test_an_entry_that_no_peer_has_stays_damaged() -> None:
    first, second = nodes(2)
    first.spoil(7)
    second.spoil(7)

    await first.healer.heal()

    assert first.log.quarantined
    assert first.healed == []


@pytest.mark.parametrize("answer", [b"", b"junk" * 30, entry(7, b"another").frame, entry(8).frame])
async def test_nothing_but_the_very_entry_is_put_in_place(answer: bytes) -> None:
    first, second = nodes(2)
    first.spoil(7)
    first.link.lies = {NodeId("n1"): bytes(answer)}

    await first.healer.heal()
    assert first.log.quarantined
    with pytest.raises(Damaged):
        first.log.cold_entries(Index(7))

    first.link.lies = {}
    await first.healer.heal()
    assert first.everything() == second.everything()


class BadSector:
    """Can't be read, in a disk's file, at the place where an entry stands."""

    def __init__(self, node: Node, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
        frames = node.everything()
        self.at = len(b"".join(frames[: number - 1])) + 48
        self.lasts = True
        self.gone = False
        self._pread, self._pwritev = node.disk.pread, node.disk.pwritev
        monkeypatch.setattr(node.disk, "pread", self.pread)
        monkeypatch.setattr(node.disk, "pwritev", self.pwritev)

    def pread(self, handle: int, length: int, offset: int) -> bytes:
        if not self.gone and offset <= self.at < offset + length and length > 16:
            raise OSError(errno.EIO, "the medium can't be read")
        return self._pread(handle, length, offset)

    def pwritev(self, handle: int, parts: Sequence[bytes], offset: int) -> int:
        written = offset <= self.at < offset + sum(map(len, parts))
        self.gone = self.gone or (written and not self.lasts)
        return self._pwritev(handle, parts, offset)


async def test_an_entry_that_can_not_be_read_where_it_was_put_stays_damaged_until_a_copy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, _ = nodes(2)
    whole = first.everything()
    sector = BadSector(first, 7, monkeypatch)
    with pytest.raises(Exception, match="damaged"):
        first.log.entry(Index(7))

    for _ in range(2):
        await first.healer.heal()
        assert first.log.quarantined
    assert first.hopeless == []

    await first.healer.heal()
    assert (first.hopeless, first.healed) == ([GROUP], [])
    sector.gone = True
    await first.healer.heal()
    assert (first.everything(), first.healed) == (whole, [GROUP])


async def test_a_place_that_takes_no_entry_stays_damaged_and_holds_up_no_other_group() -> None:
    first, second = nodes(2)
    other = PartitionId(TopicId(1, 2), 0)
    for node in (first, second):
        node.store.create_log(other).append([entry(n) for n in range(1, 4)])
        flush(node.store)
    whole = first.everything()
    first.spoil(7)
    first.store.partition_log(other).quarantine(2, 2, "was not readable for a moment")
    [segment] = first.log.disk_segments.chain
    first.disk.fdatasync(first.disk.open(segment.path(), write=True))

    def refuse(operation: str, path: str) -> OSError | None:
        is_it = operation == "fdatasync" and path == segment.path()
        return OSError(errno.EIO, os.strerror(errno.EIO)) if is_it else None

    first.disk.fault = refuse
    for _ in range(3):
        await first.healer.heal()

    assert (first.hopeless, first.healed) == ([GROUP], [other])
    assert first.log.quarantined
    first.disk.fault = None
    await first.healer.heal()
    assert (first.everything(), first.healed) == (whole, [other, GROUP])


async def test_a_sector_behind_the_entry_whose_reading_met_it_is_written_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, _ = nodes(2)
    whole = first.everything()
    sector = BadSector(first, 7, monkeypatch)
    sector.lasts = False
    with pytest.raises(Exception, match="damaged"):
        first.log.entries(Index(5))

    for _ in range(2):
        await first.healer.heal()

    assert (first.everything(), first.healed, first.hopeless) == (whole, [GROUP], [])


async def test_a_log_that_was_cut_at_its_damage_waits_for_a_leader() -> None:
    first, second = nodes(2)
    first.log.quarantine(ENTRIES + 1, ENTRIES + 5, "cut off")

    await first.healer.heal()

    assert first.log.quarantined
    assert second.healed == []


async def test_a_long_run_of_damage_is_mended_in_few_steps() -> None:
    first, second = nodes(2)
    [segment] = first.log.disk_segments.chain
    content = first.disk.content(segment.path())
    content[60:] = bytes(len(content) - 60)
    first.log.quarantine(1, ENTRIES, "zeros")

    await first.healer.heal()

    assert first.everything() == second.everything()
    assert first.healed == [GROUP]
    assert first.keeper.works < 10


async def test_a_segment_whose_file_is_gone_comes_back_by_its_term_index() -> None:
    first, second = nodes(2)
    [segment] = first.log.disk_segments.chain
    first.disk.unlink(segment.path())
    first.log.disk_segments.forget(segment)
    first.log.quarantine(1, ENTRIES, "missing")

    await first.healer.heal()

    assert first.everything() == second.everything()
    assert not first.log.quarantined


async def test_what_no_index_names_is_left_to_a_copy() -> None:
    first, _ = nodes(2)
    [segment] = first.log.disk_segments.chain
    for suffix in (SEGMENT_SUFFIX, TERMS_SUFFIX):
        content = first.disk.content(segment.path(suffix))
        content[48:] = bytes(len(content) - 48)
    first.log.quarantine(1, ENTRIES, "both files")

    await first.healer.heal()

    assert first.hopeless == [GROUP]
    assert first.log.quarantined


async def test_a_log_that_is_not_to_be_believed_is_not_healed_by_entries_and_serves_none() -> None:
    first, second = nodes(2)
    first.log.quarantine(1, UNKNOWN_END, "it differs")

    await first.healer.heal()
    assert first.hopeless == [GROUP]
    assert first.log.untrusted

    second.spoil(7)
    await second.healer.heal()
    assert second.log.quarantined


async def test_entries_that_are_still_in_memory_are_mended_without_asking_anybody() -> None:
    node = Node(limits=replace(LIMITS, ram_tail_bytes=1 << 20))
    whole = node.everything()
    [segment] = node.log.disk_segments.chain
    content = node.disk.content(segment.path())
    content[80] ^= 1
    node.log.quarantine(1, 1, "found by a scrub")

    await node.healer.heal()

    assert not node.log.quarantined
    assert [entry.frame for entry in node.log.disk_segments.read(1, ENTRIES, 1 << 20, 99)] == whole
