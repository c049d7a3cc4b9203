"""What stops a partition's replica: an entry that can't follow what it has applied."""

from __future__ import annotations

from log.levels import Unspoken


class DeliveryError(Exception):
    """The root. Never an answer to a request: the replica that meets one stops."""


class Diverged(DeliveryError):
    """An entry's offset or index does not continue the state: a bug, or a damaged log."""


class UnknownKind(DeliveryError, Unspoken):
    """An entry, or an operation, that this version does not know: a newer version wrote it."""


class SnapshotUnreadable(DeliveryError):
    """A state snapshot of another version, or not one at all."""
