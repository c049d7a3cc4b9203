"""Groups with one hole each put back: a test that passes with any of them proves nothing."""

from __future__ import annotations

from dataclasses import fields, replace

from goqueue.wire.types import Index, NodeId
from log.entry import Entry
from raft import frames
from raft.apply import Apply
from raft.configuration import Configuration
from raft.election import Election, Leadership
from raft.errors import Outcome
from raft.following import Following, Suspect
from raft.group import Parts, RaftGroup
from raft.heartbeats import Heartbeats
from raft.membership import Changes, Membership
from raft.outbox import Outbox
from raft.peer import Peer
from raft.proposals import Proposals
from raft.read_index import ReadIndex
from raft.replication import Replication
from raft.state import State
from raft.transfer import Transfer, Transferred
from raft.voting import Voting


class Mutant(RaftGroup):
    """Its inner classes take the places of the parts that they derive from."""

    def __init_subclass__(cls) -> None:
        for base in reversed(cls.__mro__):
            for inner in vars(base).values():
                places = [
                    field.name
                    for field in fields(Parts)
                    if isinstance(inner, type) and issubclass(inner, getattr(cls.parts, field.name))
                ]
                cls.parts = replace(cls.parts, **dict.fromkeys(places, inner))


class AckBeforeSync(Mutant):
    """A follower acknowledges what its disk does not hold yet."""

    class Faulty(Outbox):
        def _durable_match(self) -> int:
            return self._log.last_index


class LeaderCountsUnsynced(Mutant):
    """The leader counts itself for entries it has not synced."""

    class Faulty(Replication):
        def _own_match(self) -> int:
            return self._log.last_index


class TruncateAlways(Mutant):
    """PySyncObj's append handler: all after prev_index goes, conflict or not."""

    class Faulty(Following):
        def _take(self, prev: int, entries: list[Entry]) -> bool:
            first = max(prev + 1, self._log.first_index)
            if first <= self._log.last_index:
                self._truncate(Index(first))
                self._state.commit_index = min(self._state.commit_index, first - 1)
            new = [entry for entry in entries if entry.index > self._log.last_index]
            if new:
                self._log.append(new)
            return True


class TermlessAcks(Mutant):
    """Answers are taken whatever leadership they belong to."""

    class Faulty(Replication):
        def answers_me(self, peer: Peer, term: int) -> bool:
            if not self._state.is_leader:
                return super().answers_me(peer, term)
            peer.heard_at = self._state.now()
            return True


class VoteToldUnsynced(Mutant):
    """Terms and votes are told before they are durable."""

    class Faulty(Outbox):
        def may_tell(self) -> bool:
            return True


class VoteForgotten(Mutant):
    """The vote does not outlive a restart."""

    class Faulty(State):
        def recover(self) -> None:
            super().recover()
            self.voted_for = None


class OldTermCommit(Mutant):
    """Figure 8 of the paper: entries of older terms are committed by counting."""

    class Faulty(Replication):
        def _may_commit(self, index: int) -> bool:
            return True


class ReadyBeforeNoop(Mutant):
    """A new leader serves before it knows what its predecessors committed."""

    class Faulty(Leadership):
        def _begin(self) -> None:
            super()._begin()
            self._state.ready_term = self._state.term


class CommitBeyondMatch(Mutant):
    """A follower believes a commit index beyond what it knows to be the leader's."""

    class Faulty(Following):
        def _commit_limit(self, matched: int) -> int:
            return self._log.last_index


class CommitIndexBelieved(Mutant):
    """After a restart everything in the log, and more, counts as committed."""

    class Faulty(State):
        def recover(self) -> None:
            super().recover()
            self.commit_index = self.log.last_index + 40


class VotesCountedTwice(Mutant):
    """Votes are counted without asking whose they are."""

    class Faulty(Voting):
        def _count_vote(self, voter: Peer) -> None:
            self._server.count_vote(voter)


class NoRegrant(Mutant):
    """A lost answer to a vote is never repeated."""

    class Faulty(Voting):
        def _vote(self, peer: Peer, term: int, last_index: int, last_term: int) -> None:
            voted = self._state.voted_for
            if term != self._state.term or voted != peer.id:
                super()._vote(peer, term, last_index, last_term)


class NoPrevote(Mutant):
    """Campaigns at once, with a new term each time."""

    class Faulty(Voting):
        def start_prevote(self, now: float) -> None:
            self._campaign()


