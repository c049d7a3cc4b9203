"""Whether there is room to publish: here, and on a majority of the nodes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import Any

import structlog

from goqueue.wire.types import NodeId
from log.store import Store
from node.metrics import Metrics

INTERVAL_S = 1.0
DISK_LOW = "disk_low"
"""The name under which peers are told."""
ROOM_BYTES = "room_bytes"
"""Likewise: what replicas may come here, without publishes being refused for it."""

_log = structlog.get_logger("space")


class SpaceWatch:
    """A service that looks at the disk once a second; answers from what it saw."""

    def __init__(
        self,
        store: Store,
        metrics: Metrics,
        hellos: Callable[[], Mapping[NodeId, Mapping[str, Any]]],
        nodes: Callable[[], Collection[NodeId]],
    ) -> None:
        self._store = store
        self._metrics = metrics
        self._hellos = hellos
        self._nodes = nodes
        self._task: asyncio.Task[None] | None = None
        self.is_low = False
        self.free_bytes = 0
        self.room_bytes = 0

    async def start(self) -> None:
        self._look()
        self._task = asyncio.create_task(self._watch(), name="space-watch")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None

    def refuses(self) -> bool:
        """Whether publishes are refused: this node, or a majority of all, is short of room."""
        if self.is_low:
            return True
        short = [node for node, hello in self._hellos().items() if hello.get(DISK_LOW) is True]
        if not short:
            return False
        nodes = self._nodes()
        return sum(node in nodes for node in short) * 2 > len(nodes)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(INTERVAL_S)
            try:
                self._look()
            except OSError as error:
                _log.warning("space_unknown", problem=str(error))

    def _look(self) -> None:
        state = self._store.space()
        self.free_bytes, self.room_bytes = state.free_bytes, state.room_bytes
        self._metrics.disk_free_bytes.set(state.free_bytes)
        if state.low != self.is_low:
            self.is_low = state.low
            _log.warning("space_low" if state.low else "space_again", free_bytes=state.free_bytes)
