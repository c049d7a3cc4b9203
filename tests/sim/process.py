"""One running node of the simulated cluster: its store, Raft host and replicas."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from coordinator.commands.codec import Command
from goqueue.wire.types import CLUSTER_GROUP, Index, NodeId, PartitionId, Voter
from log.errors import EntryDamaged
from log.partition.log import PartitionLog
from node.cluster.newest_state import NewestState
from raft.group import RaftGroup
from raft.interfaces import Environment
from tests.sim.coordinating import Coordinating
from tests.sim.copying import Copying
from tests.sim.coroutines import Coroutines
from tests.sim.disk import Storage
from tests.sim.front import Front
from tests.sim.healing import Healing
from tests.sim.link import Link
from tests.sim.loop import EPOCH_MS, ProcessTime
from tests.sim.managed import ClusterReplica, Ended, Registrar
from tests.sim.moving import Moving
from tests.sim.net import NodeNetwork
from tests.sim.queue_requests import Ask, QueueAnswer
from tests.sim.registry import Registry
from tests.sim.replica import Replica
from tests.sim.requests import Answer, Publish

if TYPE_CHECKING:
    from tests.sim.machines import Machine
    from tests.sim.world import World

logging.getLogger("raft").setLevel(logging.CRITICAL)
logging.getLogger("log").setLevel(logging.CRITICAL)

ANSWER_S = 0.001
HEALED_S, READABLE_S = 1.0, 0.1
WORK_S = (0.0002, 0.004)
"""How long a thread works on a file."""
LEFT_S = 0.2
"""A process that left by itself is started again after this."""


class Process:
    """From opening the data directory to its end; a machine runs one after the other."""

    def __init__(self, world: World, machine: Machine) -> None:
        """Opens the store. Raises `disk.Died` where the machine is told to fail meanwhile."""
        self.world = world
        self.machine = machine
        self.node = machine.node
        self.time = ProcessTime(world.loop)
        self.began_s = self.time.now()
        self.coroutines = Coroutines(self.time, self._work_s)
        self.time.on_killed = self.coroutines.close
        self.link = Link(self)
        self._replicas: dict[PartitionId, Replica] = {}
        self.registry: Registry | None = None
        """Where the cluster group says what runs here."""
        self.cluster: ClusterReplica | None = None
        self.groups: Coordinating | None = None
        self.moving: Moving | None = None
        self.copying: Copying | None = None
        self.healing: Healing | None = None
        self._held: set[PartitionId] = set()
        self.network = NodeNetwork(world.net, self.node)
        self.storage = Storage(
            machine.disk, self.time, world.rng("disk"), world.shape.storage, machine.speed
        )
        self.store = self.storage.store
        if self.storage.set_aside:
            machine.set_aside(world)
        environment = Environment(
            self.voter,
            self.network,
            self.time,
            world.rng("raft"),
            self.wall_ms,
            world.shape.raft,
            rests=lambda: True,
            peers_clock_offset_ms=lambda: world.machines.clock_offset_ms(machine.node),
        )
        self.host = world.mutant.host(
            environment, self.store, raft_group_type=world.raft_group_type
        )
        self.front = Front(self)
        self.host.on_failed = self._failed
        self.host.on_snapshot_due = self._snapshot_due
        self.storage.on_flush_begun = self._flush_begun
        self.storage.on_failed = self._disk_failed

    @property
    def voter(self) -> Voter:
        return Voter(self.node, self.store.incarnation)

    def start(self) -> None:
        """Start the replicas that this node should have, or the cluster group that will say."""
        if self.world.is_damaged:
            self.copying = Copying(self)
            self.healing = Healing(self)
            self.healing.start()
        if self.world.shape.managed:
            self.cluster = ClusterReplica(self)
            self.registry = Registry(self, self.cluster)
            self.registry.start()
            if self.world.members is not None:
                self.groups = Coordinating(self, self.cluster)
            if self.world.moves is not None:
                self._start_moving(self.cluster)
            self.start_cluster()
            if not self.machine.is_wiped:
                self.time.call_soon(Registrar(self).look)
        else:
            for partition_id in self.world.partition_ids:
                self._start_replica(partition_id)
        self.front.start()
        if self.copying is not None:
            self.copying.start()
        self.storage.start()

    def _start_moving(self, cluster: ClusterReplica) -> None:
        self.moving = Moving(self, cluster)
        self.copying = self.copying or Copying(self)
        copies = self.world.shape.copies
        self.host.copies_to_learners = lambda raft_group: copies and raft_group.id != CLUSTER_GROUP
        self.moving.start()

    def start_cluster(self) -> None:
        """As `node.cluster.membership` does: damaged entries are waited for, for a while; where
        there is nothing to begin from, the log is to be copied."""
        cluster, store = self.cluster, self.store
        assert cluster is not None
        if cluster.raft is not None or self.is_held(CLUSTER_GROUP):
            return
        founders, log = self.world.voters, None
        if store.has_log(CLUSTER_GROUP) and store.partition_log(CLUSTER_GROUP).last_index > 0:
            founders, log = (), store.partition_log(CLUSTER_GROUP)
        waits = self.healing is not None and self.time.now() < self.began_s + HEALED_S
        if log is not None and waits and not is_readable(log):
            self.time.call_later(READABLE_S, self.start_cluster)
            return
        cluster.begin()
        try:
            cluster.raft = self.host.start_raft_group(
                CLUSTER_GROUP,
                founders,
                cluster,
                bootstrap=log is None,
                created_ms=EPOCH_MS,
            )
            cluster.newest = NewestState(cluster.raft, store.partition_log(CLUSTER_GROUP))
        except EntryDamaged:
            if self.healing is None:
                raise

    def _stop_cluster(self) -> None:
        assert self.cluster is not None
        if self.cluster.raft is not None:
            self.host.stop_raft_group(CLUSTER_GROUP)
            self.cluster.raft = self.cluster.newest = None
            self.cluster.on_follower(None)

    @property
    def replicas(self) -> dict[PartitionId, Replica]:
        """Those that run."""
        if self.registry is None:
            return self._replicas
        return {replica.id: replica for replica in self.registry.replicas.all()}

    def _start_replica(self, partition_id: PartitionId) -> None:
        """Of a partition that is there from the beginning."""
        exists = self.store.has_log(partition_id)
        log = (
            self.store.partition_log(partition_id)
            if exists
            else self.store.create_log(partition_id)
        )
        log.relaxed = self.world.shape.relaxed
        replica = Replica(self, partition_id, log, self.world.mutant)
        try:
            raft = self.host.start_raft_group(
                partition_id, self.world.voters, replica, bootstrap=True, created_ms=EPOCH_MS
            )
        except EntryDamaged:  # it is started when that is healed
            if self.healing is None:
                raise
        else:
            replica.attach(raft)
            self._replicas[partition_id] = replica

    def _stop_replica(self, partition_id: PartitionId) -> None:
        replica = self._replicas.pop(partition_id)
        self.host.stop_raft_group(partition_id)
        replica.close()

    def is_held(self, partition_id: PartitionId) -> bool:
        """Whether it must not run: its log is being replaced."""
        if self.registry is None or partition_id == CLUSTER_GROUP:
            return partition_id in self._held
        return self.registry.replicas.is_held(partition_id)

    def hold(self, partition_id: PartitionId) -> None:
        """The group's log is going to be another one: nothing runs on it."""
        if partition_id == CLUSTER_GROUP:
            self._held.add(partition_id)
            self._stop_cluster()
        elif self.registry is not None:
            self.registry.replicas.hold(partition_id)
        else:
            self._held.add(partition_id)
            if partition_id in self._replicas:
                self._stop_replica(partition_id)

    def release(self, partition_id: PartitionId) -> None:
        """The replica may run again."""
        self._held.discard(partition_id)
        if partition_id == CLUSTER_GROUP:
            self.start_cluster()
        elif self.registry is not None:
            self.registry.release(partition_id)
        elif partition_id not in self._replicas:
            self._start_replica(partition_id)

    def healed(self, partition_id: PartitionId) -> None:
        """The group's log is whole: its replica starts anew, unless it leads by what it holds."""
        if partition_id == CLUSTER_GROUP:
            assert self.cluster is not None
            if self.cluster.raft is not None and self.cluster.raft.failed is not None:
                self._stop_cluster()
            self.start_cluster()
        elif self.registry is not None:
            self.registry.healed(partition_id)
        else:
            replica = self._replicas.get(partition_id)
            if replica is not None and not replica.raft.is_leader:
                self._stop_replica(partition_id)
            if partition_id not in self._replicas:
                self._start_replica(partition_id)

    def rafts(self) -> list[RaftGroup]:
        """Of its partitions, and of the cluster group."""
        rafts = [replica.raft for replica in self.replicas.values()]
        cluster = None if self.cluster is None else self.cluster.raft
        return rafts if cluster is None else [*rafts, cluster]

    def raft(self, partition_id: PartitionId) -> RaftGroup | None:
        """The replica that runs here."""
        if partition_id == CLUSTER_GROUP:
            return None if self.cluster is None else self.cluster.raft
        replica = self.replicas.get(partition_id)
        return None if replica is None else replica.raft

    def end(self) -> None:
        """The process is killed: nothing more of it happens."""
        self.network.alive = False
        self.time.kill()
        self.storage.die(self.world.rng("death"))

    # as the network's endpoint

    def receive(self, node: NodeId, partition_id: PartitionId, frame: bytes) -> None:
        self.time.call_soon(self.host.receive, node, partition_id, memoryview(frame))

    def peer_connected(self, node: NodeId) -> None:
        peer = self.world.machines.process(node)
        proven = None if peer is None else peer.store.incarnation
        self.time.call_soon(self.host.peer_connected, node, proven)

    def peer_disconnected(self, node: NodeId) -> None:
        self.time.call_soon(self.host.peer_disconnected, node)
        self.time.call_soon(self.link.closed, node)

    # for clients

    def publish(self, publish: Publish) -> None:
        self.time.call_soon(self.front.publish, publish)

    def ask_queue(self, ask: Ask) -> None:
        self.time.call_soon(self.front.ask, ask)

    def withdraw(self, ask: Ask) -> None:
        """Who asked has left."""
        self.time.call_soon(self.front.withdraw, ask)

    def answer_queue(self, ask: Ask, answer: QueueAnswer) -> None:
        """On its way to the client, unless the process is over."""
        if self.network.alive:
            self.world.loop.call_later(ANSWER_S, ask.reply, answer)

    def command(self, command: Command, ended: Ended) -> None:
        """Ask the cluster group, if this node leads it."""

        def answered(result: object) -> None:
            if self.network.alive:
                self.world.loop.call_later(ANSWER_S, ended, result)

        def ask() -> None:
            assert self.cluster is not None
            self.cluster.command(command, answered)

        self.time.call_soon(ask)

    def groups_changed(self) -> None:
        """The cluster's state is another one."""
        if self.groups is not None:
            self.groups.changed()
            for replica in self.replicas.values():
                replica.groups_changed()

    def answer(self, publish: Publish, answer: Answer) -> None:
        """On its way to the client, unless the process is over."""
        if self.network.alive:
            self.world.loop.call_later(ANSWER_S, publish.reply, answer)

    # what happens inside

    def _work_s(self) -> float:
        return self.world.rng("workers").uniform(*WORK_S)

    def wall_ms(self) -> int:
        """What the machine's clock says, right or wrong."""
        now_s = self.world.loop.time
        return EPOCH_MS + int(now_s * 1000) + self.machine.ahead_ms(now_s)

    def _flush_begun(self) -> None:
        self.world.traps.flush_begun(self.node)

    def _disk_failed(self, error: Exception) -> None:
        """As a node does: it leaves at once, and is started again."""
        self.world.loop.note("disk failed", self.node, error)
        self.world.machines.kill(self.node, power=False, down_s=LEFT_S)

    def _failed(self, raft_group: RaftGroup, error: Exception) -> None:
        if isinstance(error, EntryDamaged) and self.healing is not None:
            self.world.loop.note("stopped by damage", self.node, raft_group.id.partition)
        else:
            self.world.checks.replica_failed(self.node, raft_group.id, error)

    def _snapshot_due(self, raft_group: RaftGroup) -> None:
        work = raft_group.apply.take_snapshot()
        if work is not None:
            self.storage.keep(work.run, _nothing)


def is_readable(log: PartitionLog) -> bool:
    """Whether all entries can be read; those that can't are known to be damaged from now on."""
    at = log.first_index
    try:
        while at <= log.last_index:
            at = Index(log.entries(at)[-1].index + 1)
    except EntryDamaged:
        return False
    return True


def _nothing() -> None:
    return None
