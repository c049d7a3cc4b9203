"""Replicas here that nobody names, and of which no news will come: their leaders are asked.

A replica may hold the entry that added it, and that entry may never commit: whoever leads then has
never heard of this replica, and what the cluster group knows of the partition is older than what
the replica holds. So it would stay, and wait, for good.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from coordinator.cluster.state import ClusterState
from coordinator.placement.steps import Seen, is_left_out
from goqueue.wire.errors import GoQueueError
from goqueue.wire.types import PartitionId, Voter
from node.replicas.local import Hosted
from node.runtime.logger import get_logger
from node.runtime.periodic import Periodic

LOOK_S = 5.0
"""The time between two looks. What is a stray in two of them is asked about: those of moves that
end just now go by themselves."""
ASKED_MAX = 16
"""In one look."""

_log = get_logger("replicas")


class Retiring(Protocol):
    """The replicas of this node, as `node.replicas.local` has them."""

    def orphans(self, state: ClusterState) -> list[PartitionId]: ...

    def find(self, partition_id: PartitionId) -> Hosted | None: ...

    def retire(self, partition_id: PartitionId) -> None: ...


class OrphanReplicas:
    """A service. `ask` tells what a partition's leader sees; it raises GoQueueError."""

    def __init__(
        self,
        me: Voter,
        replicas: Retiring,
        state: Callable[[], ClusterState],
        ask: Callable[[PartitionId], Awaitable[Seen]],
        *,
        look_s: float = LOOK_S,
    ) -> None:
        self._me = me
        self._replicas = replicas
        self._state = state
        self._ask = ask
        self._met: set[PartitionId] = set()
        self._turns = 0
        self._asked: dict[PartitionId, int] = {}
        """In which look they were asked about last."""
        self._looks = Periodic("strays", self.look, look_s, _log, "strays_not_judged")

    async def start(self) -> None:
        await self._looks.start()

    async def stop(self) -> None:
        await self._looks.stop()

    async def look(self) -> None:
        """Retire the strays that take part no more, by what their leaders tell."""
        orphans = self._replicas.orphans(self._state())
        met, self._met = self._met, set(orphans)
        # Those that were not asked for longest first: some may have no leader for good.
        known = sorted(
            (partition_id for partition_id in orphans if partition_id in met), key=self._turn
        )
        self._asked = {
            partition_id: look
            for partition_id, look in self._asked.items()
            if partition_id in self._met
        }
        self._turns += 1
        for partition_id in known[:ASKED_MAX]:
            self._asked[partition_id] = self._turns
            try:
                await self._look_at(partition_id)
            except GoQueueError as error:
                _log.debug("stray_not_judged", group=str(partition_id), problem=error.message)

    def _turn(self, partition_id: PartitionId) -> int:
        return self._asked.get(partition_id, 0)

    async def _look_at(self, partition_id: PartitionId) -> None:
        """What arrives while the leader is asked may be newer than its answer."""
        host = self._replicas.find(partition_id)
        if host is None:
            return
        known = host.raft_group.membership.configuration
        seen = await self._ask(partition_id)
        if (
            self._replicas.find(partition_id) is not host
            or host.raft_group.membership.configuration != known
        ):
            return
        if partition_id not in self._replicas.orphans(self._state()):
            return
        if is_left_out(self._me, seen, host.log.hard_state.term):
            self._replicas.retire(partition_id)
