"""Which partitions run on a simulated node: the production code that follows the cluster state, on
virtual time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coordinator.cluster.state import ClusterState, Topic
from goqueue.wire.types import GroupId
from log.group.log import GroupLog
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

    def strays(self) -> list[GroupId]:
        return self.replicas.strays(self._cluster.state)

    # as a node's parts tell its replicas

    def release(self, group: GroupId) -> None:
        """The replica's log is another one, or will not be."""
        self.replicas.release(group)
        self.healed(group)

    def healed(self, group: GroupId) -> None:
        self.replicas.healed(group)
        self.changed()

    # as the reconciler sees it

    @property
    def waiting(self) -> list[GroupId]:
        return self.replicas.waiting

    async def reconcile(self, state: ClusterState, *, may_found: bool) -> None:
        process = self._process
        await self.replicas.reconcile(state, may_found=may_found)
        if self.replicas.refused and process.healing is None:
            process.world.checks.violated(f"starts: {process.node}: {self.replicas.refused}")
        process.groups_changed()

    def stop_all(self) -> None:
        self.replicas.stop_all()

    def _make(self, group: GroupId, _topic: Topic, log: GroupLog, _created: int) -> Replica:
        log.relaxed = self._process.world.shape.relaxed
        return Replica(self._process, group, log, self._process.world.mutant)
