"""Groups with one hole each put back: a test that passes with any of them proves nothing."""

from __future__ import annotations

from collections.abc import Callable

from goqueue.wire.types import Index, NodeId
from log.entry import Entry
from raft import frames
from raft.configuration import Configuration
from raft.errors import Outcome
from raft.group import RaftGroup
from raft.peer import Peer
from raft.syncobj import LEADER, SyncObj
from raft.transfer import Transfers


class AckBeforeSync(RaftGroup):
    """A follower acknowledges what its disk does not hold yet."""

    def _durable_match(self) -> int:
        return self._log.last_index


class LeaderCountsUnsynced(RaftGroup):
    """The leader counts itself for entries it has not synced."""

    def _own_match(self) -> int:
        return self._log.last_index


class TruncateAlways(RaftGroup):
    """PySyncObj's append handler: all after prev_index goes, conflict or not."""

    def _take(self, prev: int, entries: list[Entry]) -> bool:
        first = max(prev + 1, self._log.first_index)
        if first <= self._log.last_index:
            self._truncate(Index(first))
            self._SyncObj__raftCommitIndex = min(self._SyncObj__raftCommitIndex, first - 1)
        new = [entry for entry in entries if entry.index > self._log.last_index]
        if new:
            self._log.append(new)
        return True


class TermlessAcks(RaftGroup):
    """Answers are taken whatever leadership they belong to."""

    def _answers_me(self, peer: Peer, term: int) -> bool:
        if self._SyncObj__raftState != LEADER:
            return super()._answers_me(peer, term)
        peer.heard_at = self._SyncObj__lastResponseTime[peer] = self._scheduler.now()
        return True


class VoteToldUnsynced(RaftGroup):
    """Terms and votes are told before they are durable."""

    def _may_tell(self) -> bool:
        return True


class VoteForgotten(RaftGroup):
    """The vote does not outlive a restart."""

    def _take_over_log(self) -> None:
        super()._take_over_log()
        self._SyncObj__votedForNodeId = None


class OldTermCommit(RaftGroup):
    """Figure 8 of the paper: entries of older terms are committed by counting."""

    def _may_commit(self, index: int) -> bool:
        return True


class ReadyBeforeNoop(RaftGroup):
    """A new leader serves before it knows what its predecessors committed."""

    def _begin_to_lead(self) -> None:
        super()._begin_to_lead()
        self._ready_term = self._SyncObj__raftCurrentTerm


class CommitBeyondMatch(RaftGroup):
    """A follower believes a commit index beyond what it knows to be the leader's."""

    def _commit_limit(self, matched: int) -> int:
        return self._log.last_index


class CommitIndexBelieved(RaftGroup):
    """After a restart everything in the log, and more, counts as committed."""

    def _take_over_log(self) -> None:
        super()._take_over_log()
        self._SyncObj__raftCommitIndex = self._log.last_index + 40


class VotesCountedTwice(RaftGroup):
    """Votes are counted without asking whose they are."""

    def _count_vote(self, voter: Peer) -> None:
        message = {"type": "response_vote", "term": self._SyncObj__raftCurrentTerm}
        SyncObj._SyncObj__onMessageReceived(self, voter, message)


class NoRegrant(RaftGroup):
    """A lost answer to a vote is never repeated."""

    def _vote(self, peer: Peer, term: int, last_index: int, last_term: int) -> None:
        voted = self._SyncObj__votedForNodeId
        if term != self._SyncObj__raftCurrentTerm or voted != peer.id:
            super()._vote(peer, term, last_index, last_term)


class NoPrevote(RaftGroup):
    """Campaigns at once, with a new term each time."""

    def _start_prevote(self, now: float) -> None:
        self._campaign()


class NoCheckQuorum(RaftGroup):
    """A leader that nobody answers leads on."""

    def _heard_voters(self, since: float) -> int:
        return len(self._voters)


class EasilyDeposed(RaftGroup):
    """Votes even while it hears a leader."""

    def _hears_leader(self) -> bool:
        return False


class LinksAreNoEvidence(RaftGroup):
    """A closed link to the leader is treated like silence."""

    def peer_disconnected(self, node: NodeId) -> None:
        leader, self._SyncObj__raftLeader = self._SyncObj__raftLeader, None
        super().peer_disconnected(node)
        self._SyncObj__raftLeader = leader


