"""One partition from archive and log, as one stream: where the next message is to be read.

What the log still has is read from the log; below its start, from the archive. A compacted topic
is read from the archive as far as that goes, so that what compaction dropped is there, too. The
seam is an offset, decided anew at every step: retention may move the log's start past a reader, who
then goes back to the archive, and the archive may grow or have its files compacted meanwhile. So
nothing comes twice, and what is nowhere is told, never skipped in silence.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from operator import attrgetter
from typing import Final, Literal, Protocol

from goqueue.archive.manifest import Covering, File, Gap, Manifest
from goqueue.archive.rows import DamagedFile
from goqueue.archive.schema import UnreadableArchive
from goqueue.models.messages import Message, Page
from goqueue.wire.errors import GoQueueError, Unavailable

FILE_TRIES_MAX: Final = 5
"""How often a file that has gone is looked for under another name: compaction replaces files."""
PATIENCE_PAGES: Final = 6
PATIENCE_S: Final = 5.0
"""So often, and for so long, a log is asked again for what it is known to have."""

Why = Literal["deleted", "not_archived", "damaged"]

_timestamp_ms = attrgetter("timestamp_ms")
_offset = attrgetter("offset")


@dataclass(frozen=True, slots=True)
class Missing:
    """Messages `first` to `last`, both within, that are nowhere to be read.

    `deleted`: retention had them before the archive did. `not_archived`: the log has dropped them,
    and no archive has come so far. `damaged`: their file in the archive is, as `text` says.
    """

    topic: str
    partition: int
    first: int
    last: int
    why: Why
    text: str = ""

    def __str__(self) -> str:
        told = {
            "deleted": "deleted before they were archived",
            "not_archived": "deleted, and not archived",
            "damaged": "damaged in the archive",
        }
        count = self.last - self.first + 1
        many = f"{count} messages" if count > 1 else "1 message"
        return (
            f"{self.topic}:{self.partition}: {many} before offset {self.last + 1} (from"
            f" {self.first}): {told[self.why]}"
        )


class MessagesMissing(GoQueueError):
    """Messages that were asked for are neither in the log nor in the archive."""

    code, http_status = "messages_missing", 410

    def __init__(self, missing: Missing) -> None:
        super().__init__(
            str(missing),
            topic=missing.topic, partition=missing.partition,
            first=missing.first, last=missing.last, why=missing.why,
        )  # fmt: skip
        self.missing = missing


OnMissing = Callable[[Missing], None]
"""Told of each range that is missing, before what follows it is given out; it may raise."""


def refuse(missing: Missing) -> None:
    """Raises MessagesMissing, for who is not told what to do about it."""
    raise MessagesMissing(missing)


class Archived(Protocol):
    """A topic in an archive."""

    async def current(self) -> Manifest:
        """The manifest read last."""
        ...

    async def refresh(self) -> Manifest:
        """The newest manifest, the current one from now on."""
        ...

    def messages(self, file: File, first: int) -> AsyncGenerator[list[Message], None]:
        """The file's messages from an offset on. Raises FileNotFoundError, DamagedFile."""
        ...


class Live(Protocol):
    """A topic in the log."""

    async def read(self, partition: int, offset: int, wait_s: float, from_ms: int | None) -> Page:
        """The next page from an offset and a time on. Raises where it is another topic by now."""
        ...


@dataclass(frozen=True, slots=True)
class Window:
    """What is wanted of a partition: `offset` on, of log times from `from_ms` to below `to_ms`."""

    offset: int = 0
    from_ms: int | None = None
    to_ms: int | None = None


@dataclass(slots=True)
class Place:
    """A partition's log as it was seen last: its first offset, and whether it is compacted."""

    log_start: int
    is_compacted: bool = False


