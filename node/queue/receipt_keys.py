"""Has the cluster make a key for receipts when one is due, where the cluster group is led."""

from __future__ import annotations

import asyncio
import os

import structlog

from coordinator.access.receipt_keys import SECRET_BYTES
from coordinator.commands.keys import AddReceiptKey
from goqueue.wire.errors import GoQueueError
from log.levels import Feature
from node.cluster.host import ClusterHost

LOOK_S = 1.0
COMMAND_DEADLINE_S = 15.0

_log = structlog.get_logger("node")


class ReceiptKeyRotation:
    """A service."""

    def __init__(self, cluster: ClusterHost) -> None:
        self._cluster = cluster
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._task = asyncio.create_task(self._drive(), name="receipt-keys")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None

    async def look(self) -> None:
        """Add a key where one is due. Raises GoQueueError."""
        time_ms, keys = self._cluster.led_time_ms(), self._cluster.state.receipt_keys
        if time_ms is None or not self._cluster.levels.speaks(Feature.RECEIPT_KEYS):
            return
        if keys.is_due(time_ms):
            command = AddReceiptKey(keys.following, os.urandom(SECRET_BYTES))
            await self._cluster.command_here(command, COMMAND_DEADLINE_S)

    async def _drive(self) -> None:
        while True:
            try:
                await self.look()
            except GoQueueError as error:
                _log.debug("receipt_key_not_made", problem=error.message)
            except Exception:  # noqa: BLE001 - the task's outermost loop
                _log.exception("receipt_keys_failed")
            await asyncio.sleep(LOOK_S)