class NoCheckQuorum(Mutant):
    """A leader that nobody answers leads on."""

    class Faulty(State):
        def heard_voters(self, since: float) -> int:
            return len(self.voters)


class EasilyDeposed(Mutant):
    """Votes even while it hears a leader."""

    class Faulty(Voting):
        def hears_leader(self) -> bool:
            return False


class LinksAreNoEvidence(Mutant):
    """A closed link to the leader is treated like silence."""

    class Faulty(Election):
        def peer_disconnected(self, node: NodeId) -> None:
            leader, self._state.leader = self._state.leader, None
            super().peer_disconnected(node)
            self._state.leader = leader


class ApplyErrorsIgnored(Mutant):
    """An exception of the state machine is skipped over."""

    class Faulty(Apply):
        def _apply_failed(self, index: int, error: Exception) -> None:
            self._state.applied_index = index


class WaitersForgotten(Mutant):
    """Nobody tells proposers when leadership is lost or the replica stops."""

    class Faulty(Proposals):
        def answer_unknown(self, before_term: int | None = None) -> None:
            return None


class TruncationMeansNone(Mutant):
    """A proposal whose entry is truncated here is called impossible, though others hold it."""

    class Faulty(Following):
        def _truncate(self, index: Index) -> None:
            super()._truncate(index)
            waiting = self._state.waiting
            for at in sorted(waiting):
                if at >= index:
                    for _term, callback in waiting.pop(at):
                        callback(Outcome.NONE, None, Index(at))


class DiscardedMeansApplied(Mutant):
    """Proposers are answered by index alone, whatever entry was committed there."""

    class Faulty(Apply):
        def _apply_some(self, until: float) -> bool:
            for index, waiting in self._state.waiting.items():
                term = self._log.term_at(Index(index))
                if term is not None:
                    waiting[:] = [(term, callback) for _term, callback in waiting]
            return super()._apply_some(until)


class NoWindow(Mutant):
    """Sends on to a follower that acknowledges nothing."""

    class Faulty(Replication):
        def _send_entries(self, peer: Peer) -> None:
            peer.inflight_bytes = 0
            super()._send_entries(peer)


class BackOffByOne(Mutant):
    """After a rejection, tries the entry just before."""

    class Faulty(Replication):
        def _on_rejection(self, peer: Peer, rejected: int, hint_index: int, hint_term: int) -> None:
            super()._on_rejection(peer, rejected, rejected - 1, 1 << 60)


class TransferToAnyone(Mutant):
    """Tells the target to campaign though it lacks entries."""

    class Faulty(Transfer):
        def drive(self) -> None:
            handover = self._handover
            if handover is not None and not handover.told:
                frame = frames.timeout_now(self._state.term)
                handover.told = self._state.send(handover.peer, frame)


class ProposesDuringTransfer(Mutant):
    """Takes proposals while it hands over, so that the target never catches up."""

    class Faulty(Transfer):
        def start(self, to: NodeId | None = None, callback: Transferred | None = None) -> None:
            super().start(to, callback)
            self._state.handing_over = False


class ReadsUnconfirmed(Mutant):
    """Answers reads without asking anybody whether it still leads."""

    class Faulty(ReadIndex):
        def _confirm_rounds(self) -> None:
            for peer in self._state.peers.values():
                peer.round = self.round
            super()._confirm_rounds()


class WipedDiskVotes(Mutant):
    """A voter is its name, whatever became of its disk."""

    def start(self) -> None:
        super().start()
        self.state.log.clear_suspect()

    class Named(Membership):
        def _judge_vote(self) -> None:
            state = self._state
            state.may_vote = state.self_peer.voter = state.node in state.voters

    class Campaigning(State):
        @property
        def may_campaign(self) -> bool:
            return self.may_vote

    class Granting(Voting):
        def _may_grant(self, incarnation: int) -> bool:
            return self._state.may_vote


class ChangesAtOnce(Mutant):
    """Takes a change of the configuration while another one is under way, as PySyncObj does."""

    class Faulty(Changes):
        def _may_change(self) -> bool:
            return True


class LearnersCount(Mutant):
    """What a learner holds counts towards a majority."""

    class Faulty(Membership):
        def _set_peers(self) -> None:
            super()._set_peers()
            for peer in self._state.peers.values():
                peer.voter = True


class RemovedLeaderCounts(Mutant):
    """A leader that removes itself counts itself for the entry that says so."""

    class Faulty(Membership):
        def _set_peers(self) -> None:
            super()._set_peers()
            self._state.self_peer.voter = True


