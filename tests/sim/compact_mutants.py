"""Bugs of key compaction, by what they replace: the leader's run, or what a replica remembers."""

from __future__ import annotations

from collections.abc import AsyncIterator

from delivery.history.compacted_set import CompactedSet
from delivery.offsets.bitmaps import BitMap64
from delivery.state.partition import PartitionState
from goqueue.wire.types import Index
from log.entry import Entry
from node.partition.retention.compaction import Compactor


class NullsGoAtOnce(Compactor):
    """A null value goes with the run that meets it first."""

    async def _live(self, index: Index, now_ms: int) -> tuple[BitMap64, BitMap64]:
        live, nulls = await super()._live(index, now_ms)
        return live - nulls, nulls


class ForgetsEarlierRuns(Compactor):
    """What an earlier run has kept is not looked at: keys that were not written since go."""

    async def _sources(
        self, index: Index, kept: BitMap64
    ) -> AsyncIterator[tuple[list[Entry], BitMap64 | None]]:
        async for entries, among in super()._sources(index, kept):
            if among is None:
                yield entries, among


class KeepsSuperseded(Compactor):
    """What an earlier run has kept stays, whatever came after."""

    async def _live(self, index: Index, now_ms: int) -> tuple[BitMap64, BitMap64]:
        live, nulls = await super()._live(index, now_ms)
        return live | self._state.queue.compacted, nulls


class KeptNotInSnapshot(PartitionState):
    """Who restarts from a snapshot knows nothing of what is kept."""

    def restore(self, state: bytes) -> None:
        super().restore(state)
        self.queue.compacted_set = CompactedSet()
