"""Which messages of one replica may have an id, a trace id or a header: its search hashes.

They are made from applied entries that segments hold, a little at a time and off the loop, and kept
beside the segments; what is missing, damaged, or of other entries is made again. A look-up first
brings them up to date, for so long at most, and says what it could not search.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, TypeVar

import structlog

from delivery.keys import places
from delivery.search_hashes import SearchHashes
from goqueue.wire.types import Index
from log.block_file import Run
from log.entry import Entry
from log.errors import Damaged, LogError
from log.group import GroupLog
from log.hash_file import Block, HashFile, offset_of
from node.to_the_end import to_the_end

BLOCK_BYTES = 2 << 20
"""Of entries in a run: what is read again after a restart, and held in memory until then."""
STEP_BYTES = 256 << 10
STEP_ENTRIES = 512
"""Entries whose messages are hashed before others get their turn."""
NEWEST_ENTRIES_MAX = 4096
"""Entries that segments lack yet, of which a look-up hashes no more: a full disk keeps them out."""
BLOCKS_A_STEP = 8
RETRY_S = 60.0
"""After an error of the disk: what could not be read or written is tried again so much later."""

_log = structlog.get_logger("search_hashes")
T = TypeVar("T")


class Bookkeeping(NamedTuple):
    """What the hashes of one replica take, and how far they are."""

    items: int
    ram_items: int
    disk_bytes: int
    ram_bytes: int
    behind_entries: int
    segments: int


@dataclass(slots=True)
class Found:
    """Offsets that may have what was looked for, newest first. There may be others below `below`;
    -1 where there are none. `missing` says what was not searched."""

    offsets: list[int]
    below: int = -1
    is_damaged: bool = False
    missing: list[str] = field(default_factory=list[str])


@dataclass(slots=True)
class _Pending:
    """A run that is being made, of one segment."""

    first_index: int
    last_index: int
    last: Entry | None = None
    bytes: int = 0
    hashes: SearchHashes = field(default_factory=SearchHashes)


class PartitionHashes:
    """Of one replica; loop thread only, but for the work that it sends to others."""

    def __init__(self, log: GroupLog, applied: Callable[[], Index], workers: Executor) -> None:
        self._log = log
        self._applied = applied
        self._workers = workers
        self._files: dict[int, HashFile] = {}
        self._pending: dict[int, _Pending] = {}
        self._lock = asyncio.Lock()
        self._whole = (-1, -1)
        """What was applied, and what was in segments, when everything was hashed last."""
        self._swept: tuple[int, int] = (0, 0)
        self._retry_s = 0.0

    def bookkeeping(self) -> Bookkeeping:
        files = self._files.values()
        pending = self._pending.values()
        through = min(self._applied(), self._log.spilled_index)
        covered = self._through()
        return Bookkeeping(
            sum(block.items for file in files for block in file.blocks)
            + sum(len(run.hashes) for run in pending),
            sum(len(run.hashes) for run in pending),
            sum(file.size_bytes for file in files),
            sum(run.hashes.size_bytes for run in pending),
            max(0, through - covered),
            len(self._files),
        )

    @property
    def is_current(self) -> bool:
        """Whether nothing has come since everything was hashed."""
        return self._whole == self._position()

    @property
    def is_resting(self) -> bool:
        """Whether the disk has refused something a short while ago."""
        return asyncio.get_running_loop().time() < self._retry_s

    def _position(self) -> tuple[int, int]:
        return self._applied(), self._log.spilled_index

    async def catch_up(self, deadline_s: float, *, steps: int = 1 << 30) -> bool:
        """Hash what is applied and not hashed yet, newest segment first; whether nothing is left.

        Stops at the deadline (the loop's time), after so many steps, or at an error of the disk.
        """
        loop = asyncio.get_running_loop()
        if self.is_current:
            return True
        async with self._lock:
            position = self._position()
            if self.is_resting:
                return False
            try:
                await self._match_files()
                while (part := self._missing()) is not None:
                    if steps <= 0 or loop.time() >= deadline_s:
                        return False
                    steps -= 1
                    await self._step(*part)
            except (LogError, OSError) as error:
                self._retry_s = loop.time() + RETRY_S
                _log.warning("not_hashed", group=str(self._log.id), problem=str(error))
                return False
            self._whole = position
            return True

    async def find(self, kind: int, hash_: int, below: int, limit: int, deadline_s: float) -> Found:
        """Offsets below this one, a few more than `limit` where there are so many.

        What was applied before the call is searched, or named as missing.
        """
        found = await self._find(kind, hash_, below, limit, deadline_s)
        if found.is_damaged:
            found = await self._find(kind, hash_, below, limit, deadline_s)
        return found

    async def _find(
        self, kind: int, hash_: int, below: int, limit: int, deadline_s: float
    ) -> Found:
        newest = self._applied()
        is_whole = await self.catch_up(deadline_s)
        found = Found([])
        first = self._through() + 1
        if not is_whole:
            spilled = self._log.spilled_index
            behind = max(0, min(newest, spilled) + 1 - first)
            found.missing.append(f"{behind} entries are not indexed yet")
            first = max(first, spilled + 1)
        hits = set((await self._newest(Index(first), newest, found)).find(kind, hash_))
        for run in self._pending.values():
            hits.update(run.hashes.find(kind, hash_))
        hits = {offset for offset in hits if offset < below}
        await self._find_in_files(found, hits, kind, hash_, below, limit, deadline_s)
        return found

    def forget(self) -> None:
        """The replica is leaving: nothing that is held in memory counts any more."""
        self._files, self._pending, self._swept, self._whole = {}, {}, (0, 0), (-1, -1)

    # what is to be hashed

    def _through(self) -> int:
        """The last entry such that all before it in the log are hashed."""
        covered = self._log.first_index - 1
        for info in self._log.segments():
            if info.first_index > covered + 1:
                break
            done = self._done(info.first_index)
            covered = max(covered, done)
            if done < info.last_index:
                break
        return covered

    def _done(self, first_index: int) -> int:
        pending = self._pending.get(first_index)
        if pending is not None:
            return pending.last_index
        file = self._files.get(first_index)
        return first_index - 1 if file is None else file.last_index

    def _missing(self) -> tuple[int, int, int] | None:
        """(segment, first, last entry) to be hashed next."""
        end = min(self._applied(), self._log.spilled_index)
        for info in reversed(self._log.segments()):
            if info.first_index not in self._files:
                continue  # it was begun just now
            last = min(info.last_index, end)
            done = self._done(info.first_index)
            if done < last:
                return info.first_index, done + 1, last
            if info.first_index in self._pending and info.sealed and self._may_write:
                return info.first_index, done + 1, done
        return None

    async def _step(self, segment: int, first: int, last: int) -> None:
        """Hash some entries; a run that is long enough, or whose segment is over, is written."""
        pending = self._pending.get(segment)
        if pending is None:
            pending = self._pending[segment] = _Pending(first, first - 1)
        entries: list[Entry] = []
        if first <= last:
            entries = await self._entries(Index(first), Index(last))
            await self._off_loop(pending.hashes.add, entries)
            pending.last_index = entries[-1].index
            pending.last = entries[-1]
            pending.bytes += sum(len(entry.frame) for entry in entries)
        is_sealed = any(i.first_index == segment and i.sealed for i in self._log.segments())
        is_over = is_sealed and pending.last_index == last
        if (pending.bytes >= BLOCK_BYTES or is_over) and self._may_write:
            await self._write(segment, pending)

    @property
    def _may_write(self) -> bool:
        return self._log.disk_segments.is_written

    async def _entries(self, first: Index, last: Index) -> list[Entry]:
        """Entries of one segment: from memory where they are there, else read by a thread."""
        count = min(STEP_ENTRIES, last - first + 1)
        if not self._log.is_cold(first):
            return self._log.entries(first, max_bytes=STEP_BYTES, max_count=count)
        read = self._log.cold_entries
        return await self._off_loop(lambda: read(first, max_bytes=STEP_BYTES, max_count=count))

    async def _write(self, segment: int, pending: _Pending) -> None:
        if pending.last is None:
            return
        file, hashes = self._files[segment], pending.hashes
        last = pending.last
        run = Run(pending.first_index, pending.last_index, last.term, last.crc)
        try:
            await self._off_loop(file.append, run, hashes.columns, hashes.partial)
        finally:  # it may be written though a look-up's time was over meanwhile
            if file.last_index >= pending.last_index:
                self._pending.pop(segment, None)

    async def _match_files(self) -> None:
        """One file for each segment that is there; those of others go."""
        infos = self._log.segments()
        chain = (infos[0].first_index, infos[-1].first_index) if infos else (0, 0)
        if chain == self._swept:
            return
        wanted = {info.first_index: info for info in infos}
        stale = [first for first in self._files if first not in wanted]
        for first in stale:
            self._pending.pop(first, None)
            await self._off_loop(self._files.pop(first).remove)
        segments = self._log.disk_segments
        if self._may_write:
            for first in await self._off_loop(lambda: segments.files_beside(HashFile)):
                if first not in wanted:
                    await self._off_loop(segments.file_beside(HashFile, first).remove)
        for info in infos:
            if info.first_index not in self._files:
                file = segments.file_beside(HashFile, info.first_index)
                last = min(info.last_index, self._applied())
                await self._off_loop(lambda file=file, last=last: self._open(file, last))
                self._files[info.first_index] = file
        self._swept = chain

    def _open(self, file: HashFile, last_index: int) -> None:
        """Believe a file whose newest block is of the very entry that stands in the log."""
        file.load(last_index)
        if not file.blocks:
            return
        newest = file.blocks[-1].run
        try:
            is_same = self._log.disk_segments.identity(newest.last_index) == newest[2:]
        except (Damaged, OSError):
            is_same = False
        if not is_same:
            file.remove()

    # look-ups

    async def _newest(self, first: Index, through: Index, found: Found) -> SearchHashes:
        """Hashes of what segments don't hold yet: the last few entries."""
        hashes = SearchHashes()
        first = max(first, self._log.first_index)
        if through - first >= NEWEST_ENTRIES_MAX:
            found.missing.append("the newest entries wait for room on the disk")
            through = Index(first + NEWEST_ENTRIES_MAX - 1)
        while first <= through:
            count = through - first + 1
            entries = self._log.entries(first, max_bytes=STEP_BYTES, max_count=count)
            await self._off_loop(hashes.add, entries)
            first = Index(entries[-1].index + 1)
        return hashes

    async def _find_in_files(
        self,
        found: Found,
        hits: set[int],
        kind: int,
        hash_: int,
        below: int,
        limit: int,
        deadline_s: float,
    ) -> None:
        """Blocks in the order of their highest offset: what lies above all that is left is found
        for good."""
        loop = asyncio.get_running_loop()
        blocks = [
            (block, file)
            for file in self._files.values()
            for block in file.blocks
            if block.kinds[kind][0] and block.low < below
        ]
        blocks.sort(key=lambda one: one[0].high)
        if any(block.is_partial(kind) for file in self._files.values() for block in file.blocks):
            found.missing.append("some messages have more than is indexed")
        cell = hash_.to_bytes(4, "little")
        while blocks:
            settled = [offset for offset in hits if offset > blocks[-1][0].high]
            is_late = loop.time() >= deadline_s
            if len(settled) > limit or is_late:
                found.offsets, found.below = sorted(settled, reverse=True), blocks[-1][0].high + 1
                if is_late:
                    found.missing.append(f"offsets below {found.below}: out of time")
                return
            step, blocks = blocks[-BLOCKS_A_STEP:], blocks[:-BLOCKS_A_STEP]
            told, damaged = await self._off_loop(lambda step=step: _search(step, kind, cell))
            hits.update(offset for offset in told if offset < below)
            for file in damaged:
                await self._drop(file)
                found.missing.append(f"hashes of entries from {file.first_index} are made again")
                found.is_damaged = True
        found.offsets = sorted(hits, reverse=True)

    async def _drop(self, file: HashFile) -> None:
        """The file is damaged: its segment is hashed again."""
        async with self._lock:
            self._whole = (-1, -1)
            self._pending.pop(file.first_index, None)
            await self._off_loop(file.remove)

    async def _off_loop(self, work: Callable[..., T], *arguments: object) -> T:
        return await to_the_end(self._workers, partial(work, *arguments))


def _search(
    blocks: Iterable[tuple[Block, HashFile]], kind: int, cell: bytes
) -> tuple[list[int], list[HashFile]]:
    """Offsets found in blocks, and the files that turned out to be damaged."""
    offsets: list[int] = []
    damaged: list[HashFile] = []
    for block, file in blocks:
        if file in damaged:
            continue
        try:
            found = places(file.hashes(block, kind), cell)
            rows = file.rows(block, kind) if found else b""
        except (Damaged, OSError):
            damaged.append(file)
            continue
        offsets += [offset_of(block, rows, row) for row in found]
    return offsets, damaged
