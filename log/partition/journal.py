"""What a group's log asks of the store that keeps it, and the state that a voter keeps there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from goqueue.wire.types import Index, Lsn, PartitionId, Term
from log.entry import Entry
from log.wal.install import Install

G_contra = TypeVar("G_contra", contravariant=True)


class Reattach:
    """A step: files whose names were deleted get them again."""


Step = Sequence[Entry] | int | Install | Reattach | None
"""Entries to append, the index to truncate from, a copy to put in place, names to give back, or
None: delete the group's files."""


@dataclass(frozen=True, slots=True)
class HardState:
    """What a Raft voter must never forget: its term, and whom it voted for in it."""

    term: Term
    vote: str | None


class Journal(Protocol[G_contra]):
    """What a group asks of its store, where groups have logs of type `G_contra`."""

    durable_lsn: Lsn
    written_lsn: Lsn
    spilled_lsn: Lsn
    damaged_entries: int
    damaged_ids: set[PartitionId]
    read_only: bool
    failed: Exception | None
    on_damaged: Callable[[PartitionId], None]
    """Called with a group whose log, or a snapshot of whose state, was found damaged."""

    def record(
        self,
        kind: int,
        partition_log: G_contra | None,
        parts: Sequence[bytes],
        length: int,
        flags: int = 0,
        *,
        relaxed: bool = False,
    ) -> Lsn:
        """Appends a record to the pending block; the LSN after it. Entries that are `relaxed` may
        be synced later."""
        ...

    def require_sync(self) -> None:
        """What was recorded so far counts as written no earlier than it is synced."""
        ...

    def holds(self, partition_log: G_contra) -> bool:
        """Whether its group was not removed meanwhile, nor made anew."""
        ...

    def disown_trimmed(self, partition_log: G_contra) -> None:
        """Deletes no file of the group any more but by a later trim. Raises InstallRefused."""
        ...

    def spill_later(self, partition_log: G_contra, step: Step) -> None:
        """Queues entries, a truncation, other segments, their names, or the end (None)."""
        ...

    def dirty(self) -> None:
        """Called after each change, once the group's own state agrees with what it logged."""
        ...


class SearchCall(Protocol):
    """A search in segments, put off."""

    def __call__(self) -> Index | None: ...