class ApplyErrorsIgnored(RaftGroup):
    """An exception of the state machine is skipped over."""

    def _apply_failed(self, index: int, error: Exception) -> None:
        self._SyncObj__raftLastApplied = index


class WaitersForgotten(RaftGroup):
    """Nobody tells proposers when leadership is lost or the replica stops."""

    def _answer_unknown(self, before_term: int | None = None) -> None:
        return None


class TruncationMeansNone(RaftGroup):
    """A proposal whose entry is truncated here is called impossible, though others hold it."""

    def _truncate(self, index: Index) -> None:
        super()._truncate(index)
        waiting = self._SyncObj__commandsWaitingCommit
        for at in sorted(waiting):
            if at >= index:
                for _term, callback in waiting.pop(at):
                    self._answer(callback, Outcome.NONE, None, at)


class DiscardedMeansApplied(RaftGroup):
    """Proposers are answered by index alone, whatever entry was committed there."""

    def _apply_some(self, until: float) -> bool:
        for index, waiting in self._SyncObj__commandsWaitingCommit.items():
            term = self._log.term_at(Index(index))
            if term is not None:
                waiting[:] = [(term, callback) for _term, callback in waiting]
        return super()._apply_some(until)


class NoWindow(RaftGroup):
    """Sends on to a follower that acknowledges nothing."""

    def _send_entries(self, peer: Peer) -> None:
        peer.inflight_bytes = 0
        super()._send_entries(peer)


class BackOffByOne(RaftGroup):
    """After a rejection, tries the entry just before."""

    def _on_rejection(self, peer: Peer, rejected: int, hint_index: int, hint_term: int) -> None:
        super()._on_rejection(peer, rejected, rejected - 1, 1 << 60)


class TransferToAnyone(RaftGroup):
    """Tells the target to campaign though it lacks entries."""

    def _drive_transfer(self) -> None:
        transfer = self._transfer
        if transfer is not None and not transfer.told:
            frame = frames.timeout_now(self._SyncObj__raftCurrentTerm)
            transfer.told = self._network.send(transfer.peer.node, self.id, [frame])


class ProposesDuringTransfer(RaftGroup):
    """Takes proposals while it hands over, so that the target never catches up."""

    def transfer_leadership(
        self, to: NodeId | None = None, callback: Callable[[bool], None] | None = None
    ) -> None:
        Transfers.transfer_leadership(self, to, callback)
        self._SyncObj__transferInProgress = False


class ReadsUnconfirmed(RaftGroup):
    """Answers reads without asking anybody whether it still leads."""

    def _confirm_rounds(self) -> None:
        for peer in self._peers.values():
            peer.round = self._round
        super()._confirm_rounds()


class WipedDiskVotes(RaftGroup):
    """A voter is its name, whatever became of its disk."""

    def start(self) -> None:
        super().start()
        self._log.trust()

    def _judge_vote(self) -> None:
        self._may_vote = self._self_peer.voter = self.node in self._voters

    def _may_campaign(self) -> bool:
        return self._may_vote

    def _may_grant(self, incarnation: int) -> bool:
        return self._may_vote


class ChangesAtOnce(RaftGroup):
    """Takes a change of the configuration while another one is under way, as PySyncObj does."""

    def _may_change(self) -> bool:
        return True


class LearnersCount(RaftGroup):
    """What a learner holds counts towards a majority."""

    def _seat_peers(self) -> None:
        super()._seat_peers()
        for peer in self._peers.values():
            peer.voter = True


class RemovedLeaderCounts(RaftGroup):
    """A leader that removes itself counts itself for the entry that says so."""

    def _seat_peers(self) -> None:
        super()._seat_peers()
        self._self_peer.voter = True


class RemovalOutlivesTruncation(RaftGroup):
    """A configuration stays in force though its entry was truncated."""

    def _unconfigure(self, index: int) -> None:
        return None


