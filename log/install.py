"""Putting a copied replica in the place of a group's log: one record, then files renamed.

The copied files lie in the group's directory, verified and synced, under names of their own. The
record in the write-ahead log decides: before it is durable they are nothing, from then on they are
the log, and whoever opens the directory next finishes the renames. Each is a step that may be
repeated, so power may go between any two.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from goqueue.wire.types import Index, Term
from log.disk import Disk
from log.entry import Entry
from log.errors import EntryDamaged, LogError
from log.segment import SUFFIXES
from log.snapshot import SUFFIX as SNAPSHOT_SUFFIX
from log.snapshot import snapshot_name

if TYPE_CHECKING:
    from log.group import GroupLog

INCOMING = ".incoming"
UNKNOWN_END = (1 << 63) - 1
"""A damaged range's end where nobody knows how far the log went."""
BEYOND_BYTES_MAX = 16 << 20
"""Entries beyond the copied ones that are kept; with more, a newer copy is needed."""
_FIXED = struct.Struct("<QQQQQQ")
_FIRST = struct.Struct("<Q")


class Reattach:
    """A step: files whose names were deleted get them again."""


class InstallRefused(LogError):
    """The copy would take entries away that this replica may have promised to keep, or brings
    nothing."""

    code = "install_refused"


@dataclass(frozen=True, slots=True)
class Install:
    """Entries `first_index` to `last_index`, all committed, and a snapshot of the state after one
    of them (0: none, the log begins at 1). `segments` are the first indexes of the files; `id`
    tells this copy's files from those of another."""

    id: int
    first_index: Index
    base_term: int
    last_index: Index
    last_term: Term
    snapshot_index: int
    segments: tuple[int, ...]

    def pack(self) -> bytes:
        """The record's payload."""
        fixed = _FIXED.pack(
            self.id,
            self.first_index,
            self.base_term,
            self.last_index,
            self.last_term,
            self.snapshot_index,
        )
        return fixed + struct.pack(f"<{len(self.segments)}Q", *self.segments)

    @classmethod
    def unpack(cls, payload: bytes | memoryview) -> Install:
        id, first, base_term, last, last_term, snapshot = _FIXED.unpack_from(payload)
        segments = tuple(first for (first,) in _FIRST.iter_unpack(payload[_FIXED.size :]))
        return cls(id, Index(first), base_term, Index(last), Term(last_term), snapshot, segments)

    def names(self) -> list[str]:
        """The files it consists of, by the names they are to have."""
        names = [f"{first:016x}{suffix}" for first in self.segments for suffix in SUFFIXES]
        return [*names, snapshot_name(self.snapshot_index)] if self.snapshot_index else names

    def damage_left(self, damaged: tuple[Index, Index] | None) -> tuple[Index, Index] | None:
        """What of a damaged range lies beyond the copy: it was acknowledged, and is not back.

        Where nobody knows how far it goes, the log is suspect instead.
        """
        if damaged is None or damaged[1] <= self.last_index or damaged[1] == UNKNOWN_END:
            return None
        return Index(max(damaged[0], self.last_index + 1)), damaged[1]


def incoming_suffix(id: int) -> str:
    """What the names of a copy's files end with until they are in place."""
    return f".{id:016x}{INCOMING}"


def incoming_id(name: str) -> int | None:
    """Whose file this is; None for any other file."""
    if not name.endswith(INCOMING):
        return None
    try:
        return int(name.removesuffix(INCOMING).rpartition(".")[2], 16)
    except ValueError:
        return None


def move_in(disk: Disk, directory: str, install: Install, forget: Callable[[str], None]) -> None:
    """Renames what is still to be renamed, after deleting files of the log that was.

    Unsynced; `forget` is told every path whose file is now another one. May be repeated, also
    where earlier attempts came to a part of it only.
    """
    names = disk.list_directory(directory)
    wanted = set(install.names())
    for name in names:
        old = name.endswith(SUFFIXES) and name not in wanted
        if old or _is_useless_snapshot(name, install):
            forget(f"{directory}/{name}")
            with suppress(FileNotFoundError):  # a newer snapshot has pushed it out meanwhile
                disk.unlink(f"{directory}/{name}")
    suffix = incoming_suffix(install.id)
    for name in names:
        if name.endswith(suffix):
            target = name.removesuffix(suffix)
            forget(f"{directory}/{name}")
            forget(f"{directory}/{target}")
            disk.rename(f"{directory}/{name}", f"{directory}/{target}")


def entries_beyond(log: GroupLog, install: Install) -> list[Entry]:
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


def _continues(log: GroupLog, install: Install) -> bool:
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
        log.doubt()
    return False


def _read_beyond(log: GroupLog, index: Index) -> list[Entry]:
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


def _is_useless_snapshot(name: str, install: Install) -> bool:
    """Of a state before the log's new beginning."""
    if not name.endswith(SNAPSHOT_SUFFIX):
        return False
    return int(name.removesuffix(SNAPSHOT_SUFFIX), 16) < install.first_index - 1
