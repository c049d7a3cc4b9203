"""Has the cluster make a key for receipts when one is due, where the cluster group is led."""

from __future__ import annotations

import os

from coordinator.access.receipt_keys import SECRET_BYTES
from coordinator.commands.keys import AddReceiptKey
from goqueue.wire.errors import GoQueueError
from log.levels import Feature
from node.cluster.host import ClusterHost
from node.runtime.logger import get_logger
from node.runtime.periodic import Periodic

LOOK_S = 1.0
COMMAND_DEADLINE_S = 15.0

_log = get_logger("node")


class ReceiptKeyRotation:
    """A service."""

    def __init__(self, cluster: ClusterHost) -> None:
        self._cluster = cluster
        self._looks = Periodic(
            "receipt-keys", self._round, LOOK_S, _log, "receipt_keys_failed", first_s=0.0
        )

    async def start(self) -> None:
        await self._looks.start()

    async def stop(self) -> None:
        await self._looks.stop()

    async def look(self) -> None:
        """Add a key where one is due. Raises GoQueueError."""
        time_ms, keys = self._cluster.led_time_ms(), self._cluster.state.receipt_keys
        if time_ms is None or not self._cluster.levels.speaks(Feature.RECEIPT_KEYS):
            return
        if keys.is_due(time_ms):
            command = AddReceiptKey(keys.following, os.urandom(SECRET_BYTES))
            await self._cluster.command_here(command, COMMAND_DEADLINE_S)

    async def _round(self) -> None:
        try:
            await self.look()
        except GoQueueError as error:
            _log.debug("receipt_key_not_made", problem=error.message)
