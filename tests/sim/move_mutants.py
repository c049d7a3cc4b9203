"""Bugs of replicas that come and go: in what leaders make of steps, in copies, in promises."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from coordinator.brokers import Broker, Brokers
from coordinator.cluster_steps import cluster_members
from coordinator.dropped import Dropped
from coordinator.electorate import Elector
from coordinator.layout import Layout
from coordinator.mover import Mover
from coordinator.placement_commands import BrokerResult, RemoveBroker
from coordinator.steps import Seen, Step, refusal
from goqueue.wire.types import GroupId, Index, NodeId, Voter
from log.errors import Damaged
from log.install import Install
from log.manifest import Manifest, SegmentParts
from log.staging import Staging
from raft.host import RaftHost


def refuses_nothing(_step: Step, _seen: Seen) -> str | None:
    """A leader takes every step that it is told, however late, whatever it sees."""
    return None


def any_replica_is_in_sync(step: Step, seen: Seen) -> str | None:
    """A leader believes that all its voters hold what is committed."""
    everyone = frozenset(voter.node for voter in seen.configuration.voters)
    return refusal(step, dataclasses.replace(seen, in_sync=everyone))


class UncheckedStaging(Staging):
    """What was copied is taken as it came."""

    def check_segment(self, segment: SegmentParts) -> None:
        try:
            super().check_segment(segment)
        except Damaged:
            return


class StaleStaging(Staging):
    """A copy is installed as if it reached one entry further than it does."""

    def finish(self, manifest: Manifest) -> Install:
        made = super().finish(manifest)
        return dataclasses.replace(made, last_index=Index(made.last_index + 1))


class ForgetsMoves(Mover):
    """What partitions' leaders tell is not passed on to the cluster group."""

    def _keep_news(self, group: GroupId, seen: Seen) -> None:
        return None


class RetiredForget(RaftHost):
    """A replica that is moved away forgets its term and vote, and that it held something."""

    def retire_group(self, id: GroupId) -> None:
        self.stop_group(id)
        if id in self._store.groups():
            self._store.remove_group(id)


class RemovesAnybody(Layout):
    """A broker is removed as soon as that is asked, whatever it holds."""

    def remove(self, command: RemoveBroker) -> BrokerResult:
        broker = self.brokers.named(command.node)
        self.brokers.remove(broker)
        return BrokerResult(broker.node, "gone")


class ForgetsTheDropped(Dropped):
    """What was decided for a replica that is not desired any more is taken to have arrived."""

    def moved(
        self, group: GroupId, before: Sequence[Voter], after: Sequence[Voter], epoch: int
    ) -> None:
        return None


class AwaitsNothing(Layout):
    """A broker is drained once it holds nothing, whatever is on its way to it."""

    def _move(self, wanted: Mapping[GroupId, Sequence[str]], time_ms: int) -> None:
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
