"""Keys of the cluster by which nodes vouch for receipts, so that nobody makes up another's.

The leader of the cluster group has one made each day; the former ones are remembered for as long as
receipts hold. They are secrets, and stand in the cluster's log and snapshots: who reads a node's
disk can make up receipts, and could read the messages too.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from coordinator.commands.keys import AddReceiptKey, KeyResult
from coordinator.errors import BadConfig

ROTATED_MS = 24 * 3600 * 1000
KEYS_MAX = 32
"""A receipt holds for 31 days, however often its lease is extended."""
SECRET_BYTES = 32


class ReceiptKey(msgspec.Struct, array_like=True, frozen=True):
    """One key; ids count up from 1. `created_ms` is log time of the cluster group."""

    id: int
    secret: bytes
    created_ms: int


class ReceiptKeys:
    """Those that are remembered, oldest first. Commands in, state out."""

    def __init__(self, keys: Iterable[ReceiptKey] = ()) -> None:
        self.all: tuple[ReceiptKey, ...] = tuple(keys)
        """Another tuple after each change."""

    def is_due(self, time_ms: int) -> bool:
        """Whether it is time for another one."""
        return not self.all or time_ms >= self.all[-1].created_ms + ROTATED_MS

    @property
    def following(self) -> int:
        """The id of the next one."""
        return self.all[-1].id + 1 if self.all else 1

    def add(self, time_ms: int, command: AddReceiptKey) -> KeyResult:
        """One a day, whoever proposes it and however often. Raises BadConfig."""
        if len(command.secret) != SECRET_BYTES:
            raise BadConfig([f"secret: must have {SECRET_BYTES} bytes"])
        is_made = command.id == self.following and self.is_due(time_ms)
        if is_made:
            added = ReceiptKey(command.id, command.secret, time_ms)
            self.all = (*self.all, added)[-KEYS_MAX:]
        return KeyResult(str(command.id), created=is_made)
