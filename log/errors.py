"""What can go wrong with stored bytes, each error with the data to act on it."""

from __future__ import annotations

import errno

from goqueue.wire.errors import GoQueueError


class LogError(GoQueueError):
    """The root of all errors of the log."""

    code = "log_error"
    http_status = 500


class DirectoryLocked(LogError):
    """Another process holds the data directory; `data` names its pid and node."""

    code = "directory_locked"

    def __init__(self, path: str, holder: str) -> None:
        super().__init__(f"data directory {path} is in use by {holder}", path=path, holder=holder)


class Damaged(LogError):
    """Stored bytes fail their checksum or are missing; nothing was read past them. `entries`:
    the first and the last one that they hide, where that is known."""

    code = "corrupt"

    def __init__(
        self, path: str, position: int, reason: str, entries: tuple[int, int] | None = None
    ) -> None:
        self.entries = entries
        super().__init__(
            f"{path} is damaged at byte {position}: {reason}",
            path=path,
            position=position,
            reason=reason,
        )


def reraise_other(error: Exception) -> None:
    """Raises the error again unless it is damage, or the medium's refusal to read (EIO)."""
    if not isinstance(error, Damaged) and not (
        isinstance(error, OSError) and error.errno == errno.EIO
    ):
        raise error


class WalDamaged(Damaged):
    """The write-ahead log lost acknowledged blocks: this node may no longer vote as it was.

    `Store.open(..., accept_damage=True)` opens what the segments still prove, as a new incarnation.
    """

    code = "wal_damaged"


class FrameDamaged(Damaged):
    """An entry frame fails its checksum or contradicts itself."""


class EntryDamaged(LogError):
    """An entry at or below the checkpoint cannot be read; its group is quarantined."""

    code = "entry_damaged"

    def __init__(self, group: str, first: int, last: int, reason: str) -> None:
        super().__init__(
            f"group {group}: entries {first} to {last} are damaged: {reason}",
            group=group,
            first=first,
            last=last,
            reason=reason,
        )


class EntryMissing(LogError):
    """The index lies outside what the log holds."""

    code = "entry_missing"

    def __init__(self, group: str, index: int, first: int, last: int) -> None:
        super().__init__(
            f"group {group}: no entry {index}, the log holds {first} to {last}",
            group=group,
            index=index,
            first=first,
            last=last,
        )


class NewerFormat(LogError):
    """The file was written by a newer release; it is left untouched."""

    code = "newer_format"

    def __init__(self, path: str, found: int, known: int) -> None:
        super().__init__(
            f"{path} has format {found}; this release reads up to format {known}",
            path=path,
            found=found,
            known=known,
        )


class StoreFailed(LogError):
    """A write or sync failed earlier: nothing more is accepted until the process restarts."""

    code = "store_failed"


class ReadOnly(LogError):
    """The store was opened read-only."""

    code = "read_only"


class InstallRefused(LogError):
    """The copy would take entries away that this replica may have promised to keep, or brings
    nothing."""

    code = "install_refused"
