"""Keeps what is found in replicas' entries up to date, at a small share of the processor, so that
look-ups find little left to do."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Any

from node.partition.host import PartitionHost
from node.partition.reading.segment_follower import SegmentFollower
from node.runtime.logger import get_logger
from node.runtime.looks import Looks
from node.runtime.periodic import Periodic

STEPS = 4
"""Steps of one partition, before the next one has its turn."""
REST = 9.0
"""Rests between them, as a multiple of what they took: at most a tenth of a core goes there."""
IDLE_S = 0.5
SWEEP_S = 10.0
"""Between sweeps, where nothing is indexed."""

_log = get_logger("indexer")


class Indexer:
    """A service that goes round the replicas of this node, for one index of each. Switched off, it
    only takes away what stands beside no segment any more: each look-up makes what it needs."""

    def __init__(
        self,
        name: str,
        replicas: Looks[PartitionHost],
        index_of: Callable[[PartitionHost], SegmentFollower[Any, Any]],
        *,
        enabled: bool = True,
    ) -> None:
        self._name = name
        self._replicas = replicas
        self._index_of = index_of
        self._enabled = enabled
        self._rounds = Periodic(
            name, self._round, IDLE_S, _log.bind(index=name), "indexer_failed", first_s=0.0
        )

    async def start(self) -> None:
        await self._rounds.start()

    async def stop(self) -> None:
        await self._rounds.stop()

    async def _round(self) -> float:
        is_whole = await self.round()
        idle_s = IDLE_S if self._enabled else SWEEP_S
        return idle_s if is_whole else 0.0

    async def round(self) -> bool:
        """Some steps of each replica; whether nothing is left that could be done now."""
        loop = asyncio.get_running_loop()
        more = False
        for host in self._replicas.take():
            index = self._index_of(host)
            if index.is_current and index.sees_all:
                continue
            if index.is_current or (self._enabled and not index.is_due) or index.is_resting:
                self._replicas.again(host)
                continue
            begun_s = loop.time()
            try:
                if self._enabled:
                    is_whole = await index.catch_up(math.inf, steps=STEPS)
                    more |= not is_whole and not index.is_resting
                    self._replicas.again(host)
                else:
                    await index.sweep()
            except Exception:  # noqa: BLE001 - one partition's trouble is none of the others'
                _log.exception("indexing_failed", index=self._name, group=str(host.id))
                self._replicas.again(host)
            await asyncio.sleep(REST * (loop.time() - begun_s))
        return not more


def indexers(
    looks: Callable[[], Looks[PartitionHost]], *, enabled: bool
) -> list[tuple[str, Indexer]]:
    """One for each index of a node's replicas, with its name."""
    of: dict[str, Callable[[PartitionHost], SegmentFollower[Any, Any]]] = {
        "hash_indexer": lambda host: host.hashes,
        "timeline_indexer": lambda host: host.message_entries,
    }
    return [
        (name, Indexer(name, looks(), index_of, enabled=enabled)) for name, index_of in of.items()
    ]