class ConfigurationAwaitsCommit(RaftGroup):
    """Only a committed configuration is in force, so that majorities need not meet."""

    def _configure(self, configuration: Configuration) -> None:
        self._configurations.append(configuration)

    def _configuration_applied(self, index: int) -> None:
        super()._configuration_applied(index)
        self._come_into_force()


class JoinersTrusted(RaftGroup):
    """A replica that began anew votes by whatever configuration it has come to so far."""

    def start(self) -> None:
        self._log.trust()
        super().start()


class OnlyOwnConfigurationVotes(RaftGroup):
    """Votes only where its own configuration gives it a vote, whatever the candidate knows."""

    def _may_grant(self, incarnation: int) -> bool:
        return self._may_campaign()


class LearnersStandBy(RaftGroup):
    """A learner never campaigns, though it may hold what nobody else does."""

    def _stand_in(self) -> None:
        pass


class RefusalsUntold(RaftGroup):
    """Who has given its vote away is silent to others who ask for it."""

    def _tell(self, peer: Peer, frame: bytes) -> None:
        if frame[0] == frames.FrameKind.VOTE_REPLY and not frame[1]:
            return
        super()._tell(peer, frame)


class RemovedGiveUp(RaftGroup):
    """Who is being removed does not campaign, though nobody else may be able to win."""

    def _judge_vote(self) -> None:
        super()._judge_vote()
        self._may_vote = self._self_peer.voter


class SuspectsTrusted(RaftGroup):
    """A replica that a power cut may have robbed of entries votes as if it held them."""

    def start(self) -> None:
        self._log.trust()
        super().start()


class SuspectsSuffice(RaftGroup):
    """Where suspect replicas vote, a majority is enough."""

    def _count_prevotes(self, granted: set[Peer]) -> None:
        if len(granted) >= self._quorum:
            self._campaign(frames.EVERYONE)

    def _count_vote(self, voter: Peer) -> None:
        flags, self._campaign_flags = self._campaign_flags, 0
        super()._count_vote(voter)
        self._campaign_flags = flags


class AnyAppendIsEnough(RaftGroup):
    """A suspect replica votes again as soon as it has taken anything from a leader."""

    def _look_for_end(self, leader: Peer) -> None:
        if self._log.suspect:
            self._caught_up()


class ApplyNeverYields(RaftGroup):
    """Applies everything in one go, however long it takes."""

    def _apply_some(self, until: float) -> bool:
        return super()._apply_some(float("inf"))


SAFETY = (
    AckBeforeSync,
    TruncateAlways,
    TermlessAcks,
    VoteToldUnsynced,
    VoteForgotten,
    OldTermCommit,
    CommitBeyondMatch,
    CommitIndexBelieved,
    VotesCountedTwice,
    WipedDiskVotes,
)
"""Those that a simulation of crashes, power cuts and bad links can catch by its checkers alone."""


class LearnerCountsItself(RaftGroup):
    """A learner that campaigns counts its own vote, as PySyncObj believes that it has one."""

    def _start_prevote(self, now: float) -> None:
        super()._start_prevote(now)
        if self._prevotes is not None:
            self._prevotes.add(self._self_peer)

    def _count_vote(self, voter: Peer) -> None:
        had, self._self_peer.voter = self._self_peer.voter, True
        super()._count_vote(voter)
        self._self_peer.voter = had


class ReadsAwaitNoApply(RaftGroup):
    """A read index is told before what it covers has applied here."""

    def _finish_reads(self) -> None:
        applied, self._SyncObj__raftLastApplied = self._SyncObj__raftLastApplied, 1 << 62
        super()._finish_reads()
        self._SyncObj__raftLastApplied = applied


class AnyRoundConfirms(RaftGroup):
    """An answer to an earlier round of beats confirms the newest one."""

    def take_beat_answer(self, peer: Peer, term: int, round_: int, last_index: int) -> None:
        super().take_beat_answer(peer, term, self._round, last_index)


class QuarantinedVote(RaftGroup):
    """A replica that can't read what it acknowledged votes and campaigns."""

    def _may_campaign(self) -> bool:
        return self._may_vote and self._log.last_index > 0

    def _may_grant(self, incarnation: int) -> bool:
        asked = incarnation == self.incarnation if incarnation else self._may_vote
        return asked and self._log.last_index > 0
