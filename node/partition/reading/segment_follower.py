"""What is found in one replica's applied entries, kept beside its segments: followed up a little at
a time and off the loop.

Entries of a segment become a run, held in memory, and the run a block of the file beside that
segment once it is long enough or the segment is over. What is missing, damaged, or of other entries
is made again from the segments.
"""

from __future__ import annotations

import asyncio
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Generic, TypeVar

from goqueue.wire.types import Index
from log.entry import Entry
from log.errors import Damaged, LogError
from log.partition.log import PartitionLog
from log.segments.block_file import BlockFile, Run
from log.segments.chain import SegmentInfo
from node.runtime.logger import get_logger
from node.runtime.uncancellable import run_uncancellable

BLOCK_BYTES = 2 << 20
"""Of entries in a run: what is read again after a restart, and held in memory until then."""
STEP_BYTES = 256 << 10
DUE_ENTRIES = 256
DUE_BYTES = 2 * BLOCK_BYTES
DUE_S = 10.0
"""So much has come, or so long ago was all followed, that a step is worth what it takes whatever
it finds: a look-up does what is less."""
REST_S = 60.0
"""After an error, what could not be read or written is tried again so much later, """
ASKED_REST_S = 1.0
"""and so much later for a look-up: there may be room on the disk again."""

_NOTHING = (-1, -1, -1)
_log = get_logger("indexes")

F = TypeVar("F", bound=BlockFile[Any])
R = TypeVar("R")
T = TypeVar("T")


@dataclass(slots=True)
class Pending(Generic[R]):
    """A run that is being made, of one segment."""

    first_index: int
    last_index: int
    rows: R
    last: Entry | None = None
    bytes: int = 0


