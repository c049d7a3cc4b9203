"""What a log holds beyond the entries of a copy that is to take its place, and must not be lost."""

from __future__ import annotations

from contextlib import suppress
from typing import Protocol

from goqueue.wire.types import Index, PartitionId, Term
from log.entry import Entry
from log.errors import EntryDamaged, InstallRefused
from log.wal.install import Install

BEYOND_BYTES_MAX = 16 << 20
"""Entries beyond the copied ones that are kept; with more, a newer copy is needed."""


class ReplacedLog(Protocol):
    """What is asked of the log that a copy replaces: see `log.partition.log.PartitionLog`."""

    id: PartitionId
    first_index: Index

    @property
    def last_index(self) -> Index: ...

    @property
    def quarantined(self) -> bool: ...

    @property
    def untrusted(self) -> bool: ...

    def term_at(self, index: Index) -> Term | None: ...

    def entries(
        self, first: Index, *, max_bytes: int = ..., max_count: int = ...
    ) -> list[Entry]: ...

    def identity(self, index: Index) -> tuple[Term, int] | None: ...

    def mark_suspect(self) -> None: ...


def entries_beyond(log: ReplacedLog, install: Install) -> list[Entry]:
    """The entries that follow the copied ones and must not be lost with the log that was.

    Where the log has another entry in the place of the last copied one, which is committed, all
    after it was never committed. Raises InstallRefused.
    """
    last = install.last_index
    if log.last_index < last or log.untrusted:
        return []
    if log.first_index > last:
        raise InstallRefused(f"group {log.id}: the log begins at {log.first_index}, after {last}")
    if not _continues(log, install):
        return []
    if not log.quarantined:
        raise InstallRefused(f"group {log.id} holds entry {last} already")
    return _read_beyond(log, Index(last + 1))


def _continues(log: ReplacedLog, install: Install) -> bool:
    """Whether the log has the copy's last entry, which is committed, in its place.

    By that entry, else by the next one: the leader of that one's term held the committed entry if
    it is not older. Where neither can be read, the term index tells; it may be damaged, too, and
    what goes then may have been acknowledged: such a log is suspect.
    """
    last = install.last_index
    for index in (last, last + 1):
        if index <= log.last_index:
            with suppress(EntryDamaged):
                return (log.term_at(Index(index)) or 0) >= install.last_term
    known = log.identity(last)
    if known is not None and known[0] == install.last_term:
        return True
    if log.last_index > last:
        log.mark_suspect()
    return False


def _read_beyond(log: ReplacedLog, index: Index) -> list[Entry]:
    entries: list[Entry] = []
    size = 0
    try:
        while index <= log.last_index:
            entries += log.entries(index, max_count=256)
            size += sum(len(entry.frame) for entry in entries[index - entries[0].index :])
            index = Index(entries[-1].index + 1)
            if size > BEYOND_BYTES_MAX:
                raise InstallRefused(f"group {log.id}: too much follows entry {entries[0].index}")
    except EntryDamaged as error:
        raise InstallRefused(f"group {log.id}: {error}") from error
    return entries
