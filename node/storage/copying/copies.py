"""Both ends of copying whole replicas, as one part of a node: what it serves, and what it makes."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from goqueue.wire.types import NodeId, PartitionId
from log.store.directory import Store
from node.runtime.throttle import Throttle
from node.storage.copying.limits import CopyLimits
from node.storage.copying.pace import CopyPace
from node.storage.copying.pull import PullParts
from node.storage.copying.source import (
    CopiedPartitions,
    TransferSource,
    behind_here,
    committed_here,
)
from node.storage.copying.transfer import ReplicaControl, Transfers
from node.storage.parts import StorageParts

COPIED_BYTES = 64 << 20
"""A new replica of a log this large begins with a copy, which goes faster than its entries, costs
their leader less, and keeps to a rate."""
LIMITS = CopyLimits()


class CopyControl(ReplicaControl, Protocol):
    """What stops and starts replicas, and knows where others are."""

    def sources(self, partition_id: PartitionId) -> list[NodeId]: ...


class RandomU64(Protocol):
    """A generator of random bits."""

    def getrandbits(self, k: int, /) -> int: ...


class Copies:
    """A service: a `TransferSource` and a `Transfers` that share one thread for files."""

    def __init__(
        self,
        parts: StorageParts,
        control: CopyControl,
        *,
        rng: RandomU64,
        bytes_per_s: int,
        bound_bytes_s: Callable[[PartitionId], int] = lambda _partition_id: 0,
        room_bytes: Callable[[], int] = lambda: 1 << 62,
        prepare: Callable[[PartitionId], Awaitable[object]] | None = None,
        renew: Callable[[PartitionId], Awaitable[bool]] | None = None,
    ) -> None:
        """`bytes_per_s` bounds all copies made here together, `bound_bytes_s` each group's; it
        bounds what others copy from here, too, and is lowered while syncs here take longer."""
        self._workers = ThreadPoolExecutor(1, thread_name_prefix="goqueue-copies")
        self.throttle = Throttle(bytes_per_s, time.monotonic)
        pace = CopyPace(bytes_per_s, time.monotonic)
        parts.flusher.on_synced = pace.synced
        self.source = TransferSource(
            parts,
            CopiedPartitions(
                committed=lambda partition_id: committed_here(parts.raft, partition_id),
                behind=lambda: behind_here(parts.raft),
                prepare=prepare,
                renew=renew,
            ),
            workers=self._workers,
            now_s=time.monotonic,
            random_u64=lambda: rng.getrandbits(64),
            pace=pace,
            limits=LIMITS,
        )
        self.transfers = Transfers(
            parts.store,
            parts.flusher,
            PullParts(
                parts.link,
                self._workers,
                self.throttle,
                parts.metrics,
                time.monotonic,
                bound_bytes_s=bound_bytes_s,
                room_bytes=room_bytes,
                limits=LIMITS,
            ),
            control,
            sources=control.sources,
            random_u64=lambda: rng.getrandbits(64),
        )

    async def start(self) -> None:
        await self.source.start()
        await self.transfers.start()

    async def stop(self) -> None:
        await self.transfers.stop()
        await self.source.stop()
        self._workers.shutdown(wait=False)


def is_copied(store: Store, partition_id: PartitionId) -> bool:
    """Whether new replicas of a group led here begin with a copy."""
    return (
        store.has_log(partition_id) and store.partition_log(partition_id).size_bytes >= COPIED_BYTES
    )
