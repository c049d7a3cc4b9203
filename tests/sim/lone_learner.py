"""A learner that alone has the newest entry, where it is being promoted.

A leader promotes a learner; that reaches one voter only, and the leader loses power before its own
disk has it. The next leader knows nothing of the promotion; its first entry reaches the learner
only, and its disk is lost. Who knows of the promotion needs the learner's vote, and the
learner has the newer log: it must campaign, or nobody can lead. Uniform faults never find this.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from coordinator.placement.steps import PROMOTE, Step
from goqueue.wire.types import NodeId, PartitionId

if TYPE_CHECKING:
    from tests.sim.world import World

SILENT_S = 2.5
"""How long who knows of the promotion is heard by nobody."""
AWAY_S = 3.0


class LoneLearner:
    """Follows one promotion; harmless where things go another way."""

    def __init__(self, world: World, rng: random.Random) -> None:
        self._world = world
        self._rng = rng
        self._partition_id: PartitionId | None = None
        self._learner: NodeId | None = None
        self._knows: NodeId | None = None
        """The one voter that the promotion reaches."""

    def changing(self, node: NodeId, step: Step, voters: list[NodeId]) -> None:
        """A leader has appended a step."""
        if self._partition_id is not None or step.kind != PROMOTE or len(voters) < 3:
            return
        self._partition_id, self._learner = step.partition_id, step.voter.node
        self._knows = self._rng.choice([one for one in voters if one != node])
        for other in self._world.others(node):
            if other != self._knows:
                self._world.net.stall(node, other, SILENT_S)
        for other in self._world.others(self._knows):
            self._world.net.stall(self._knows, other, SILENT_S)
        self._later(0.4 * self._world.shape.sync_s, self._cut_power, node)

    def began_to_lead(self, node: NodeId, partition_id: PartitionId) -> None:
        """The first entry of the next leader is for the learner."""
        if partition_id != self._partition_id or node in (self._knows, self._learner):
            return
        self._partition_id = None
        for other in self._world.others(node):
            if other != self._learner:
                self._world.net.stall(node, other, AWAY_S)
        reached_s = 3 * self._world.shape.sync_s + 2 * self._world.shape.delay_s[1]
        self._later(reached_s, self._lose, node)

    def _cut_power(self, node: NodeId) -> None:
        self._world.machines.kill(node, power=True, down_s=0.05)

    def _lose(self, node: NodeId) -> None:
        """Its disk, where none was lost before; else it is away for a while."""
        self._world.machines.wipe(node, AWAY_S)
        self._world.machines.kill(node, power=False, down_s=AWAY_S)

    def _later(self, delay_s: float, act: Callable[[NodeId], None], node: NodeId) -> None:
        self._world.loop.call_later(delay_s, lambda: None if self._world.is_quiet else act(node))
