"""Figure 8 of the Raft paper, brought about on purpose.

A leader writes entries that nobody else gets, and dies. The next leader writes its no-op that
nobody gets, and dies. The first one comes back, leads again, and its old entries reach a majority.
If they count as committed by that alone, then it and all that others have not synced goes, the
second leader comes back, leads, and overwrites what was acked. Uniform faults never find this.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from goqueue.wire.types import NodeId, PartitionId

if TYPE_CHECKING:
    from tests.sim.world import World

LONELY_S = 0.08
"""How long the first leader takes writes that nobody gets."""
AWAY_S = 3.0


class Figure8:
    """Follows one group from leader to leader; harmless where things go another way."""

    def __init__(self, world: World, rng: random.Random, first: NodeId) -> None:
        self._world = world
        self._rng = rng
        self._first = first
        self._second: NodeId | None = None
        self._third: NodeId | None = None
        self._partition_id: PartitionId | None = None

    def start(self) -> None:
        world = self._world
        self._silence(self._first)
        sync_s = world.shape.sync_s
        world.loop.call_later(LONELY_S, self._kill, self._first, sync_s + 0.3)

    def began_to_lead(self, node: NodeId, partition_id: PartitionId) -> None:
        if self._second is None and node != self._first:
            self._second, self._partition_id = node, partition_id
            self._silence(node)
            self._world.loop.call_later(
                3 * self._world.shape.sync_s + 0.01, self._kill, node, AWAY_S * 0.6
            )
        elif (
            self._second is not None and partition_id == self._partition_id and self._third is None
        ):
            self._third = node

    def committed(self, node: NodeId, partition_id: PartitionId) -> None:
        """The first commit of the third leader: it goes, and the others lose their power."""
        if partition_id != self._partition_id or node != self._third:
            return
        self._third = self._partition_id = None
        self._world.loop.call_later(0.0, self._kill, node, AWAY_S)
        for other in self._world.others(node):
            if self._world.machines.process(other) is not None:
                self._world.loop.call_later(0.0005, self._cut_power, other)

    def _silence(self, node: NodeId) -> None:
        for other in self._world.others(node):
            self._world.net.stall(node, other, LONELY_S + 0.3)

    def _kill(self, node: NodeId, down_s: float) -> None:
        if not self._world.is_quiet:
            self._world.machines.kill(
                node, power=False, down_s=down_s * self._rng.uniform(0.8, 1.2)
            )

    def _cut_power(self, node: NodeId) -> None:
        if not self._world.is_quiet:
            self._world.machines.kill(node, power=True, down_s=self._rng.uniform(0.02, 0.1))
