"""Key compaction at a simulated replica: the production planning and appending, step by step on
virtual time, so that its process may die, stand still or lose its leadership in between."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from coordinator.topics.settings import TopicConfig
from goqueue.wire.types import NodeId
from node.partition.reading.reader import PartitionReader
from node.partition.retention.compaction import Findings
from node.partition.retention.trimming import Retention
from tests.sim.coroutines import Coroutines

if TYPE_CHECKING:
    from tests.sim.replica import Replica

WORK_S = (0.0005, 0.03)
"""How long one step of reading the log takes."""
HEALED_WORK_S = (0.0005, 0.002)
"""Once no more faults strike: segments are so small here that a step may be one entry."""


class Compacting:
    """The compaction of one replica, as long as its process lives."""

    def __init__(self, replica: Replica, reader: PartitionReader, config: TopicConfig) -> None:
        world = replica.process.world
        self._replica = replica
        self._rng = world.rng("compacting")
        self._running = False
        self._coroutines = Coroutines(replica.process.time, self._work_s)
        shared: dict[str, Any] = {
            "log": replica.log,
            "state": replica.state,
            "reader": reader,
            "raft_group": lambda: replica.raft,
            "config": lambda: config,
        }
        nothing: Any = _Nothing()
        parts: Any = SimpleNamespace(
            workers=nothing,
            metrics=nothing,
            lacks_room=self._lacks_room,
            least_room=self._least_room,
        )
        self._compactor = world.mutant.compactor(
            topic="t", retention=Retention(**shared), parts=parts, **shared
        )

    def look(self) -> bool:
        """Begin a run, as leader, unless one goes on; whether one has begun."""
        replica = self._replica
        if self._running or not replica.raft.is_ready_leader or replica.log.quarantined:
            return False
        self._running = True
        work = self._compactor.run(force=self._rng.random() < 0.7)
        self._coroutines.start(work, self._ended)
        return True

    def _work_s(self) -> float:
        healed = self._replica.process.world.is_quiet
        return self._rng.uniform(*(HEALED_WORK_S if healed else WORK_S))

    def _ended(self, found: Findings) -> None:
        self._running = False
        replica = self._replica
        world = replica.process.world
        world.loop.note("compacted", replica.process.node, found.outcome, found.dropped)

    def _lacks_room(self, _voters: Iterable[NodeId]) -> bool:
        return self._replica.process.store.stalled is not None

    def _least_room(self, _voters: Iterable[NodeId]) -> tuple[int, NodeId]:
        disk = self._replica.process.machine.disk
        return disk.capacity - disk.used_bytes(), self._replica.process.node


class _Nothing:
    """Metrics that nobody reads, and workers that `Coroutines` does without."""

    def __getattr__(self, _name: str) -> _Nothing:
        return self

    def __call__(self, *_arguments: object) -> _Nothing:
        return self
