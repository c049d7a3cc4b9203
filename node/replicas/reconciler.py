"""Follows the applied cluster state: after each change, what runs here is made to agree."""

from __future__ import annotations

from typing import Protocol

from coordinator.cluster.state import ClusterState
from goqueue.wire.types import PartitionId
from node.runtime.logger import get_logger
from node.runtime.periodic import Periodic

RETRY_S = 1.0
LOOK_S = 0.1
"""Between two looks at whether partitions may be founded."""

_log = get_logger("replicas")


class Known(Protocol):
    """What this node knows of the cluster."""

    state: ClusterState

    @property
    def is_newest(self) -> bool:
        """Whether the state is no older than any that this node has had before."""
        ...


class Kept(Protocol):
    """The replicas of this node, as `node.replicas.local` has them."""

    @property
    def waiting(self) -> list[PartitionId]: ...

    async def reconcile(self, state: ClusterState, *, may_found: bool) -> None: ...

    def stop_all(self) -> None: ...


class Reconciler:
    """A service that runs `Replicas.reconcile` after `changed()`, many changes at once."""

    def __init__(self, cluster: Known, replicas: Kept) -> None:
        self._cluster = cluster
        self._replicas = replicas
        self._rounds = Periodic(
            "reconciler", self._round, None, _log, "replicas_not_reconciled", retry_s=RETRY_S
        )

    def changed(self) -> None:
        """The cluster state is another one."""
        self._rounds.wake()

    async def start(self) -> None:
        await self._rounds.start()

    async def stop(self) -> None:
        await self._rounds.stop()
        self._replicas.stop_all()

    async def _round(self) -> float | None:
        cluster = self._cluster
        await self._replicas.reconcile(cluster.state, may_found=cluster.is_newest)
        return LOOK_S if self._replicas.waiting else None
