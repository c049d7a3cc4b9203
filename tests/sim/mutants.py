"""Bugs by name, planted one at a time: a simulation that misses one proves less than it says."""

from __future__ import annotations

from dataclasses import dataclass, replace

from coordinator.group_coordinator import GroupCoordinator
from coordinator.membership import Membership
from coordinator.state import ClusterState
from delivery.appender import Admitted, Appender, Duplicate
from delivery.dispatcher import Dispatcher
from delivery.partition import PartitionState
from goqueue.wire.batch import RecordBatch
from raft.group import RaftGroup
from tests.sim import member_mutants as members
from tests.sim import queue_mutants as queues
from tests.sim.queue_requests import Ask
from tests.unit.raft import mutants as groups


@dataclass(frozen=True)
class Mutant:
    """What is replaced by a faulty part."""

    name: str = ""
    group: type[RaftGroup] = RaftGroup
    appender: type[Appender] = Appender
    state: type[PartitionState] = PartitionState
    dispatcher: type[Dispatcher[Ask]] = Dispatcher
    coordinator: type[GroupCoordinator] = GroupCoordinator
    membership: type[Membership] = Membership
    disk_lies: bool = False
    """Syncs are answered, and not done."""
    appender_kept: bool = False
    """What was in flight in an earlier leadership still counts."""

    def cluster(self, state: ClusterState) -> None:
        """Let the groups of this state have members of the faulty kind."""
        for membership in state.members.by_group.values():
            membership.__class__ = self.membership


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


MEMBER_MUTANTS = (
    Mutant("given-before-released", membership=members.GivenBeforeReleased),
    Mutant("taken-unasked", membership=members.TakenUnasked),
    Mutant("expiry-is-handover", membership=members.ExpiryIsHandover),
    Mutant("static-not-fenced", membership=members.StaticNotFenced),
    Mutant("stops-the-world", membership=members.StopsTheWorld),
    Mutant("not-sticky", membership=members.NotSticky),
    Mutant("dead-not-fenced", membership=members.DeadNotFenced),
    Mutant("any-owner-will-do", membership=members.AnyOwnerWillDo),
    Mutant("sessions-not-renewed", coordinator=members.SessionsNotRenewed),
    Mutant("heartbeats-ignored", coordinator=members.HeartbeatsIgnored),
    Mutant("namings-given-up", coordinator=members.NamingsGivenUp),
    Mutant("settle-unchecked", state=members.SettleUnchecked),
    Mutant("receive-unchecked", state=members.ReceiveUnchecked, dispatcher=members.RefusesNobody),
    Mutant("commit-unchecked", state=members.CommitUnchecked),
    Mutant("very-generation", state=members.VeryGeneration),
    Mutant("receives-held", dispatcher=members.HoldsWhatIsOld),
    Mutant("older-owners", state=members.OlderOwners),
    Mutant("owners-ignored", state=members.OwnersIgnored),
    Mutant("owners-not-in-snapshot", state=members.OwnersNotInSnapshot),
    Mutant(
        "former-grants-repeated",
        state=members.FormerGrantsRepeated,
        dispatcher=members.RefusesNobody,
    ),
)
"""Those of groups with members."""

MUTANTS = {
    mutant.name: mutant
    for mutant in (
        Mutant("no-fsync", disk_lies=True),
        Mutant("ack-before-fsync", group=_AckBeforeFsync),
        Mutant("truncate-always", group=groups.TruncateAlways),
        Mutant("termless-acks", group=groups.TermlessAcks),
        Mutant("vote-told-unsynced", group=groups.VoteToldUnsynced),
        Mutant("vote-forgotten", group=groups.VoteForgotten),
        Mutant("figure-8", group=groups.OldTermCommit),
        Mutant("ready-before-noop", group=groups.ReadyBeforeNoop),
        Mutant("commit-index-believed", group=groups.CommitIndexBelieved),
        Mutant("votes-counted-twice", group=groups.VotesCountedTwice),
        Mutant("wiped-disk-votes", group=groups.WipedDiskVotes),
        Mutant("reads-unconfirmed", group=groups.ReadsUnconfirmed),
        Mutant("discarded-means-applied", group=groups.DiscardedMeansApplied),
        Mutant("dedup-forgotten", appender=_ForgetsRequests),
        Mutant("flights-ignored", appender=_IgnoresFlights),
        Mutant("duplicate-answered-early", appender=_AnswersEarly),
        Mutant("appender-kept", appender_kept=True),
        Mutant("early-delay", state=queues.EarlyDelay),
        Mutant("delay-by-wall-clock", state=queues.DelayByWallClock),
        Mutant("cancelled-and-delivered", state=queues.CancelledAndDelivered),
        Mutant("trimmed-while-delayed", state=queues.TrimmedWhileDelayed),
        Mutant("dead-twice", state=queues.DeadTwice),
        Mutant("redriven-and-dead", state=queues.RedrivenAndDead),
        Mutant("expiry-uncounted", state=queues.ExpiryUncounted),
        Mutant("expired-settles", state=queues.ExpiredSettles),
        Mutant("foreign-receipts", state=queues.ForeignReceipts),
        Mutant("leases-not-in-snapshot", state=queues.LeasesNotInSnapshot),
        Mutant("attempts-not-in-snapshot", state=queues.AttemptsNotInSnapshot),
        Mutant("leases-dropped-at-failover", dispatcher=queues.LeasesDroppedAtFailover),
        Mutant("settle-answered-early", dispatcher=queues.SettleAnsweredEarly),
        Mutant("ack-in-memory", dispatcher=queues.AckInMemory),
        Mutant("empty-grant-remembered", state=queues.EmptyGrantRemembered),
        Mutant("lane-skip", state=queues.LaneSkip),
        Mutant("lanes-ignored", state=queues.LanesIgnored),
        Mutant("key-goes-on", state=queues.KeyGoesOn),
        Mutant("any-version", state=queues.AnyVersion, dispatcher=queues.PutsAnyVersion),
        Mutant("ids-forgotten-at-failover", appender=queues.IdsForgottenAtFailover),
        Mutant("ids-in-flight-ignored", appender=queues.IdsInFlightIgnored),
        Mutant("ids-not-in-snapshot", state=queues.IdsNotInSnapshot),
        *MEMBER_MUTANTS,
    )
}
