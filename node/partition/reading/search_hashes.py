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
from typing import NamedTuple

from delivery.lookup.search_hashes import SearchHashes
from delivery.offsets.keys import places
from goqueue.wire.types import Index
from log.entry import Entry
from log.errors import Damaged
from log.partition.log import PartitionLog
from log.segments.block_file import Run
from log.segments.hash_file import Block, HashFile, offset_of
from node.partition.reading.segment_follower import STEP_BYTES, SegmentFollower

NEWEST_ENTRIES_MAX = 4096
"""Entries that segments lack yet, of which a look-up hashes no more: a full disk keeps them out."""
BLOCKS_A_STEP = 8


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


class PartitionHashes(SegmentFollower[HashFile, SearchHashes]):
    """Of one replica; loop thread only, but for the work that it sends to others."""

    step_entries = 512

    def __init__(self, log: PartitionLog, applied: Callable[[], Index], workers: Executor) -> None:
        super().__init__(HashFile, log, applied, workers)

    def bookkeeping(self) -> Bookkeeping:
        files = self._files.values()
        pending = self._pending.values()
        through = min(self._applied(), self._log.spilled_index)
        covered = self._through()
        return Bookkeeping(
            sum(block.items for file in files for block in file.blocks)
            + sum(len(run.rows) for run in pending),
            sum(len(run.rows) for run in pending),
            self.disk_bytes,
            sum(run.rows.size_bytes for run in pending),
            max(0, through - covered),
            len(self._files),
        )

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
            hits.update(run.rows.find(kind, hash_))
        hits = {offset for offset in hits if offset < below}
        await self._find_in_files(found, hits, kind, hash_, below, limit, deadline_s)
        return found

    def _begin(self, first_index: int) -> SearchHashes:
        return SearchHashes()

    def _add(self, rows: SearchHashes, entries: list[Entry]) -> None:
        rows.add(entries)

    def _append(self, file: HashFile, run: Run, rows: SearchHashes) -> None:
        file.append(run, rows.columns, rows.partial)

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
            await self._off_loop(partial(hashes.add, entries))
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
            told, damaged = await self._off_loop(partial(_search, step, kind, cell))
            hits.update(offset for offset in told if offset < below)
            for file in damaged:
                await self._drop(file)
                found.missing.append(f"hashes of entries from {file.first_index} are made again")
                found.is_damaged = True
        found.offsets = sorted(hits, reverse=True)


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
