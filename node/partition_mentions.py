"""Which entries of one replica's log name which messages: what a timeline is looked up by.

Made from applied entries that segments hold, a little at a time and off the loop, and kept beside
the segments; what is missing, damaged, or of other entries is made again. A look-up first brings it
up to date; the newest entries, which segments don't hold yet, are looked through.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import msgspec
import structlog

from delivery.chronicle import Chronicle
from delivery.mentions import PLACE_BITS, Mentions, Wide, keys_of
from goqueue.wire.types import Index
from log.block_file import Run
from log.entry import Entry
from log.errors import Damaged, LogError
from log.group import GroupLog
from log.mention_file import Block, MentionFile
from node.to_the_end import to_the_end
from node.turns import Turns

BLOCK_BYTES = 2 << 20
"""Of entries in a run: what is read again after a restart, and held in memory until then."""
STEP_BYTES = 256 << 10
STEP_ENTRIES = 256
NEWEST_ENTRIES = 32
"""On the loop's thread, entries whose operations are looked at before others get their turn."""
TURN_ENTRIES = 32
"""The same on another thread, where a turn is over."""
SORT_ROWS = 4096
"""Sorted in one piece: that holds the interpreter for less than a millisecond."""
FILES_A_STEP = 64
"""Blocks that a thread looks into at once."""
RETRY_S = 60.0
"""After an error of the disk: what could not be read or written is tried again so much later."""

_log = structlog.get_logger("timelines")
_wide = msgspec.msgpack.Decoder(list[tuple[int, int, int, int, int]])
T = TypeVar("T")


@dataclass(slots=True)
class Mentioned:
    """Entries that may tell of a message, those that name it and those that concern many."""

    named: list[int]
    wide: list[Wide]


@dataclass(slots=True)
class _Pending:
    """A run that is being made, of one segment."""

    mentions: Mentions
    last_index: int
    last: Entry | None = None
    bytes: int = 0


class PartitionMentions:
    """Of one replica; loop thread only, but for the work that it sends to others."""

    def __init__(
        self,
        log: GroupLog,
        applied: Callable[[], Index],
        chronicle: Callable[[], Chronicle],
        workers: Executor,
    ) -> None:
        self._log = log
        self._applied = applied
        self._chronicle = chronicle
        self._workers = workers
        self._files: dict[int, MentionFile] = {}
        self._pending: dict[int, _Pending] = {}
        self._lock = asyncio.Lock()
        self._whole = (-1, -1)
        """What was applied, and what was in segments, when everything was indexed last."""
        self._swept = (0, 0)
        self._retry_s = 0.0

    @property
    def is_current(self) -> bool:
        """Whether nothing has come since everything was indexed."""
        return self._whole == self._position()

    @property
    def is_resting(self) -> bool:
        """Whether the disk has refused something a short while ago."""
        return asyncio.get_running_loop().time() < self._retry_s

    @property
    def disk_bytes(self) -> int:
        return sum(file.size_bytes for file in self._files.values())

    @property
    def ram_rows(self) -> int:
        return sum(len(run.mentions) for run in self._pending.values())

    async def catch_up(self, *, steps: int = 1 << 30) -> bool:
        """Index what is applied and not indexed yet, newest segment first; whether nothing is left.

        Raises LogError, OSError; nothing is lost by it.
        """
        if self.is_current:
            return True
        async with self._lock:
            position = self._position()
            try:
                await self._match_files()
                while (part := self._missing()) is not None:
                    if steps <= 0:
                        return False
                    steps -= 1
                    await self._step(*part)
            except (LogError, OSError):
                self._retry_s = asyncio.get_running_loop().time() + RETRY_S
                raise
            self._whole = position
            return True

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
        runs = [run.mentions for run in self._pending.values()]
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
                await self._drop(damaged)
                return await self.find(offset, after)
        inside = sorted(index for index in named if after < index <= applied)
        return Mentioned(inside, sorted(w for w in wide if after < w.entry <= applied))

    def forget(self) -> None:
        """The replica is leaving, or is another one: nothing that is held in memory counts."""
        self._files, self._pending, self._swept, self._whole = {}, {}, (0, 0), (-1, -1)

    # what is to be indexed

    def _position(self) -> tuple[int, int]:
        return self._applied(), self._log.spilled_index

    def _through(self) -> int:
        """The last entry such that all before it in the log are indexed."""
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
        """(segment, first, last entry) to be indexed next."""
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
        pending = self._pending.get(segment)
        if pending is None:
            pending = self._pending[segment] = _Pending(Mentions(first), first - 1)
        if first <= last:
            entries = await self._entries(Index(first), Index(last))
            await self._off_loop(partial(_add, pending.mentions, entries, self._chronicle()))
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
        file, mentions, last = self._files[segment], pending.mentions, pending.last
        if last is None:
            return
        run = Run(mentions.first_index, pending.last_index, last.term, last.crc)

        def write() -> None:
            apart = msgspec.msgpack.encode(mentions.wide) if mentions.wide else b""
            file.append(run, mentions.sorted_rows(SORT_ROWS, Turns().end), apart)

        try:
            await self._off_loop(write)
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
        for first in [first for first in self._files if first not in wanted]:
            self._pending.pop(first, None)
            await self._off_loop(self._files.pop(first).remove)
        segments = self._log.disk_segments
        if self._may_write:
            for first in await self._off_loop(lambda: segments.files_beside(MentionFile)):
                if first not in wanted:
                    await self._off_loop(segments.file_beside(MentionFile, first).remove)
        for info in infos:
            if info.first_index not in self._files:
                file = segments.file_beside(MentionFile, info.first_index)
                last = min(info.last_index, self._applied())
                await self._off_loop(partial(self._open, file, last))
                self._files[info.first_index] = file
        self._swept = chain

    def _open(self, file: MentionFile, last_index: int) -> None:
        """Believe a file whose newest block is of the very entry that stands in the log."""
        file.load(last_index)
        if not file.blocks:
            return
        newest = file.blocks[-1].run
        try:
            found = self._log.disk_segments.identity(newest.last_index)
        except (Damaged, OSError):
            found = 0, 0
        if found != newest[2:]:
            file.remove()

    async def _drop(self, file: MentionFile) -> None:
        """The file is damaged: its segment is looked at again."""
        _log.warning("timeline_index_damaged", group=str(self._log.id), path=file.path)
        async with self._lock:
            self._whole = (-1, -1)
            self._pending.pop(file.first_index, None)
            await self._off_loop(file.remove)

    async def _off_loop(self, work: Callable[[], T]) -> T:
        return await to_the_end(self._workers, work)


def _add(mentions: Mentions, entries: list[Entry], chronicle: Chronicle) -> None:
    turns = Turns()
    for at in range(0, len(entries), TURN_ENTRIES):
        mentions.add(entries[at : at + TURN_ENTRIES], chronicle)
        turns.end()


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
