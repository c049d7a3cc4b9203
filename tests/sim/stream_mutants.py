"""Bugs of streams, by what they replace: the operations of a group, the state of a partition."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import msgspec

from delivery.entries.ops import CountResult, StreamsEnded
from delivery.group.operations import GroupOperations
from delivery.leader.dispatcher import Dispatcher
from delivery.state.partition import PartitionState
from tests.sim.queue_mutants import Altered


class _KeepsOne(GroupOperations):
    """Of what a stream had in flight one message stays so, though nobody is left to settle it."""

    def end_streams(self, op: StreamsEnded, now_ms: int) -> CountResult:
        leases = self.group.leases
        kept = next((o for o in leases if (one := leases.get(o)) and one.stream is not None), None)
        lease = None if kept is None else leases.get(kept)
        if kept is None or lease is None:
            return super().end_streams(op, now_ms)
        leases.end(kept)
        result = super().end_streams(op, now_ms)
        leases.open(lease.delivery, lease.deadline_ms, lease.member, [kept], lease.stream)
        return result


class LeaseKeptAfterItsStream(Altered):
    operations_type = _KeepsOne


class _CountsReturns(GroupOperations):
    """A message that is given back in order has failed."""

    def end_streams(self, op: StreamsEnded, now_ms: int) -> CountResult:
        return super().end_streams(msgspec.structs.replace(op, lost=True), now_ms)


class AttemptCountedOnAnOrderlyClose(Altered):
    operations_type = _CountsReturns


class _ForgivesLosses(GroupOperations):
    """A consumer that was lost costs nothing: a message that kills it comes for ever."""

    def end_streams(self, op: StreamsEnded, now_ms: int) -> CountResult:
        return super().end_streams(msgspec.structs.replace(op, lost=False), now_ms)


class LossUncounted(Altered):
    operations_type = _ForgivesLosses


class StreamsNotInSnapshot(PartitionState):
    """Who restarts from a snapshot does not know whose its leases are."""

    def restore(self, state: bytes) -> None:
        super().restore(state)
        for group in self.queue.groups.values():
            leases = group.leases
            leases.load([*leases.dump(), *(one[2:] for one in leases.dump_streams())])


class RunsOutliveTheirNodes(Dispatcher[Any]):
    """A leader does not end what a run has in flight that nobody else is left to end."""

    def end_runs(self, runs: Collection[int]) -> None:
        return None
