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
import structlog

from delivery.chronicle import Chronicle
from delivery.mentions import PLACE_BITS, Mentions, Wide, keys_of
from goqueue.wire.types import Index
from log.block_file import Run
from log.entry import Entry
from log.errors import Damaged
from log.group import GroupLog
from log.mention_file import Block, MentionFile
from node.segment_follower import STEP_BYTES, SegmentFollower
from node.turns import Turns

NEWEST_ENTRIES = 32
"""On the loop's thread, entries whose operations are looked at before others get their turn."""
TURN_ENTRIES = 32
"""The same on another thread, where a turn is over."""
SORT_ROWS = 4096
"""Sorted in one piece: that holds the interpreter for less than a millisecond."""
FILES_A_STEP = 64
"""Blocks that a thread looks into at once."""

_log = structlog.get_logger("timelines")
_wide = msgspec.msgpack.Decoder(list[tuple[int, int, int, int, int]])


@dataclass(slots=True)
class Mentioned:
    """Entries that may tell of a message, those that name it and those that concern many."""

    named: list[int]
    wide: list[Wide]


class PartitionMentions(SegmentFollower[MentionFile, Mentions]):
    """Of one replica; loop thread only, but for the work that it sends to others."""

    step_entries = 256

    def __init__(
        self,
        log: GroupLog,
        applied: Callable[[], Index],
        chronicle: Callable[[], Chronicle],
        workers: Executor,
    ) -> None:
        super().__init__(MentionFile, log, applied, workers)
        self._chronicle = chronicle

    @property
    def ram_rows(self) -> int:
        return sum(len(run.rows) for run in self._pending.values())

    async def catch_up(self, *, steps: int = 1 << 30) -> bool:
        """Index what is applied and not indexed yet, newest segment first; whether nothing is left.

        Raises LogError, OSError; nothing is lost by it.
        """
        if self.is_current:
            return True
        async with self._lock:
            return await self._follow(math.inf, steps)

    async def find(self, offset: int, after: Index) -> Mentioned:
        """Entries after this one that may tell of the message, applied before the call.

        Raises LogError, OSError.
        """
        applied = self._applied()
        await self.catch_up()
        at = Index(max(self._through() + 1, after + 1))
        newest = Mentions(at)
        while at <= applied:
            count = min(NEWEST_ENTRIES, applied - at + 1)
            entries = self._log.entries(at, max_bytes=STEP_BYTES, max_count=count)
            newest.add(entries, self._chronicle())
            at = Index(entries[-1].index + 1)
            await asyncio.sleep(0)
        named = set(newest.find(offset))
        wide = list(newest.wide)
        runs = [run.rows for run in self._pending.values()]
        for mentions in runs:
            wide += mentions.wide
        files = [(f, b) for f in self._files.values() for b in f.blocks if b.run.last_index > after]
        named.update(await self._off_loop(lambda: _find_in_runs(runs, offset)))
        for number in range(0, len(files), FILES_A_STEP):
            part = files[number : number + FILES_A_STEP]
            told, apart, damaged = await self._off_loop(partial(_find_in_files, part, offset))
            named.update(told)
            wide += apart
            if damaged is not None:
                group = str(self._log.id)
                _log.warning("timeline_index_damaged", group=group, path=damaged.path)
                await self._drop(damaged)
                return await self.find(offset, after)
        inside = sorted(index for index in named if after < index <= applied)
        return Mentioned(inside, sorted(w for w in wide if after < w.entry <= applied))

    def _begin(self, first_index: int) -> Mentions:
        return Mentions(first_index)

    def _add(self, rows: Mentions, entries: list[Entry]) -> None:
        chronicle, turns = self._chronicle(), Turns()
        for at in range(0, len(entries), TURN_ENTRIES):
            rows.add(entries[at : at + TURN_ENTRIES], chronicle)
            turns.end()

    def _append(self, file: MentionFile, run: Run, rows: Mentions) -> None:
        apart = msgspec.msgpack.encode(rows.wide) if rows.wide else b""
        file.append(run, rows.sorted_rows(SORT_ROWS, Turns().end), apart)


def _find_in_runs(runs: list[Mentions], offset: int) -> list[int]:
    end_turn = Turns().end
    return [index for mentions in runs for index in mentions.find(offset, end_turn)]


def _find_in_files(
    files: list[tuple[MentionFile, Block]], offset: int
) -> tuple[list[int], list[Wide], MentionFile | None]:
    """Entries found in blocks, and the file that turned out to be damaged."""
    ranges = [(key << PLACE_BITS, (key + 1) << PLACE_BITS) for key in keys_of(offset)]
    places = (1 << PLACE_BITS) - 1
    found: list[int] = []
    wide: list[Wide] = []
    turns = Turns()
    for file, block in files:
        turns.end()
        try:
            rows, apart = file.find(block, ranges)
        except (Damaged, OSError):
            return found, wide, file
        found += [block.run.first_index + (row & places) for row in rows]
        if apart:
            wide += [Wide(*one) for one in _wide.decode(apart)]
    return found, wide, None
