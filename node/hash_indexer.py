"""Keeps search hashes up to date, at a small share of the processor, so that look-ups find little
left to do."""

from __future__ import annotations

import asyncio
import math

import structlog

from node.replicas import Replicas

STEPS = 4
"""Steps of one partition, before the next one has its turn."""
REST = 9.0
"""Rests between them, as a multiple of what they took: at most a tenth of a core goes there."""
IDLE_S = 0.5

_log = structlog.get_logger("search_hashes")


class HashIndexer:
    """A service that goes round the replicas of this node; with `enabled` off it does nothing, and
    each look-up hashes what it needs."""

    def __init__(self, replicas: Replicas, *, enabled: bool = True) -> None:
        self._replicas = replicas
        self._enabled = enabled
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        if self._enabled:
            self._task = asyncio.create_task(self._run(), name="hash_indexer")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None

    async def _run(self) -> None:
        while True:
            try:
                is_whole = await self._round()
            except Exception:  # noqa: BLE001 - the task's outermost loop
                _log.exception("indexing_failed")
                is_whole = True
            await asyncio.sleep(IDLE_S if is_whole else 0)

    async def _round(self) -> bool:
        """Whether nothing is left that could be done now."""
        loop = asyncio.get_running_loop()
        more = False
        for host in list(self._replicas.all()):
            if host.hashes.is_current:
                continue
            begun_s = loop.time()
            is_whole = await host.hashes.catch_up(math.inf, steps=STEPS)
            more |= not is_whole and not host.hashes.is_resting
            await asyncio.sleep(REST * (loop.time() - begun_s))
        return not more
