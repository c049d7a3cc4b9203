"""Bugs of replicas that come and go: in what leaders make of steps, in copies, in promises."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from coordinator.brokers.electorate import Elector
from coordinator.brokers.registry import Broker, Brokers
from coordinator.commands.placement import BrokerResult, RemoveBroker
from coordinator.placement.cluster_steps import cluster_members
from coordinator.placement.dropped_replicas import Dropped
from coordinator.placement.layout import Layout
from coordinator.placement.mover import Mover
from coordinator.placement.steps import Seen, Step
from goqueue.wire.types import NodeId, PartitionId, Voter
from log.copy.manifest import Manifest, SegmentParts
from log.copy.staging import Staging
from log.errors import Damaged
from log.wal.install import Install
from raft.host import RaftHost


def refuses_nothing(_step: Step, _seen: Seen) -> str | None:
    """A leader takes every step that it is told, however late, whatever it sees."""
    return None


def as_it_is(seen: Seen) -> Seen:
    """No bug: a leader tells what it sees."""
    return seen


def everyone_in_sync(seen: Seen) -> Seen:
    """A leader believes that all its voters hold what is committed."""
    everyone = frozenset(voter.node for voter in seen.configuration.voters)
    return dataclasses.replace(seen, in_sync=everyone)


class UncheckedStaging(Staging):
    """What was copied is taken as it came."""

    def check_segment(self, segment: SegmentParts) -> None:
        try:
            super().check_segment(segment)
        except Damaged:
            return


class StaleStaging(Staging):
    """A copied state is taken for the one after the next entry, which is never applied then.

    (A copy that names more entries than it has is refused by the log.)
    """

    def check_state(self, manifest: Manifest) -> None:
        super().check_state(manifest)
        named = self._misnamed(manifest)
        if named.snapshot_index != manifest.snapshot_index:
            self._disk.rename(self._path(manifest.state_part()), self._path(named.state_part()))
            super().check_state(named)

    def finish(self, manifest: Manifest) -> Install:
        return super().finish(self._misnamed(manifest))

    @staticmethod
    def _misnamed(manifest: Manifest) -> Manifest:
        index = manifest.snapshot_index
        later = index + 1 if 0 < index < manifest.last_index else index
        return dataclasses.replace(manifest, snapshot_index=later)


class ForgetsMoves(Mover):
    """What partitions' leaders tell is not passed on to the cluster group."""

    def _keep_news(self, partition_id: PartitionId, seen: Seen) -> None:
        return None


class RetiredForget(RaftHost):
    """A replica that is moved away forgets its term and vote, and that it held something."""

    def retire_raft_group(self, id: PartitionId) -> None:
        self.stop_raft_group(id)
        if self._store.has_log(id):
            self._store.remove_log(id)


class RemovesAnybody(Layout):
    """A broker is removed as soon as that is asked, whatever it holds."""

    def remove(self, command: RemoveBroker) -> BrokerResult:
        broker = self.brokers.named(command.node)
        self.brokers.remove(broker)
        return BrokerResult(broker.node, "gone")


class ForgetsTheDropped(Dropped):
    """What was decided for a replica that is not desired any more is taken to have arrived."""

    def moved(
        self, partition_id: PartitionId, before: Sequence[Voter], after: Sequence[Voter], epoch: int
    ) -> None:
        return None


class AwaitsNothing(Layout):
    """A broker is drained once it holds nothing, whatever is on its way to it."""

    def _move(self, wanted: Mapping[PartitionId, Sequence[str]], time_ms: int) -> None:
        self._dropped.__class__ = ForgetsTheDropped
        super()._move(wanted, time_ms)


class ForgetsTheGone(Brokers):
    """Who was removed may register again."""

    def remove(self, broker: Broker) -> None:
        del self.by_name[broker.node]


def with_the_gone(
    brokers: Brokers, now: Sequence[Voter], away_ms: Callable[[NodeId], int]
) -> dict[NodeId, Elector]:
    """Whoever was removed follows the cluster group all the same."""
    gone = {voter.node: Elector(voter, takes=False) for voter in brokers.gone}
    return gone | cluster_members(brokers, now, away_ms)
