"""Whether there is room to publish on this node's disk."""

from __future__ import annotations

import asyncio

from log.disk.space import SpaceState
from log.store.directory import Store
from node.metrics import Metrics
from node.runtime.logger import get_logger
from node.runtime.periodic import Periodic

INTERVAL_S = 1.0
DISK_LOW = "disk_low"
"""The name under which peers are told."""
ROOM_BYTES = "room_bytes"
"""Likewise: what replicas may come here, without publishes being refused for it."""

_log = get_logger("space")


class SpaceWatch:
    """A service that looks at the disk once a second; answers from what it saw."""

    def __init__(self, store: Store, metrics: Metrics) -> None:
        self._store = store
        self._metrics = metrics
        self._looks = Periodic("space-watch", self._look, INTERVAL_S, _log, "space_unknown")
        self.is_low = False
        self.free_bytes = 0
        self.room_bytes = 0

    async def start(self) -> None:
        self._saw(self._store.space())
        await self._looks.start()

    async def stop(self) -> None:
        await self._looks.stop()

    async def _look(self) -> None:
        try:
            # Off the loop: a file system that hangs must not take the node with it.
            self._saw(await asyncio.to_thread(self._store.space))
        except OSError as error:
            _log.warning("space_unknown", problem=str(error))

    def _saw(self, state: SpaceState) -> None:
        self.free_bytes, self.room_bytes = state.free_bytes, state.room_bytes
        storage = self._metrics.storage
        storage.disk_free_bytes.set(state.free_bytes)
        storage.disk_used_bytes.set(state.capacity_bytes - state.free_bytes)
        storage.disk_watermark_bytes.set(state.watermark_bytes)
        if state.low != self.is_low:
            self.is_low = state.low
            _log.warning("space_low" if state.low else "space_again", free_bytes=state.free_bytes)
