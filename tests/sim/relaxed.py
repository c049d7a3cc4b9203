"""Relaxed partitions and power cuts: what a cut may take, and that it took no more than that.

`docs/reference/guarantees.md`: a message is lost only where the power went at every voter that held
it, before one of them had synced it or caught up again. So after each cut it is looked at what is
left on the disks of all, running or not: what no voter holds any more is gone by rights, and
forgotten by the checks; all else is judged as in any other partition. Who voted for it, was told of
it or applied it and still has it, must be heard. What it costs is time: with one data directory
gone for good the others may wait for it, so that where disks are lost no power is, and the other
way round.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from goqueue.wire.types import CLUSTER_GROUP, Index, NodeId, PartitionId
from log.partition.log import PartitionLog
from log.store.directory import Store
from raft.configuration import Configuration
from tests.sim.disk import ROOM, ROOT

if TYPE_CHECKING:
    from tests.sim.world import World

POWERLESS = ("queue", "members", "compact")
"""Kinds whose models know no message that is gone: their relaxed partitions lose no power."""


class Relaxed:
    """Of one run; does nothing where no partition is relaxed."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._voters: dict[PartitionId, Configuration] = {}
        """The newest configuration of each partition that was committed."""
        self.cuts = 0
        """Of nodes with relaxed partitions."""
        self.losses = 0
        """Cuts that took what had been committed, from everyone."""

    @property
    def applies(self) -> bool:
        return self._world.shape.relaxed

    # what may strike

    def spares_power(self) -> bool:
        """Whether a power cut is to be a kill."""
        return self.applies and (self._is_powerless or self._world.machines.victim is not None)

    def spares_disks(self) -> bool:
        """Whether no disk may be lost or fail now: somebody may have to be waited for."""
        if not self.applies or self._is_powerless:
            return False
        world = self._world
        running = world.machines.running()
        if len(running) < len(world.nodes):
            return True
        logs = [
            process.store.partition_log(g)
            for process in running
            for g in process.store.partition_ids()
        ]
        return any(log.suspect for log in logs)

    @property
    def _is_powerless(self) -> bool:
        return self._world.shape.kind in POWERLESS

    # what is observed

    def committed(self, partition_id: PartitionId, configuration: Configuration) -> None:
        """A replica has applied who votes."""
        known = self._voters.get(partition_id)
        if known is None or known.index < configuration.index:
            self._voters[partition_id] = configuration

    def power_went(self, node: NodeId) -> None:
        """At this node, which is down; its disk is what is left of it."""
        if not self.applies:
            return
        self.cuts += 1
        self._world.rare.count("power cuts of relaxed groups")
        stores = {other: self._store(other) for other in self._world.nodes}
        state = self._world.newest_state()
        for partition_id in self._world.checks.known_partitions():
            if partition_id != CLUSTER_GROUP and not state.is_deleted(partition_id.topic):
                self._look(partition_id, node, stores)

    def _look(self, partition_id: PartitionId, node: NodeId, stores: dict[NodeId, Store]) -> None:
        checks = self._world.checks
        logs = {
            n: s.partition_log(partition_id)
            for n, s in stores.items()
            if partition_id in s.partition_ids()
        }
        checks.reaches_only(node, partition_id, self._held(partition_id, logs.get(node)))
        known = self._voters.get(partition_id)
        voters = [voter.node for voter in known.voters] if known else list(stores)
        if not any(voter in logs for voter in voters):
            return  # it is being deleted
        held = max(self._held(partition_id, logs.get(voter)) for voter in voters)
        if held >= checks.last(partition_id):
            return
        for voter in voters:
            # An empty log was let go of, as its replica moved away.
            has = self._held(partition_id, logs.get(voter))
            if has and has < checks.reached(voter, partition_id):
                checks.violated(
                    f"relaxed: {voter} lost {partition_id}/{has + 1} without losing power"
                )
        self.losses += 1
        self._world.rare.count("losses of relaxed groups")
        self._world.loop.note("gone", partition_id.partition, held)
        checks.gone(partition_id, held)
        for client in self._world.clients:
            client.lost(partition_id)

    def _held(self, partition_id: PartitionId, log: PartitionLog | None) -> Index:
        """Up to which entry a log holds what was committed."""
        if log is None:
            return Index(0)
        at = min(log.last_index, self._world.checks.last(partition_id))
        while at >= log.first_index and not self._is_same(partition_id, log, Index(at)):
            at -= 1
        return Index(at)

    def _is_same(self, partition_id: PartitionId, log: PartitionLog, index: Index) -> bool:
        term = self._world.checks.term_of(partition_id, index)
        return term is None or term == log.term_at(index)

    def _store(self, node: NodeId) -> Store:
        """That of a process, or what the next one would find on its disk."""
        machine = self._world.machines[node]
        if machine.process is not None:
            return machine.process.store
        disk = machine.disk.clone()
        disk.capacity = ROOM
        return Store.open(disk, ROOT, self._world.shape.storage, random_u64=lambda: 1)