class PartitionReplay:
    """A position that moves through archive and log. Not for two readers at once."""

    def __init__(
        self,
        topic: str,
        partition: int,
        window: Window,
        *,
        archived: Archived | None,
        live: tuple[Live, Place] | None,
        on_missing: OnMissing = refuse,
    ) -> None:
        """Without `live` there is only the archive."""
        self.position = window.offset
        self.is_over = False
        """Whether the window's end was reached."""
        self._topic, self._partition, self._window = topic, partition, window
        self._archived = archived
        self._live = None if live is None else live[0]
        self._log = Place(0) if live is None else live[1]
        self._on_missing = on_missing
        self._is_placed = window.from_ms is None
        self._log_until = 0
        """Below it, what the log has is read there, as the archive's file is damaged."""

    async def runs(
        self, end: int | None, wait_s: float = 0.0
    ) -> AsyncGenerator[list[Message], None]:
        """What there is from the position to below `end`, in runs that are not empty.

        Without an end it goes on until the window is over; an empty run says that nothing new came
        within `wait_s`.
        """
        if not self._is_placed:
            await self._find_place()
        while not self.is_over and (end is None or self.position < end):
            is_archives = await self._is_archives()
            source = self._from_archive(end) if is_archives else self._from_log(end, wait_s)
            async with aclosing(source) as runs:
                async for run in runs:
                    wanted = self._within(run, end)
                    if wanted or not run:
                        yield wanted
                    if self.is_over:
                        return
        if end is not None:  # a page may have gone beyond, and those were not given out
            self.position = min(self.position, max(end, self._window.offset))

    async def _is_archives(self) -> bool:
        """Whether the message at the position is to be read from the archive."""
        if self._live is None or self.position < self._log.log_start:
            return True
        if self._archived is None or not self._log.is_compacted:
            return False
        archived = (await self._archived.current()).position(self._partition)
        return self._log_until <= self.position < archived

    async def _find_place(self) -> None:
        """Move to the first offset that can be of the window's time. Log times never go back."""
        self._is_placed = True
        assert self._window.from_ms is not None
        is_logs = self._live is not None and (self._archived is None or not self._log.is_compacted)
        if is_logs and (self._log.log_start == 0 or await self._log_begins_before()):
            self.position = max(self.position, self._log.log_start)
        elif self._archived is not None:
            items = (await self._archived.current()).partitions().get(self._partition, [])
            self.position = max(self.position, first_place(items, self._window.from_ms))

    async def _log_begins_before(self) -> bool:
        """Whether the log's first message is older than the window: then so is all before it."""
        if self._live is None or self._window.from_ms is None:
            return False
        page = await self._live.read(self._partition, self._log.log_start, 0.0, None)
        self._log.log_start = page.log_start
        return bool(page.messages) and page.messages[0].timestamp_ms < self._window.from_ms

    async def _from_archive(self, end: int | None) -> AsyncGenerator[list[Message], None]:
        """The rest of one file; or nothing, having moved past what is not to be read."""
        item = await self._covering()
        if item is None:
            await self._pass_unarchived(end)
        elif isinstance(item, Gap):
            self._pass(item.last, "deleted" if item.why == "deleted" else None)
        else:
            try:
                async with aclosing(self._file(item)) as runs:
                    async for run in runs:
                        yield run
            except DamagedFile as error:
                self._pass_damaged(item, error.message)

    async def _covering(self) -> Covering | None:
        """What the archive has at the position; None where it does not go so far."""
        if self._archived is None:
            return None
        place = (self._partition, self.position, self.position + 1)
        found = (await self._archived.current()).covering(*place)
        if not found:
            found = (await self._archived.refresh()).covering(*place)
        return found[0] if found else None

    async def _file(self, file: File) -> AsyncGenerator[list[Message], None]:
        """The file's messages from the position on, from what replaced it where it has gone."""
        assert self._archived is not None
        for _ in range(FILE_TRIES_MAX):
            try:
                async with aclosing(self._archived.messages(file, self.position)) as runs:
                    async for run in runs:
                        self.position = run[-1].offset + 1
                        yield run
                self.position = file.last + 1
                return
            except FileNotFoundError:
                manifest = await self._archived.refresh()
                found = manifest.covering(self._partition, self.position, self.position + 1)
                if not found or not isinstance(found[0], File) or found[0] == file:
                    raise DamagedFile(file, self._topic, "is not there") from None
                file = found[0]
        raise UnreadableArchive(f"{self._topic}: the archive's files change too fast to be read")

    async def _from_log(
        self, end: int | None, wait_s: float
    ) -> AsyncGenerator[list[Message], None]:
        """A page of the log; or nothing, where its start has moved past the position."""
        page = await self._page(0.0 if end is not None else wait_s)
        for _ in range(PATIENCE_PAGES):
            if end is None or page.messages or page.next_offset > self.position:
                break
            if page.log_start > self.position:
                break
            page = await self._page(PATIENCE_S)  # a new leader has yet to apply what there is
        else:
            raise Unavailable(
                f"{self._topic}:{self._partition} has nothing at {self.position} for now,"
                f" and ends at {end}"
            )
        self._log.log_start = page.log_start
        if page.log_start <= self.position:
            self.position = max(self.position, page.next_offset)
            yield page.messages

    async def _page(self, wait_s: float) -> Page:
        assert self._live is not None
        return await self._live.read(self._partition, self.position, wait_s, self._window.from_ms)

    async def _pass_unarchived(self, end: int | None) -> None:
        """Move to where the log begins. A compacted one has nothing before, and need not have."""
        if self._live is None:
            self._pass(self.position if end is None else end - 1, "not_archived")
        elif self._log.is_compacted or await self._log_begins_before():
            self._pass(self._log.log_start - 1, None)
        else:
            self._pass(self._log.log_start - 1, "not_archived")

    def _pass_damaged(self, file: File, text: str) -> None:
        """Move past a file that can't be read; what the log has of it is read there."""
        self._log_until, last = file.last + 1, file.last
        if self._live is not None:
            last = min(last, max(self.position, self._log.log_start) - 1)
        lost = file.last if self._log.is_compacted else last
        self._tell(self.position, lost, "damaged", text)
        self.position = last + 1

    def _pass(self, last: int, why: Why | None) -> None:
        """Move past a range without messages, telling what is missing."""
        first, self.position = self.position, max(self.position, last + 1)
        if why is not None:
            self._tell(first, last, why)

    def _tell(self, first: int, last: int, why: Why, text: str = "") -> None:
        if first <= last:
            self._on_missing(Missing(self._topic, self._partition, first, last, why, text))

    def _within(self, run: list[Message], end: int | None) -> list[Message]:
        """What of a run is in the window, and below `end`."""
        window = self._window
        low, high = 0, len(run)
        if end is not None and run and run[-1].offset >= end:
            high = bisect_left(run, end, key=_offset)
        if window.from_ms is not None and run and run[0].timestamp_ms < window.from_ms:
            low = bisect_left(run, window.from_ms, key=_timestamp_ms)
        if window.to_ms is not None and run and run[-1].timestamp_ms >= window.to_ms:
            high = min(high, bisect_left(run, window.to_ms, key=_timestamp_ms))
            self.is_over = True
        return run[low:high]


def first_place(items: Sequence[Covering], time_ms: int) -> int:
    """Behind the last file, of a partition's, whose messages are all older than the time."""
    older = (
        item.last + 1 for item in items if isinstance(item, File) and item.time_max_ms < time_ms
    )
    return max(older, default=0)
