"""What a group's log asks of the store that keeps it, and the state that a voter keeps there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from goqueue.wire.types import GroupId, Index, Lsn, Term
from log.entry import Entry
from log.install import Install

if TYPE_CHECKING:
    from log.group import GroupLog
    from log.install import Reattach


@dataclass(frozen=True, slots=True)
class HardState:
    """What a Raft voter must never forget: its term, and whom it voted for in it."""

    term: Term
    vote: str | None


class Journal(Protocol):
    """What a group asks of its store."""

    durable_lsn: Lsn
    written_lsn: Lsn
    spilled_lsn: Lsn
    damaged_entries: int
    read_only: bool
    failed: Exception | None
    on_damaged: Callable[[GroupId], None]
    """Called with a group whose log, or a snapshot of whose state, was found damaged."""

    def record(
        self,
        kind: int,
        group: GroupLog | None,
        parts: Sequence[bytes],
        length: int,
        flags: int = 0,
    ) -> Lsn:
        """Appends a record to the pending block; the LSN after it."""
        ...

    def require_sync(self) -> None:
        """What was recorded so far counts as written no earlier than it is synced."""
        ...

    def holds(self, log: GroupLog) -> bool:
        """Whether its group was not removed meanwhile, nor made anew."""
        ...

    def disown_trimmed(self, group: GroupLog) -> None:
        """Deletes no file of the group any more but by a later trim. Raises InstallRefused."""
        ...

    def spill_later(
        self, group: GroupLog, step: Sequence[Entry] | int | Install | Reattach | None
    ) -> None:
        """Queues entries, a truncation, other segments, their names, or the end (None)."""
        ...

    def dirty(self) -> None:
        """Called after each change, once the group's own state agrees with what it logged."""
        ...


class SearchCall(Protocol):
    """A search in segments, put off."""

    def __call__(self) -> Index | None: ...
