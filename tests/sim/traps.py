"""Faults that wait for a decisive moment: a flush, a vote, a leadership, a commit, a change of
replicas."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coordinator.placement.steps import Step
from goqueue.wire.types import Index, NodeId, PartitionId, Term
from tests.sim.figure8 import Figure8
from tests.sim.lone_learner import LoneLearner

if TYPE_CHECKING:
    from tests.sim.world import World


class Traps:
    """Set by faults, sprung by what processes do; a `tests.sim.watched.Watcher`."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._flushes: dict[NodeId, tuple[bool, float]] = {}
        """Who dies after its next flush has begun: whether by power, and how long after."""
        self._leads = 0
        self._votes = 0
        self._changes = 0
        self._splits = 0
        self._figure8: Figure8 | None = None
        self._lone_learner: LoneLearner | None = None

    def clear(self) -> None:
        """No more faults."""
        self._flushes.clear()
        self._leads = self._votes = self._changes = self._splits = 0
        self._figure8 = self._lone_learner = None

    def at_flush(self, node: NodeId, *, power: bool, delay_s: float) -> None:
        """Kill this node after its next flush has begun."""
        self._flushes[node] = (power, delay_s)

    def flush_begun(self, node: NodeId) -> None:
        trap = self._flushes.pop(node, None)
        if trap is not None:
            power, delay_s = trap
            self._kill_later(node, power, delay_s, self._world.rng("traps").uniform(0.02, 0.8))

    def at_leads(self, count: int) -> None:
        """Kill each of the next leaders, soon after it has begun to lead."""
        self._leads = count

    def began_to_lead(
        self, node: NodeId, partition_id: PartitionId, term: Term, voters: int
    ) -> None:
        self._world.elections += 1
        self._world.checks.led(partition_id, term, node, voters)
        if self._figure8 is not None:
            self._figure8.began_to_lead(node, partition_id)
        if self._lone_learner is not None:
            self._lone_learner.began_to_lead(node, partition_id)
        if self._leads:
            self._leads -= 1
            rng = self._world.rng("traps")
            delay_s = rng.choice((0.0, 0.01, 0.03, 0.1)) * rng.uniform(0.5, 1.5)
            self._kill_later(node, rng.random() < 0.4, delay_s, rng.uniform(0.01, 0.5))

    def follow(self, figure8: Figure8) -> None:
        """Let this script look at what happens, from now on."""
        self._figure8 = figure8
        figure8.start()

    def at_promotion(self, lone_learner: LoneLearner) -> None:
        """Let this script look at the next promotion."""
        self._lone_learner = lone_learner

    def committed(self, node: NodeId, partition_id: PartitionId) -> None:
        if self._figure8 is not None:
            self._figure8.committed(node, partition_id)

    def at_votes(self, count: int) -> None:
        """Restart each of the next voters, or its link to the candidate, while the vote is told;
        and let frames come again when they are connected."""
        self._votes = count

    def granted(
        self, node: NodeId, partition_id: PartitionId, term: Term, candidate: NodeId, last: Index
    ) -> None:
        self._world.checks.granted(partition_id, term, node, candidate, last)
        if not self._votes:
            return
        self._votes -= 1
        rng = self._world.rng("traps")
        delay_s = rng.uniform(0.0, 2 * self._world.shape.sync_s + self._world.shape.delay_s[1])
        self._world.net.repeat(node)
        if rng.random() < 0.3:
            self._world.loop.call_later(delay_s, self._world.net.close, node, candidate)
        else:
            self._kill_later(node, rng.random() < 0.6, delay_s, rng.uniform(0.001, 0.02))

    def truncates(
        self, node: NodeId, partition_id: PartitionId, index: Index, term: Term | None
    ) -> None:
        self._world.checks.truncates(node, partition_id, index, term)

    def at_changes(self, count: int) -> None:
        """Kill who changes the replicas of a group, or whom it is about, while that goes on."""
        self._changes = count

    def at_changes_split(self, count: int) -> None:
        """Part who changes the replicas of a group, with all who had no vote before, from the
        other voters."""
        self._splits = count

    def changing(self, node: NodeId, step: Step, voters: list[NodeId]) -> None:
        """A leader has appended a change of its replicas; these had a vote before."""
        if self._lone_learner is not None:
            self._lone_learner.changing(node, step, voters)
        rng = self._world.rng("traps")
        if self._splits:
            self._splits -= 1
            seconds = rng.uniform(0.5, 3.0)
            for old in [other for other in voters if other != node]:
                for new in [one for one in self._world.nodes if one == node or one not in voters]:
                    self._world.net.stall(old, new, seconds)
                    self._world.net.stall(new, old, seconds)
        if not self._changes:
            return
        self._changes -= 1
        victim = node if rng.random() < 0.6 else step.voter.node
        delay_s = rng.uniform(0.0, 2 * self._world.shape.sync_s + self._world.shape.delay_s[1])
        if rng.random() < 0.4:
            for other in self._world.others(victim):
                self._world.net.stall(victim, other, rng.uniform(0.3, 2.0))
        else:
            self._kill_later(victim, rng.random() < 0.5, delay_s, rng.uniform(0.02, 1.5))

    def _kill_later(self, node: NodeId, power: bool, delay_s: float, down_s: float) -> None:
        def kill() -> None:
            if not self._world.is_quiet:
                self._world.machines.kill(node, power=power, down_s=down_s)

        self._world.loop.call_later(delay_s, kill)
