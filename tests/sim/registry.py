"""Which partitions run on a simulated node: the production code that follows the cluster state, on
virtual time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coordinator.cluster.state import ClusterState, Topic
from goqueue.wire.types import PartitionId
from log.partition.log import PartitionLog
from node.replicas.local import ReplicasOf
from node.replicas.reconciler import Reconciler
from tests.sim.replica import Replica

if TYPE_CHECKING:
    from tests.sim.managed import ClusterReplica
    from tests.sim.process import Process


class Registry:
    """Of one process."""

    def __init__(self, process: Process, cluster: ClusterReplica) -> None:
        self._process = process
        self._cluster = cluster
        self.replicas: ReplicasOf[Replica] = process.world.mutant.replicas(
            process.voter, store=process.store, raft=process.host, make=self._make
        )
        self._reconciler = Reconciler(cluster, self)

    def start(self) -> None:
        self._process.coroutines.start(self._reconciler.start(), lambda _none: None)

    def changed(self) -> None:
        """Look soon at what should run here."""
        self._reconciler.changed()

    def orphans(self) -> list[PartitionId]:
        return self.replicas.orphans(self._cluster.state)

    # as a node's parts tell its replicas

    def release(self, partition_id: PartitionId) -> None:
        """The replica's log is another one, or will not be."""
        self.replicas.release(partition_id)
        self.healed(partition_id)

    def healed(self, partition_id: PartitionId) -> None:
        self.replicas.healed(partition_id)
        self.changed()

    # as the reconciler sees it

    @property
    def waiting(self) -> list[PartitionId]:
        return self.replicas.waiting

    async def reconcile(self, state: ClusterState, *, may_found: bool) -> None:
        process = self._process
        await self.replicas.reconcile(state, may_found=may_found)
        if self.replicas.refused and process.healing is None:
            process.world.checks.violated(f"starts: {process.node}: {self.replicas.refused}")
        process.groups_changed()

    def stop_all(self) -> None:
        self.replicas.stop_all()

    def _make(
        self, partition_id: PartitionId, _topic: Topic, log: PartitionLog, _created: int
    ) -> Replica:
        log.relaxed = self._process.world.shape.relaxed
        return Replica(self._process, partition_id, log, self._process.world.mutant)
