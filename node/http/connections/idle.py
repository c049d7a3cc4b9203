"""Connections that nobody needs most: idle, and whose client has not shown that it may come in."""

from __future__ import annotations

from collections.abc import Hashable


class Idle:
    """By address, the longest idle first. Bounded by the connections that there are."""

    def __init__(self) -> None:
        self._all: dict[Hashable, str] = {}
        self._of: dict[str, dict[Hashable, None]] = {}

    def __len__(self) -> int:
        return len(self._all)

    def add(self, connection: Hashable, address: str) -> None:
        """It is idle from now on."""
        self.remove(connection)
        self._all[connection] = address
        self._of.setdefault(address, {})[connection] = None

    def remove(self, connection: Hashable) -> None:
        """Idempotent."""
        address = self._all.pop(connection, None)
        if address is not None:
            found = self._of[address]
            del found[connection]
            if not found:
                del self._of[address]

    def oldest(self, address: str | None = None) -> Hashable | None:
        """Of this address, or of all."""
        return next(iter(self._all if address is None else self._of.get(address, ())), None)
