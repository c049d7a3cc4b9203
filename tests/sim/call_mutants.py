"""Bugs of the way to a leader: what a node makes of answers that are lost, or in doubt."""

from __future__ import annotations

from goqueue.wire.errors import GoQueueError
from goqueue.wire.types import PartitionId
from node.partition.append_queue import AppendQueue, _Flight
from node.peers.forwarding import Forwarder
from raft.errors import Outcome


class DoubtForgotten(Forwarder):
    """What a call is refused with in the end is taken for all that became of it."""

    def _give_up(
        self,
        partition_id: PartitionId,
        reason: GoQueueError,
        in_doubt: bool,
        left_s: float,
        over_s: float,
    ) -> None:
        if reason.outcome == "unknown":
            reason.outcome = "none"
        super()._give_up(partition_id, reason, False, left_s, over_s)


class TwinsAnsweredAnyway(AppendQueue):
    """A repeat that met its original on its way is told that it is stored, though the entry is in
    no log."""

    def _ended(self, flight: _Flight, outcome: Outcome, time_ms: int) -> None:
        if outcome is not Outcome.APPLIED:
            for twin in flight.twins:
                self._answer(twin, time_ms, relaxed=False)
            flight.twins = []
        super()._ended(flight, outcome, time_ms)
