"""What the HTTP front asks of the node about key compaction: `Compactions`."""

from __future__ import annotations

from typing import Protocol

import msgspec

from node.api.rules.rule import scoped, topic


class CompactionRun(msgspec.Struct, array_like=True, frozen=True):
    """What a run dropped and left, or what one would. `outcome`: done, nothing (to do), busy,
    running (it goes on), or why it ended early."""

    outcome: str
    dropped: int = 0
    kept: int = 0
    tombstones: int = 0
    bytes_before: int = 0
    bytes_after: int = 0


class PartitionCompaction(msgspec.Struct, array_like=True, frozen=True):
    """How a partition stands, as its leader sees it: what is sealed and not compacted, what was
    compacted and stays, and what all runs so far have come to. Times are Unix milliseconds, 0 for
    never."""

    running: bool = False
    dirty_bytes: int = 0
    clean_bytes: int = 0
    ratio: float = 0.0
    kept: int = 0
    runs: int = 0
    dropped: int = 0
    last_ms: int = 0
    run: CompactionRun | None = None


class Compactions(Protocol):
    """Compaction of topics, from any node."""

    @scoped(topic)
    async def compaction(self, topic: str) -> dict[int, PartitionCompaction | None]:
        """How each partition stands, None where its leader does not answer."""
        ...

    @scoped(topic)
    async def compact(self, topic: str, *, dry_run: bool) -> dict[int, PartitionCompaction | None]:
        """The same after a run in each, or what it would do: begun now, whatever the dirty ratio.
        Raises `Conflict` where the topic is not compacted."""
        ...
