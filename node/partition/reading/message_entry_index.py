"""Which entries of one replica's log name which messages: what a timeline is looked up by.

Made from applied entries that segments hold, a little at a time and off the loop, and kept beside
the segments; what is missing, damaged, or of other entries is made again. A look-up first brings it
up to date; the newest entries, which segments don't hold yet, are looked through.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial

import msgspec

from delivery.history.outcome_notes import OutcomeNotes
from delivery.timeline.message_entry_index import PLACE_BITS, MessageEntryIndex, Wide, keys_of
from goqueue.wire.errors import Unavailable
from goqueue.wire.types import Index
from log.entry import Entry
from log.errors import Damaged
from log.partition.log import PartitionLog
from log.segments.block_file import Run
from log.segments.message_entry_index import Block, MessageEntryFile
from node.partition.reading.segment_follower import STEP_BYTES, SegmentFollower
from node.runtime.gil_yield import GilYield

NEWEST_ENTRIES = 32
"""On the loop's thread, entries whose operations are looked at before others get their turn."""
TURN_ENTRIES = 32
"""The same on another thread, where a turn is over."""
SORT_ROWS = 4096
"""Sorted in one piece: that holds the interpreter for less than a millisecond."""
FILES_A_STEP = 64
"""Blocks that a thread looks into at once."""
ATTEMPTS = 3
"""At a look-up: files that turn out to be damaged are made again meanwhile."""

_wide = msgspec.msgpack.Decoder(list[tuple[int, int, int, int, int]])


class IndexBehind(Unavailable):
    """What tells of messages is not indexed yet, and too much to be looked through now; `entries`
    says how much."""

    code, text = "timelines_behind", "timelines are being indexed: try again in a moment"


@dataclass(slots=True)
class IndexedEntries:
    """Entries that may tell of a message, those that name it and those that concern many."""

    named: list[int]
    wide: list[Wide]


class PartitionEntryIndex(SegmentFollower[MessageEntryFile, MessageEntryIndex]):
    """Of one replica; loop thread only, but for the work that it sends to others."""

    step_entries = 256

    def __init__(
        self,
        log: PartitionLog,
        applied: Callable[[], Index],
        outcome_notes: Callable[[], OutcomeNotes],
        workers: Executor,
    ) -> None:
        super().__init__(MessageEntryFile, log, applied, workers)
        self._outcome_notes = outcome_notes

    @property
    def ram_rows(self) -> int:
        return sum(len(run.rows) for run in self._pending.values())

    async def find(self, offset: int, after: Index, deadline_s: float = math.inf) -> IndexedEntries:
        """Entries after this one that may tell of the message, applied before the call.

        Raises IndexBehind where the index can't be made by the deadline (the loop's time),
        LogError, OSError.
        """
        for _ in range(ATTEMPTS):
            applied = self._applied()
            await self.catch_up(deadline_s)
            found = await self._find(offset, after, applied, deadline_s)
            if found is not None:
                named, wide = found
                inside = sorted(index for index in named if after < index <= applied)
                return IndexedEntries(inside, sorted(w for w in wide if after < w.entry <= applied))
        raise IndexBehind(f"the index of group {self._log.id} is damaged again and again")

    async def _find(
        self, offset: int, after: Index, applied: Index, deadline_s: float
    ) -> tuple[set[int], list[Wide]] | None:
        """None where a file turned out to be damaged: it is made again."""
        apart = [run.rows for run in self._pending.values()]
        files = [(f, b) for f in self._files.values() for b in f.blocks if b.run.last_index > after]
        apart += await self._seen(self._gaps(after, applied), deadline_s)
        wide = [one for message_entries in apart for one in message_entries.wide]
        named = set(await self._off_loop(lambda: _find_in_runs(apart, offset)))
        for number in range(0, len(files), FILES_A_STEP):
            part = files[number : number + FILES_A_STEP]
            told, beside, damaged = await self._off_loop(partial(_find_in_files, part, offset))
            named.update(told)
            wide += beside
            if damaged is not None:
                await self._drop(damaged)
                return None
        return named, wide

    async def _seen(
        self, gaps: list[tuple[int, int]], deadline_s: float
    ) -> list[MessageEntryIndex]:
        """Of entries that are not indexed: the newest ones, and what the disk has no room for."""
        loop, log = asyncio.get_running_loop(), self._log
        found: list[MessageEntryIndex] = []
        while gaps:
            first, last = gaps.pop()
            found.append(MessageEntryIndex(first))
            while first <= last:
                if loop.time() >= deadline_s:
                    left = [*gaps, (first, last)]
                    raise IndexBehind(entries=sum(last + 1 - first for first, last in left))
                if log.is_cold(Index(first)):
                    entries = await self._entries(Index(first), Index(last))
                    await self._off_loop(partial(self._add, found[-1], entries))
                else:
                    count = min(NEWEST_ENTRIES, last - first + 1)
                    entries = log.entries(Index(first), max_bytes=STEP_BYTES, max_count=count)
                    found[-1].add(entries, self._outcome_notes())
                    await asyncio.sleep(0)
                first = entries[-1].index + 1
        return found

    def _begin(self, first_index: int) -> MessageEntryIndex:
        return MessageEntryIndex(first_index)

    def _add(self, rows: MessageEntryIndex, entries: list[Entry]) -> None:
        outcome_notes, gil_yield = self._outcome_notes(), GilYield()
        for at in range(0, len(entries), TURN_ENTRIES):
            rows.add(entries[at : at + TURN_ENTRIES], outcome_notes)
            gil_yield.end()

    def _append(self, file: MessageEntryFile, run: Run, rows: MessageEntryIndex) -> None:
        apart = msgspec.msgpack.encode(rows.wide) if rows.wide else b""
        file.append(run, rows.sorted_rows(SORT_ROWS, GilYield().end), apart)


def _find_in_runs(runs: list[MessageEntryIndex], offset: int) -> list[int]:
    end_turn = GilYield().end
    return [index for message_entries in runs for index in message_entries.find(offset, end_turn)]


def _find_in_files(
    files: list[tuple[MessageEntryFile, Block]], offset: int
) -> tuple[list[int], list[Wide], MessageEntryFile | None]:
    """Entries found in blocks, and the file that turned out to be damaged."""
    ranges = [(key << PLACE_BITS, (key + 1) << PLACE_BITS) for key in keys_of(offset)]
    places = (1 << PLACE_BITS) - 1
    found: list[int] = []
    wide: list[Wide] = []
    gil_yield = GilYield()
    for file, block in files:
        gil_yield.end()
        try:
            rows, apart = file.find(block, ranges)
        except (Damaged, OSError):
            return found, wide, file
        found += [block.run.first_index + (row & places) for row in rows]
        if apart:
            wide += [Wide(*one) for one in _wide.decode(apart)]
    return found, wide, None
