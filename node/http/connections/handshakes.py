"""TLS handshakes under way: how many, from where, and which is the oldest."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable


class Handshakes:
    """Each by the connection that it is to become. The task that makes it ends it, however."""

    def __init__(self) -> None:
        self._all: dict[Hashable, tuple[str, asyncio.Task[None]]] = {}
        self._from: dict[str, dict[Hashable, asyncio.Task[None]]] = {}

    def __len__(self) -> int:
        return len(self._all)

    def count_from(self, address: str) -> int:
        return len(self._from.get(address, ()))

    def begin(self, connection: Hashable, address: str, task: asyncio.Task[None]) -> None:
        self._all[connection] = address, task
        self._from.setdefault(address, {})[connection] = task

    def end(self, connection: Hashable) -> None:
        """It is done, or was given up. Idempotent."""
        address, _ = self._all.pop(connection, ("", None))
        found = self._from.get(address)
        if found is not None:
            found.pop(connection, None)
            if not found:
                del self._from[address]

    def give_up_oldest(self, address: str | None = None) -> bool:
        """Of this address, or of all; False where there is none."""
        connection = next(iter(self._all if address is None else self._from.get(address, ())), None)
        if connection is None:
            return False
        _, task = self._all[connection]
        self.end(connection)
        task.cancel()
        return True
