"""Bugs of what copies replicas, and of what starts and stops them."""

from __future__ import annotations

from typing import Any

from coordinator.cluster.state import ClusterState
from goqueue.wire.types import PartitionId
from node.replicas.local import ReplicasOf
from node.storage.copying.source import TransferSource


class OffersNothing(TransferSource):
    """A replica that needs what its leader's log no longer has is not told."""

    async def offer(self) -> None:
        return None


class RunsWhileHeld(ReplicasOf[Any]):
    """A replica goes on while its log is replaced."""

    def hold(self, partition_id: PartitionId) -> bool:
        return True


class NeverReleased(ReplicasOf[Any]):
    """A replica whose log was replaced is not started again."""

    def release(self, partition_id: PartitionId) -> None:
        return None


class FoundsEarly(ReplicasOf[Any]):
    """Partitions are founded by a state that may be older than one that was known here."""

    async def reconcile(self, state: ClusterState, *, may_found: bool = True) -> None:
        await super().reconcile(state, may_found=True)


class RetiresUnasked(ReplicasOf[Any]):
    """What the state does not name goes, though it may take part."""

    def _is_removed(self, state: ClusterState, partition_id: PartitionId) -> bool:
        return partition_id not in self._held and self._me not in state.layout.holders(partition_id)
