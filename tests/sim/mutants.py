"""Bugs by name, planted one at a time: a simulation that misses one proves less than it says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from coordinator.brokers.electorate import Elector
from coordinator.brokers.registry import Brokers
from coordinator.cluster.state import ClusterState
from coordinator.groups.coordinator import GroupCoordinator
from coordinator.groups.membership import GroupMembership
from coordinator.placement.cluster_steps import cluster_members
from coordinator.placement.layout import Layout
from coordinator.placement.mover import Mover
from coordinator.placement.steps import Seen, Step, refusal
from delivery.history.outcome_notes import OutcomeNotes
from delivery.leader.appender import Admitted, Appender, Duplicate
from delivery.leader.dispatcher import Dispatcher
from delivery.state.partition import PartitionState
from delivery.timeline.message import Timeline, project
from goqueue.wire.batch import RecordBatch
from goqueue.wire.types import NodeId, Voter
from log.copy.staging import Staging
from log.entry import Entry
from node.partition.append_queue import AppendQueue
from node.partition.retention.compaction import Compactor
from node.peers.forwarding import Forwarder
from node.replicas.local import ReplicasOf
from node.storage.copying.source import TransferSource
from raft.group import RaftGroup
from raft.host import RaftHost
from tests.sim import call_mutants as calls
from tests.sim import compact_mutants as compaction
from tests.sim import copy_mutants as copies
from tests.sim import member_mutants as members
from tests.sim import move_mutants as moves
from tests.sim import queue_mutants as queues
from tests.sim import stream_mutants as streams
from tests.sim import timeline_mutants as timelines
from tests.unit.raft import mutants as groups

MOVES = ("kill-at-change", "split-at-change", "wipe", "power-majority", "kill", "partition")
"""What goes wrong while replicas move."""


@dataclass(frozen=True)
class Mutant:
    """What is replaced by a faulty part."""

    name: str = ""
    floor: str = ""
    kind: str = "core"
    """Of cluster, where it is looked for."""
    nemesis: tuple[str, ...] = ()
    """Faults that bring it out, where uniform ones do not."""
    raft_group: type[RaftGroup] = RaftGroup
    appender: type[Appender] = Appender
    state: type[PartitionState] = PartitionState
    dispatcher: type[Dispatcher[Any]] = Dispatcher
    forwarder: type[Forwarder] = Forwarder
    appends: type[AppendQueue] = AppendQueue
    coordinator: type[GroupCoordinator] = GroupCoordinator
    host: type[RaftHost] = RaftHost
    mover: type[Mover] = Mover
    layout: type[Layout] = Layout
    brokers: type[Brokers] = Brokers
    cluster_members: Callable[
        [Brokers, Sequence[Voter], Callable[[NodeId], int]], dict[NodeId, Elector]
    ] = cluster_members
    """Everyone who belongs in the cluster group."""
    sees: Callable[[Seen], Seen] = moves.as_it_is
    """What partitions' leaders make of what they see."""
    refusal: Callable[[Step, Seen], str | None] = refusal
    """What they make of steps."""
    staging: type[Staging] = Staging
    source: type[TransferSource] = TransferSource
    replicas: type[ReplicasOf[Any]] = ReplicasOf
    hasty: bool = False
    """Nobody waits for a change of replicas to commit."""
    membership: type[GroupMembership] = GroupMembership
    project: Callable[[int, Sequence[Entry], OutcomeNotes], Timeline | None] = project
    """A message's timeline from its log."""
    compactor: type[Compactor] = Compactor
    reads_early: bool = False
    """What is kept is read while it is not known yet."""
    disk_lies: bool = False
    """Syncs are answered, and not done."""
    disk_hides: bool = False
    """Syncs that fail are taken for done."""
    puts_any_version: bool = False
    """A leader takes a group for open only where its settings are those that it knows."""
    appender_kept: bool = False
    """What was in flight in an earlier leadership still counts."""

    def cluster(self, state: ClusterState) -> None:
        """Let the groups of this state have members of the faulty kind."""
        for membership in state.members.by_group.values():
            membership.__class__ = self.membership
        state.layout.__class__ = self.layout
        state.layout.brokers.__class__ = self.brokers


class _AckBeforeFsync(groups.AckBeforeSync, groups.LeaderCountsUnsynced):
    """Nobody waits for the disk before acknowledging."""


class _ForgetsRequests(Appender):
    """What is stored is forgotten: a repeat that comes after its original is stored again."""

    def _judge_request(self, batch: RecordBatch, request_id: int) -> Duplicate | None:
        flying = self._flights.requests.get(request_id)
        return None if flying is None else Duplicate(flying[0], batch.count, flying[1].index)


