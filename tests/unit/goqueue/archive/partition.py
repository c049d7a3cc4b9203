"""A partition's log and archive in memory, for readers that go through both."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field

import msgspec

from goqueue.archive.layout import Kind, Series, day_of
from goqueue.archive.manifest import File, Gap, Manifest
from goqueue.archive.rows import DamagedFile
from goqueue.errors import OffsetOutOfRange
from goqueue.models.messages import Message, Page

SERIES = Series(Kind.MESSAGES, "orders", "00000000000000ab-7")
PAGE = 4
BEGAN_MS = 1_700_000_000_000
STEP_MS = 1000


def message(offset: int) -> Message:
    """The one message that can be at an offset; a second after the one before."""
    return Message("orders", 0, offset, BEGAN_MS + STEP_MS * offset, b"%d" % offset)


def file(first: int, last: int, count: int | None = None) -> File:
    """Of messages `first` to `last`, of which compaction may have left `count`."""
    began_ms, ended_ms = message(first).timestamp_ms, message(last).timestamp_ms
    path = SERIES.data_path(day_of(began_ms), 0, first, last)
    many = last - first + 1 if count is None else count
    return File(path, 0, first, last, many, 1, "", began_ms, ended_ms)


def nothing() -> None:
    """What happens between two steps of a reader, if nothing is to happen."""


@dataclass
class Partition:
    """Partition 0: what its log holds, and its archive. It is both `Live` and `Archived`."""

    end: int
    log_start: int = 0
    dropped: set[int] = field(default_factory=set[int])
    """What compaction has dropped from the log."""
    manifest: Manifest = field(default_factory=lambda: Manifest.empty(SERIES))
    known: Manifest = field(default_factory=lambda: Manifest.empty(SERIES))
    gone: set[str] = field(default_factory=set[str])
    damaged: set[str] = field(default_factory=set[str])
    between: Callable[[], None] = nothing
    """Called before each page of the log and each run of a file."""
    pages_read: int = 0
    files_read: list[str] = field(default_factory=list[str])

    def archive(self, *items: File | Gap) -> None:
        """Commit these in a new manifest, which readers see once they look."""
        self.manifest = msgspec.structs.replace(
            self.manifest.extended(items), version=self.manifest.version + 1
        )

    def compact(self, first: int, last: int) -> None:
        """One file in place of those of a range; the old ones go at once."""
        old = [f for f in self.manifest.files if first <= f.first and f.last <= last]
        new = file(old[0].first, old[-1].last, sum(f.count for f in old))
        new = msgspec.structs.replace(new, path=f"{new.path}.c{self.manifest.version}")
        self.manifest = msgspec.structs.replace(
            self.manifest.replaced(old, new, 0), version=self.manifest.version + 1
        )
        self.gone |= {f.path for f in old}

    async def current(self) -> Manifest:
        if self.known.version == 0:
            self.known = self.manifest
        return self.known

    async def refresh(self) -> Manifest:
        self.known = self.manifest
        return self.known

    async def messages(self, file: File, first: int) -> AsyncGenerator[list[Message], None]:
        self.files_read.append(file.path)
        if file.path in self.gone:
            raise FileNotFoundError(file.path)
        if file.path in self.damaged:
            raise DamagedFile(file, "orders", "is damaged")
        start = max(first, file.first)
        for at in range(start, file.last + 1, PAGE):
            self.between()
            yield [message(offset) for offset in range(at, min(at + PAGE, file.last + 1))]

    async def read(self, partition: int, offset: int, wait_s: float, from_ms: int | None) -> Page:
        self.between()
        self.pages_read += 1
        if offset > self.end:
            raise OffsetOutOfRange(offset, self.log_start, self.end)
        at = max(offset, self.log_start)
        if from_ms is not None:
            while at < self.end and message(at).timestamp_ms < from_ms:
                at += 1
        found: list[Message] = []
        while at < self.end and len(found) < PAGE:
            if at not in self.dropped:
                found.append(message(at))
            at += 1
        return Page("orders", partition, found, at, self.log_start, self.end)


def offsets(runs: Sequence[Sequence[Message]]) -> list[int]:
    """Of all messages; each is the one that belongs there."""
    found = [one for run in runs for one in run]
    assert found == [message(one.offset) for one in found]
    return [one.offset for one in found]