class RemovalOutlivesTruncation(Mutant):
    """A configuration stays in force though its entry was truncated."""

    class Faulty(Membership):
        def truncated(self, index: int) -> None:
            return None


class ConfigurationAwaitsCommit(Mutant):
    """Only a committed configuration is in force, so that majorities need not meet."""

    class Faulty(Membership):
        def configure(self, configuration: Configuration) -> None:
            self._configurations.append(configuration)

        def applied(self, index: int) -> None:
            super().applied(index)
            self._come_into_force()


class JoinersTrusted(Mutant):
    """A replica that began anew votes by whatever configuration it has come to so far."""

    def start(self) -> None:
        self.state.log.clear_suspect()
        super().start()


class OnlyOwnConfigurationVotes(Mutant):
    """Votes only where its own configuration gives it a vote, whatever the candidate knows."""

    class Faulty(Voting):
        def _may_grant(self, incarnation: int) -> bool:
            return self._state.may_campaign


class LearnersStandBy(Mutant):
    """A learner never campaigns, though it may hold what nobody else does."""

    class Faulty(Voting):
        def _stand_in(self) -> None:
            pass


class RefusalsUntold(Mutant):
    """Who has given its vote away is silent to others who ask for it."""

    class Faulty(Outbox):
        def tell(self, peer: Peer, frame: bytes) -> None:
            if frame[0] == frames.FrameKind.VOTE_REPLY and not frame[1]:
                return
            super().tell(peer, frame)


class RemovedGiveUp(Mutant):
    """Who is being removed does not campaign, though nobody else may be able to win."""

    class Faulty(Membership):
        def _judge_vote(self) -> None:
            super()._judge_vote()
            self._state.may_vote = self._state.self_peer.voter


class SuspectsTrusted(Mutant):
    """A replica that a power cut may have robbed of entries votes as if it held them."""

    def start(self) -> None:
        self.state.log.clear_suspect()
        super().start()


class SuspectsSuffice(Mutant):
    """Where suspect replicas vote, a majority is enough."""

    class Faulty(Voting):
        def _count_prevotes(self, granted: set[Peer]) -> None:
            if len(granted) >= self._state.quorum:
                self._campaign(frames.EVERYONE)

        def _count_vote(self, voter: Peer) -> None:
            flags, self._state.campaign_flags = self._state.campaign_flags, 0
            super()._count_vote(voter)
            self._state.campaign_flags = flags


class AnyAppendIsEnough(Mutant):
    """A suspect replica votes again as soon as it has taken anything from a leader."""

    class Faulty(Suspect):
        def look_for_end(self, leader: Peer) -> None:
            if self._log.suspect:
                self.caught_up()


class ApplyNeverYields(Mutant):
    """Applies everything in one go, however long it takes."""

    class Faulty(Apply):
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


class LearnerCountsItself(Mutant):
    """A learner that campaigns counts its own vote, as PySyncObj believes that it has one."""

    class Faulty(Voting):
        def start_prevote(self, now: float) -> None:
            super().start_prevote(now)
            if self._state.prevotes is not None:
                self._state.prevotes.add(self._state.self_peer)

        def _count_vote(self, voter: Peer) -> None:
            me = self._state.self_peer
            had, me.voter = me.voter, True
            super()._count_vote(voter)
            me.voter = had


class ReadsAwaitNoApply(Mutant):
    """A read index is told before what it covers has applied here."""

    class Faulty(ReadIndex):
        def _finish_reads(self) -> None:
            applied, self._state.applied_index = self._state.applied_index, 1 << 62
            super()._finish_reads()
            self._state.applied_index = applied


class AnyRoundConfirms(Mutant):
    """An answer to an earlier round of beats confirms the newest one."""

    class Faulty(Heartbeats):
        def take_beat_answer(self, peer: Peer, term: int, round_: int, last_index: int) -> None:
            super().take_beat_answer(peer, term, self._reads.round, last_index)


class QuarantinedVote(Mutant):
    """A replica that can't read what it acknowledged votes and campaigns."""

    class Campaigning(State):
        @property
        def may_campaign(self) -> bool:
            return self.may_vote and self.log.last_index > 0

    class Granting(Voting):
        def _may_grant(self, incarnation: int) -> bool:
            own = self._state.me.incarnation
            asked = incarnation == own if incarnation else self._state.may_vote
            return asked and self._log.last_index > 0
