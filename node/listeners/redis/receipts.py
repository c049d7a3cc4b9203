"""Receipts of what one connection was given: XACK names entries by their ids.

What is not known here is looked up at the partition's leader: entries that another connection was
given are acknowledged as well.
"""

from __future__ import annotations

from collections import OrderedDict

from node.listeners.redis.ids import EntryId

KNOWN_MAX = 10_000
"""Receipts of one connection, the newest: as many as a group may have in flight in a partition."""

Place = tuple[str, str]
"""A stream and a group."""


class KnownReceipts:
    """By place and id. What was acknowledged is forgotten."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[Place, EntryId], str] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def add(self, place: Place, id: EntryId, receipt: str) -> None:
        self._known[place, id] = receipt
        if len(self._known) > KNOWN_MAX:
            self._known.popitem(last=False)

    def take(self, place: Place, id: EntryId) -> str | None:
        return self._known.pop((place, id), None)
