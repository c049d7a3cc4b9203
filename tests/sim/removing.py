"""A broker that leaves a simulated cluster for good, alive or dead: drained, then removed; and
whether it is gone then.

emptied    who is removed takes part in no partition, by what the partitions themselves have decided
gone       its data directory is not let in again
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coordinator.brokers.registry import ACTIVE, DRAINED
from coordinator.cluster.state import ClusterState
from coordinator.commands.codec import BrokerRegistered, Command, RegisterBroker
from coordinator.commands.placement import BrokerResult, DrainBroker, RemoveBroker
from goqueue.wire.types import Incarnation, NodeId, PartitionId, Voter
from log.entry import Entry
from raft.configuration import Configuration

if TYPE_CHECKING:
    from tests.sim.world import World

LEAVES = 0.6
"""In how many runs a broker leaves."""
LEAVES_S = (0.8, 3.0)
DEAD = 0.5
"""How often it is dead by then."""
ASK_S = (0.1, 0.6)
EARLY = 0.3
"""How often it is asked whether it may go before it is drained."""
DOWN_S = (0.05, 1.0)


class Removing:
    """One broker's leaving, each command asked until it is done."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._rng = world.rng("removing")
        self._last = 0
        self.leaver: NodeId | None = None
        self.is_dead = False
        self._registered: dict[Voter, None] = {}
        self._committed: dict[PartitionId, Configuration] = {}
        """The newest of each partition."""
        self.removed: dict[Voter, None] = {}
        """By what the cluster group has decided."""

    def start(self) -> None:
        if self._rng.random() < LEAVES:
            self._world.loop.call_later(self._rng.uniform(*LEAVES_S), self._leave)

    def is_gone(self, node: NodeId) -> bool:
        """Whether it was removed, and has not come back with an empty data directory."""
        known = [voter for voter in self._registered if voter.node == node]
        return bool(known) and known[-1] in self.removed

    def is_one_of_two(self, node: NodeId) -> bool:
        """Whether a majority of some group needs it."""
        return bool(self.partitions_of_two(node))

    def partitions_of_two(self, node: NodeId) -> set[PartitionId]:
        """Those that have this voter and at most one other, by what a running replica knows: a
        majority needs both."""
        rafts = [raft for process in self._world.members_here() for raft in process.rafts()]
        known = [
            (raft.id, [voter.node for voter in one.voters])
            for raft in rafts
            for one in (raft.membership.configuration, raft.membership.before)
        ]
        return {
            partition_id for partition_id, voters in known if len(voters) <= 2 and node in voters
        }

    def _leave(self) -> None:
        world, rng = self._world, self._rng
        state = world.newest_state()
        if world.is_quiet or len(state.brokers) < len(world.nodes) or not state.topics:
            if not world.is_quiet:
                world.loop.call_later(rng.uniform(*ASK_S), self._leave)
            return
        self.leaver = rng.choice(world.nodes)
        if rng.random() < DEAD:
            self.is_dead = world.machines.lose(self.leaver)
        world.loop.note("leaves", self.leaver, self.is_dead)
        self._ask()

    def _ask(self) -> None:
        world, rng = self._world, self._rng
        if world.is_over or self.leaver is None or self.is_gone(self.leaver):
            return
        if world.is_quiet and self.is_dead and self.is_one_of_two(self.leaver):
            self._stay()
        broker = world.newest_state().brokers.get(self.leaver)
        command: Command | None = None
        if broker is not None and broker.state == ACTIVE:
            if world.is_quiet:
                self._stay()
            else:
                command = DrainBroker(self.leaver)
        elif broker is not None and (broker.state == DRAINED or rng.random() < EARLY):
            command = RemoveBroker(self.leaver)
        if command is not None:
            world.ask_cluster(command, lambda _result: None)
        world.loop.call_later(rng.uniform(*ASK_S), self._ask)

    def _stay(self) -> None:
        """No more faults. Who died and can't be drained, as too few are left, comes back."""
        if self.is_dead and self.leaver is not None:
            self.is_dead = False
            self._world.machines.find(self.leaver)

    # what is decided

    def applied(self, entry: Entry, command: Command, result: object) -> None:
        """A node has applied a command; the first time is judged."""
        if entry.index <= self._last:
            return
        self._last = entry.index
        if isinstance(command, RemoveBroker) and isinstance(result, BrokerResult):
            self._remove(NodeId(command.node))
        if isinstance(command, RegisterBroker) and isinstance(result, BrokerRegistered):
            voter = Voter(NodeId(command.node), Incarnation(command.incarnation))
            self._registered[voter] = None
            if voter in self.removed:
                self._broken(f"gone: {voter} was removed, and is let in again")

    def committed(self, partition_id: PartitionId, configuration: Configuration) -> None:
        """Who takes part in a partition, as some replica has it applied."""
        known = self._committed.get(partition_id)
        if known is None or known.index < configuration.index:
            self._committed[partition_id] = configuration
            self._look(partition_id)

    def _look(self, partition_id: PartitionId) -> None:
        known = self._committed[partition_id]
        still = [voter for voter in (*known.voters, *known.learners) if voter in self.removed]
        if still and not self._world.newest_state().is_deleted(partition_id.topic):
            self._broken(f"emptied: {still} is removed, and takes part in {partition_id}")

    def _remove(self, node: NodeId) -> None:
        world, rng = self._world, self._rng
        self.removed.update({v: None for v in self._registered if v.node == node})
        world.loop.note("removed", node)
        for partition_id in self._committed:
            self._look(partition_id)
        if not self.is_dead and rng.random() < 0.7:
            world.loop.call_later(rng.uniform(*DOWN_S), self._restart, node)

    def _restart(self, node: NodeId) -> None:
        """It asks to be let in again as it starts."""
        world, rng = self._world, self._rng
        world.machines.kill(node, power=False, down_s=rng.uniform(*DOWN_S))

    def unsettled(self, state: ClusterState) -> str:
        """What is still to be done, in words."""
        if self.leaver is None or self.is_gone(self.leaver):
            return ""
        broker = state.brokers.get(self.leaver)
        if broker is not None and broker.state != ACTIVE:
            return f"{self.leaver} is {broker.state}, and not removed"
        return ""

    def _broken(self, text: str) -> None:
        self._world.checks.violated(text)