class SegmentFollower(ABC, Generic[F, R]):
    """Of one replica, into files of one kind; loop thread only, but for the work that it sends to
    others."""

    step_entries: ClassVar[int]
    """Entries that are added before others get their turn."""

    def __init__(
        self, kind: type[F], log: PartitionLog, applied: Callable[[], Index], workers: Executor
    ) -> None:
        self._kind = kind
        self._log = log
        self._applied = applied
        self._workers = workers
        self._files: dict[int, F] = {}
        self._pending: dict[int, Pending[R]] = {}
        self._lock = asyncio.Lock()
        self._whole = _NOTHING
        """What was applied, what was in segments, and the log's start, when all was followed."""
        self._whole_bytes, self._whole_s = 0, -math.inf
        self._matched = self._cleared = (0, 0)
        """The segments beside which there are files, and of which alone there are any."""
        self._failed_s = -math.inf

    # for who knows what is looked for

    @abstractmethod
    def _begin(self, first_index: int) -> R:
        """A run of no entries yet, the next of which is this one."""

    @abstractmethod
    def _add(self, rows: R, entries: list[Entry]) -> None:
        """Take the run's next entries. By a thread."""

    @abstractmethod
    def _append(self, file: F, run: Run, rows: R) -> None:
        """Write the run. By a thread. Raises OSError."""

    # how far it is

    @property
    def is_current(self) -> bool:
        """Whether nothing has come since all was followed: no segment, at first."""
        return self._log.wal_only or self._whole == self._position()

    @property
    def sees_all(self) -> bool:
        """Whether all that the log holds is in segments, or is to stay out of them: more will be
        there only once something is appended, or applied."""
        return self._log.spilled_index == self._log.last_index or self._log.wal_only

    @property
    def is_due(self) -> bool:
        """Whether enough has come since all was followed, or something a while after that."""
        if self.is_current:
            return False
        last = min(self._position()[:2])
        return (
            last - min(self._whole[:2]) >= DUE_ENTRIES
            or asyncio.get_running_loop().time() >= self._whole_s + DUE_S
            or self._log.size_bytes - self._whole_bytes >= DUE_BYTES
        )

    @property
    def is_resting(self) -> bool:
        """Whether it has failed a short while ago: who need not have it now leaves it alone."""
        return asyncio.get_running_loop().time() < self._failed_s + REST_S

    @property
    def disk_bytes(self) -> int:
        return sum(file.size_bytes for file in self._files.values())

    def forget(self) -> None:
        """The replica is leaving, or is another one: nothing that is held in memory counts."""
        self._files, self._pending, self._whole = {}, {}, _NOTHING
        self._whole_s = -math.inf
        self._matched = self._cleared = (0, 0)

    async def catch_up(self, deadline_s: float, *, steps: int = 1 << 30) -> bool:
        """Follow all that is applied and was not yet, newest segment first; whether nothing is
        left.

        Stops at the deadline (the loop's time), after so many steps, or where something can't be
        read or written, which is logged; nothing is lost by it.
        """
        loop = asyncio.get_running_loop()
        if self.is_current:
            return True
        async with self._lock:
            position, size_bytes, now_s = self._position(), self._log.size_bytes, loop.time()
            if now_s < self._failed_s + ASKED_REST_S:
                return False
            try:
                is_whole = await self._follow(deadline_s, steps)
            except Exception as error:
                self._failed_s = loop.time()
                if not isinstance(error, LogError | OSError):
                    raise
                path = self._kind.suffix
                _log.warning("not_indexed", group=str(self._log.id), file=path, problem=str(error))
                return False
            self._failed_s = -math.inf
            if is_whole:
                self._whole, self._whole_bytes, self._whole_s = position, size_bytes, now_s
            return is_whole

    async def sweep(self) -> None:
        """Files go that stand beside no segment any more. Raises OSError."""
        async with self._lock:
            await self._clear(*self._chain())

    async def _follow(self, deadline_s: float, steps: int) -> bool:
        await self._match_files()
        while (part := self._missing()) is not None:
            if steps <= 0 or asyncio.get_running_loop().time() >= deadline_s:
                return False
            steps -= 1
            try:
                await self._step(*part)
            except (LogError, OSError):
                if any(info.first_index == part[0] for info in self._log.segments()):
                    raise
                await self._match_files()  # the log begins after it by now
        return True

    def _position(self) -> tuple[int, int, int]:
        return self._applied(), self._log.spilled_index, self._log.first_index

    def _through(self) -> int:
        """The last entry such that all before it in the log are followed."""
        covered = self._log.first_index - 1
        for info in self._log.segments():
            if info.first_index > covered + 1:
                break
            done = self._done(info.first_index)
            covered = max(covered, done)
            if done < info.last_index:
                break
        return covered

    def _gaps(self, after: int, through: int) -> list[tuple[int, int]]:
        """(first, last) of stretches of entries in between that are not followed."""
        found: list[tuple[int, int]] = []
        end = after
        for info in self._log.segments():
            first, last = (
                max(self._done(info.first_index), after) + 1,
                min(info.last_index, through),
            )
            if first <= last:
                found.append((first, last))
            end = max(end, info.last_index)
        if end < through:
            found.append((max(end + 1, self._log.first_index), through))
        return found

    def _done(self, first_index: int) -> int:
        pending = self._pending.get(first_index)
        if pending is not None:
            return pending.last_index
        file = self._files.get(first_index)
        return first_index - 1 if file is None else file.last_index

    # entries into runs, and runs into files

    def _missing(self) -> tuple[int, int, int] | None:
        """(segment, first, last entry) to be followed next."""
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
        """Add some entries; a run that is long enough, or whose segment is over, is written."""
        pending = self._pending.get(segment)
        if pending is None:
            pending = self._pending[segment] = Pending(first, first - 1, self._begin(first))
        if first <= last:
            entries = await self._entries(Index(first), Index(last))
            await self._off_loop(partial(self._add, pending.rows, entries))
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
        count = min(self.step_entries, last - first + 1)
        if not self._log.is_cold(first):
            return self._log.entries(first, max_bytes=STEP_BYTES, max_count=count)
        read = self._log.cold_entries
        return await self._off_loop(lambda: read(first, max_bytes=STEP_BYTES, max_count=count))

    async def _write(self, segment: int, pending: Pending[R]) -> None:
        file, last = self._files.get(segment), pending.last
        if file is None or last is None:  # forgotten meanwhile, or of no entries
            return
        run = Run(pending.first_index, pending.last_index, last.term, last.crc)
        try:
            await self._off_loop(partial(self._append, file, run, pending.rows))
        finally:  # it may be written though a look-up's time was over meanwhile
            if file.last_index >= pending.last_index:
                self._pending.pop(segment, None)

    # files

    async def _match_files(self) -> None:
        """One file for each segment that is there; those of others go."""
        infos, chain = self._chain()
        if chain == self._matched:
            return
        await self._clear(infos, chain)
        for info in infos:
            if info.first_index not in self._files:
                file = self._log.disk_segments.file_beside(self._kind, info.first_index)
                last = min(info.last_index, self._applied())
                await self._off_loop(partial(self._open, file, last))
                self._files[info.first_index] = file
        self._matched = chain

    async def _clear(self, infos: Sequence[SegmentInfo], chain: tuple[int, int]) -> None:
        """Away with what stands beside none of these segments."""
        if chain == self._cleared:
            return
        wanted = {info.first_index for info in infos}
        for first in [first for first in self._files if first not in wanted]:
            self._pending.pop(first, None)
            await self._off_loop(self._files.pop(first).remove)
        segments = self._log.disk_segments
        if self._may_write:
            for first in await self._off_loop(lambda: segments.files_beside(self._kind)):
                if first not in wanted:
                    await self._off_loop(segments.file_beside(self._kind, first).remove)
        self._cleared = chain

    def _chain(self) -> tuple[list[SegmentInfo], tuple[int, int]]:
        """The segments that are there, and the first and the last of them."""
        infos = self._log.segments()
        return infos, (infos[0].first_index, infos[-1].first_index) if infos else (0, 0)

    def _open(self, file: F, last_index: int) -> None:
        """Believe a file whose newest block is of the very entry that stands in the log."""
        file.load(last_index)
        if not file.blocks:
            return
        newest: Run = file.blocks[-1].run
        try:
            found = self._log.disk_segments.identity(newest.last_index)
        except (Damaged, OSError):
            found = 0, 0
        if found != (newest.term, newest.crc):
            file.remove()

    async def _drop(self, file: F) -> None:
        """The file can't be read: its segment is followed again, if it is still there."""
        async with self._lock:
            if self._files.get(file.first_index) is not file:
                return
            _log.warning("index_damaged", group=str(self._log.id), path=file.path)
            self._whole, self._whole_s = _NOTHING, -math.inf
            self._pending.pop(file.first_index, None)
            await self._off_loop(file.remove)

    async def _off_loop(self, work: Callable[[], T]) -> T:
        return await run_uncancellable(self._workers, work)