class _IgnoresFlights(Appender):
    """What is in flight is not looked at: a repeat within a round trip is stored again."""

    def _judge_request(self, batch: RecordBatch, request_id: int) -> Duplicate | None:
        offset = self._state.requests.offset_of(request_id)
        return None if offset is None else Duplicate(offset, batch.count, None)

    def _land(self) -> None:
        return None


class _AnswersEarly(Appender):
    """A duplicate is answered before its original has applied."""

    def admit(
        self, batch: RecordBatch, request_id: int = 0, now_ms: int = 0
    ) -> Admitted | Duplicate:
        verdict = super().admit(batch, request_id, now_ms)
        if isinstance(verdict, Duplicate):
            return replace(verdict, pending_index=None)
        return verdict


_ALL = (
    Mutant("no-fsync", "log", disk_lies=True),
    Mutant("failed-fsync-ignored", "log", nemesis=("disk", "power"), disk_hides=True),
    Mutant("ack-before-fsync", "raft", raft_group=_AckBeforeFsync),
    Mutant("truncate-always", "raft", raft_group=groups.TruncateAlways),
    Mutant("termless-acks", "raft", raft_group=groups.TermlessAcks),
    Mutant("vote-told-unsynced", "raft", nemesis=("targeted",), raft_group=groups.VoteToldUnsynced),
    Mutant(
        "vote-forgotten",
        "raft",
        nemesis=("targeted",),
        raft_group=groups.VoteForgotten,
    ),
    Mutant("figure-8", "raft", kind="log", nemesis=("figure-8",), raft_group=groups.OldTermCommit),
    Mutant("ready-before-noop", "raft", raft_group=groups.ReadyBeforeNoop),
    Mutant("commit-index-believed", "raft", raft_group=groups.CommitIndexBelieved),
    Mutant(
        "votes-counted-twice",
        "raft",
        kind="log",
        nemesis=("restart-voters", "duplicates"),
        raft_group=groups.VotesCountedTwice,
    ),
    Mutant("wiped-disk-votes", "raft", raft_group=groups.WipedDiskVotes),
    Mutant("reads-unconfirmed", "raft", raft_group=groups.ReadsUnconfirmed),
    Mutant(
        "suspects-trusted",
        "raft",
        kind="topics",
        nemesis=("power-written",),
        raft_group=groups.SuspectsTrusted,
    ),
    Mutant("discarded-means-applied", "raft", raft_group=groups.DiscardedMeansApplied),
    Mutant("dedup-forgotten", "delivery", appender=_ForgetsRequests),
    Mutant("flights-ignored", "delivery", appender=_IgnoresFlights),
    Mutant("duplicate-answered-early", "delivery", appender=_AnswersEarly),
    Mutant("appender-kept", "delivery", appender_kept=True),
    Mutant("doubt-forgotten", "node", kind="log", forwarder=calls.DoubtForgotten),
    Mutant("twins-answered-anyway", "node", appends=calls.TwinsAnsweredAnyway),
    Mutant("commits-come-twice", "delivery", kind="queue", state=queues.CommitsComeTwice),
    Mutant("early-delay", "delivery", kind="queue", state=queues.EarlyDelay),
    Mutant("delay-by-wall-clock", "delivery", kind="queue", state=queues.DelayByWallClock),
    Mutant("cancelled-and-delivered", "delivery", kind="queue", state=queues.CancelledAndDelivered),
    Mutant("trimmed-while-delayed", "delivery", kind="queue", state=queues.TrimmedWhileDelayed),
    Mutant("dead-twice", "delivery", kind="queue", state=queues.DeadTwice),
    Mutant("redriven-and-dead", "delivery", kind="queue", state=queues.RedrivenAndDead),
    Mutant("expiry-uncounted", "delivery", kind="queue", state=queues.ExpiryUncounted),
    Mutant("expired-settles", "delivery", kind="queue", state=queues.ExpiredSettles),
    Mutant("foreign-receipts", "delivery", kind="queue", state=queues.ForeignReceipts),
    Mutant("lease-kept", "delivery", kind="queue", state=streams.LeaseKeptAfterItsStream),
    Mutant(
        "orderly-close-counted",
        "delivery",
        kind="queue",
        state=streams.AttemptCountedOnAnOrderlyClose,
    ),
    Mutant("loss-uncounted", "delivery", kind="queue", state=streams.LossUncounted),
    Mutant("streams-not-in-snapshot", "delivery", kind="queue", state=streams.StreamsNotInSnapshot),
    Mutant(
        "runs-outlive-their-nodes",
        "delivery",
        kind="queue",
        dispatcher=streams.RunsOutliveTheirNodes,
    ),
    Mutant("leases-not-in-snapshot", "delivery", kind="queue", state=queues.LeasesNotInSnapshot),
    Mutant(
        "attempts-not-in-snapshot", "delivery", kind="queue", state=queues.AttemptsNotInSnapshot
    ),
    Mutant(
        "leases-dropped-at-failover",
        "delivery",
        kind="queue",
        dispatcher=queues.LeasesDroppedAtFailover,
    ),
    Mutant(
        "settle-answered-early", "delivery", kind="queue", dispatcher=queues.SettleAnsweredEarly
    ),
    Mutant("ack-in-memory", "delivery", kind="queue", dispatcher=queues.AckInMemory),
    Mutant("empty-grant-remembered", "delivery", kind="queue", state=queues.EmptyGrantRemembered),
    Mutant("repeats-choose", "delivery", kind="queue", dispatcher=queues.RepeatsChoose),
    Mutant("lane-skip", "delivery", kind="queue", state=queues.LaneSkip),
    Mutant("lanes-ignored", "delivery", kind="queue", state=queues.LanesIgnored),
    Mutant(
        "lanes-forgotten-by-seeks", "delivery", kind="queue", state=queues.LanesForgottenBySeeks
    ),
    Mutant("delayed-outlive-commits", "delivery", kind="queue", state=queues.DelayedOutliveCommits),
    Mutant("key-goes-on", "delivery", kind="queue", state=queues.KeyGoesOn),
    Mutant(
        "any-version",
        "delivery",
        kind="queue",
        state=queues.AnyVersion,
        dispatcher=queues.PutsAnyVersion,
        puts_any_version=True,
    ),
    Mutant(
        "ids-forgotten-at-failover",
        "delivery",
        kind="queue",
        appender=queues.IdsForgottenAtFailover,
    ),
    Mutant("ids-in-flight-ignored", "delivery", kind="queue", appender=queues.IdsInFlightIgnored),
    Mutant("ids-not-in-snapshot", "delivery", kind="queue", state=queues.IdsNotInSnapshot),
    Mutant("redelivery-untold", "timelines", kind="queue", project=timelines.untold_redelivery),
    Mutant("attempts-miscounted", "timelines", kind="queue", project=timelines.attempts_of_all),
    Mutant("index-skips", "timelines", kind="queue", project=timelines.skips_entries),
    Mutant("seeks-untold", "timelines", kind="queue", project=timelines.skips_replays),
    Mutant("past-not-in-snapshot", "timelines", kind="queue", state=timelines.ForgetsThePast),
    Mutant("refused-told", "timelines", kind="queue", state=timelines.TellsRefused),
    Mutant("repeats-told", "timelines", kind="members", state=timelines.TellsRepeated),
    Mutant(
        "given-before-released",
        "coordinator",
        kind="members",
        membership=members.GivenBeforeReleased,
    ),
    Mutant("taken-unasked", "coordinator", kind="members", membership=members.TakenUnasked),
    Mutant(
        "expiry-is-handover", "coordinator", kind="members", membership=members.ExpiryIsHandover
    ),
    Mutant("static-not-fenced", "coordinator", kind="members", membership=members.StaticNotFenced),
    Mutant("stops-the-world", "coordinator", kind="members", membership=members.StopsTheWorld),
    Mutant("not-sticky", "coordinator", kind="members", membership=members.NotSticky),
    Mutant("dead-not-fenced", "coordinator", kind="members", membership=members.DeadNotFenced),
    Mutant("any-owner-will-do", "coordinator", kind="members", membership=members.AnyOwnerWillDo),
    Mutant(
        "sessions-not-renewed",
        "coordinator",
        kind="members",
        coordinator=members.SessionsNotRenewed,
    ),
    Mutant(
        "heartbeats-ignored", "coordinator", kind="members", coordinator=members.HeartbeatsIgnored
    ),
    Mutant("namings-given-up", "coordinator", kind="members", coordinator=members.NamingsGivenUp),
    Mutant("settle-unchecked", "delivery", kind="members", state=members.SettleUnchecked),
    Mutant(
        "receive-unchecked",
        "delivery",
        kind="members",
        state=members.ReceiveUnchecked,
        dispatcher=members.RefusesNobody,
    ),
    Mutant("commit-unchecked", "delivery", kind="members", state=members.CommitUnchecked),
    Mutant("very-generation", "delivery", kind="members", state=members.VeryGeneration),
    Mutant("receives-held", "delivery", kind="members", dispatcher=members.HoldsWhatIsOld),
    Mutant("older-owners", "delivery", kind="members", state=members.OlderOwners),
    Mutant("owners-ignored", "delivery", kind="members", state=members.OwnersIgnored),
    Mutant("owners-not-in-snapshot", "delivery", kind="members", state=members.OwnersNotInSnapshot),
    Mutant(
        "former-grants-repeated",
        "delivery",
        kind="members",
        state=members.FormerGrantsRepeated,
        dispatcher=members.RefusesNobody,
    ),
    Mutant(
        "copy-unchecked",
        "log",
        kind="moving",
        nemesis=("damage",),
        staging=moves.UncheckedStaging,
    ),
    Mutant("copy-misnamed", "log", kind="moving", staging=moves.StaleStaging),
    Mutant("copies-not-offered", "node", kind="moving", source=copies.OffersNothing),
    Mutant("copied-while-it-runs", "node", kind="moving", replicas=copies.RunsWhileHeld),
    Mutant("copied-never-released", "node", kind="moving", replicas=copies.NeverReleased),
    Mutant("founds-by-an-older-state", "node", kind="topics", replicas=copies.FoundsEarly),
    Mutant("retired-unasked", "node", kind="moving", replicas=copies.RetiresUnasked),
    Mutant(
        "changes-at-once",
        "raft",
        kind="moving",
        nemesis=MOVES,
        raft_group=groups.ChangesAtOnce,
        refusal=moves.refuses_nothing,
        hasty=True,
    ),
    Mutant(
        "learner-counted", "raft", kind="moving", nemesis=MOVES, raft_group=groups.LearnersCount
    ),
    Mutant(
        "learners-stand-by",
        "raft",
        kind="moving",
        nemesis=("lone-learner",),
        raft_group=groups.LearnersStandBy,
    ),
    Mutant(
        "removed-leader-counts",
        "raft",
        kind="moving",
        nemesis=MOVES,
        raft_group=groups.RemovedLeaderCounts,
    ),
    Mutant(
        "removal-outlives-truncation",
        "raft",
        kind="moving",
        nemesis=MOVES,
        raft_group=groups.RemovalOutlivesTruncation,
    ),
    Mutant(
        "configuration-awaits-commit",
        "raft",
        kind="moving",
        nemesis=MOVES,
        raft_group=groups.ConfigurationAwaitsCommit,
    ),
    Mutant(
        "joiner-trusted",
        "raft",
        kind="moving",
        nemesis=("damage", "kill-leader"),
        raft_group=groups.JoinersTrusted,
    ),
    Mutant(
        "wiped-votes-under-old-name",
        "raft",
        kind="moving",
        nemesis=MOVES,
        raft_group=groups.WipedDiskVotes,
    ),
    Mutant("retired-forget", "raft", kind="moving", nemesis=MOVES, host=moves.RetiredForget),
    Mutant(
        "steps-unjudged", "coordinator", kind="moving", nemesis=MOVES, refusal=moves.refuses_nothing
    ),
    Mutant(
        "lagging-counts-as-in-sync",
        "coordinator",
        kind="moving",
        nemesis=MOVES,
        sees=moves.everyone_in_sync,
    ),
    Mutant("nulls-go-at-once", "node", kind="compact", compactor=compaction.NullsGoAtOnce),
    Mutant(
        "earlier-runs-forgotten", "node", kind="compact", compactor=compaction.ForgetsEarlierRuns
    ),
    Mutant("superseded-kept", "node", kind="compact", compactor=compaction.KeepsSuperseded),
    Mutant("kept-not-in-snapshot", "delivery", kind="compact", state=compaction.KeptNotInSnapshot),
    Mutant("kept-read-early", "node", kind="compact", reads_early=True),
    Mutant("removed-unasked", "coordinator", kind="moving", layout=moves.RemovesAnybody),
    Mutant("late-steps-count", "coordinator", kind="moving", layout=moves.AwaitsNothing),
    Mutant("removed-come-back", "coordinator", kind="moving", brokers=moves.ForgetsTheGone),
    Mutant("removed-stay", "coordinator", kind="moving", cluster_members=moves.with_the_gone),
    Mutant("moves-untold", "coordinator", kind="moving", mover=moves.ForgetsMoves),
)
"""By floors, from the bottom up."""

MUTANTS = {mutant.name: mutant for mutant in _ALL}
