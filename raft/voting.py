"""Pre-votes and votes: asking for them, granting them, counting them.

A suspect replica (of a relaxed group, after a power cut) may lack entries that it acknowledged, so
that a majority with it proves nothing. Its vote counts only where every voter votes for the same
candidate: whose log is then the newest that is left, and holds all that any of them holds.
"""

from __future__ import annotations

from raft import frames
from raft.membership import Membership
from raft.outbox import Outbox
from raft.peer import Peer
from raft.roles import Roles
from raft.state import CANDIDATE, FOLLOWER, NEVER, State
from raft.syncobj import Server
from raft.timer import ElectionTimer


class Voting:
    """Granting, counting and becoming leader are PySyncObj's; who is asked, and when, is ours."""

    def __init__(
        self,
        state: State,
        server: Server,
        roles: Roles,
        timer: ElectionTimer,
        outbox: Outbox,
        membership: Membership,
    ) -> None:
        self._state = state
        self._log = state.log
        self._server = server
        self._roles = roles
        self._timer = timer
        self._outbox = outbox
        self._membership = membership
        self._suspects: set[Peer] = set()
        """Those among the pre-votes that vote only together with everyone."""
        self._votes: set[Peer] = set()
        self._refusals: set[Peer] = set()
        """Who has told that the vote of this term is another's, or that this log is too old."""
        self._campaign_at = -NEVER
        self._took_s = 0.0
        """How long the disk needed to store the last vote for oneself."""

    def _may_grant(self, incarnation: int) -> bool:
        """Whether a candidate asks this very replica.

        The candidate's configuration counts: it may be newer, and need the vote of somebody who
        does not know yet that he has one.
        """
        asked = incarnation == self._state.me.incarnation if incarnation else self._state.may_vote
        return asked and self._log.last_index > 0 and not self._log.quarantined

    def hears_leader(self) -> bool:
        """Whether a leader is alive as far as this node can know: who has no vote goes on naming
        the last one, however long it is silent."""
        now = self._state.now()
        if self._state.is_leader:
            return self._state.heard_voters(now - self._state.config.quorum_s) >= self._state.quorum
        heard = now - self._timer.leader_was_heard_at < self._state.config.election_min_s
        return heard and self._state.leader is not None

    @property
    def was_asked_to_lead(self) -> bool:
        """Whether the last campaign was the former leader's wish."""
        return bool(self._state.campaign_flags & frames.TRANSFER)

    # -- campaigning

    def start_prevote(self, now: float) -> None:
        """Asks whether others would vote, changing nobody's term (dissertation, 9.6).

        Who has much to apply before it could serve lets others try first, once.
        """
        self._roles.set_leader(None)
        gives_way = self._timer.attempts == 0 and self._lags
        self._timer.retry_later(now)
        if gives_way:
            return
        self._state.prevotes = {self._state.self_peer} if self._state.self_peer.voter else set()
        self._suspects = {self._state.self_peer} if self._log.suspect else set()
        self._ask_voters(frames.PRE, self._state.term + 1)
        self._count_prevotes(self._state.prevotes)

    @property
    def _lags(self) -> bool:
        """Whether it has more to apply than one read brings: as after a restart."""
        behind = self._state.commit_index - self._state.applied_index
        return behind > self._state.config.apply_entries

    def _count_prevotes(self, granted: set[Peer]) -> None:
        """Campaigns among a majority that is not suspect, or else among all voters."""
        if not self._log.suspect and len(granted - self._suspects) >= self._state.quorum:
            self._campaign()
        elif len(granted) == len(self._state.voters):
            self._campaign(frames.EVERYONE)

    def _ask_voters(self, flags: int, term: int) -> None:
        last_index, last_term = self._log.last_index, self._log.last_term
        for peer in self._state.peers.values():
            if peer.voter and peer.connected:
                incarnation = self._state.incarnations[peer.node]
                frame = frames.vote(term, last_index, last_term, flags, incarnation)
                self._state.send(peer, frame)

    def _campaign(self, flags: int = 0) -> None:
        """A new term with a vote for oneself; both are told, and counted, once durable."""
        self._state.prevotes = None
        self._roles.set_leader(None)
        state, server = self._state, self._server
        server.take_role(CANDIDATE)
        server.save_term(state.term + 1, state.self_peer.id)
        state.votes_count = 0
        state.campaign_flags = flags
        self._votes = set()
        self._refusals = set()
        self._campaign_at = state.now()
        self._timer.retry_later(self._campaign_at)
        self._outbox.campaign(self._ask_for_votes)

    def _ask_for_votes(self) -> None:
        if self._state.role != CANDIDATE:
            return
        self._await_slow_disks()
        self._ask_voters(self._state.campaign_flags, self._state.term)
        self._count_vote(self._state.self_peer)

    def _await_slow_disks(self) -> None:
        """Voters' disks may be as slow as this one, and busy with another sync first: whoever
        campaigns again before they can answer is never elected."""
        self._took_s = self._state.now() - self._campaign_at
        if self._is_slow:
            self._give_way(2 + self._state.rng.random())

    @property
    def _is_slow(self) -> bool:
        return self._took_s > self._state.config.retry_min_s

    def _give_way(self, syncs: float) -> None:
        """Begins no election for as long as so many syncs take."""
        self._timer.wait_until(self._state.now() + syncs * self._took_s)

    def _count_refusal(self, voter: Peer) -> None:
        """Where a slow disk has this candidate wait for votes, and nobody is left who could bring
        enough of them, it waits no longer than it would with a quick one."""
        self._refusals.add(voter)
        asked = {peer for peer in self._state.peers.values() if peer.voter and peer.connected}
        everyone = bool(self._state.campaign_flags & frames.EVERYONE)
        wanted = len(self._state.voters) if everyone else self._state.quorum
        if self._is_slow and len(self._votes | (asked - self._refusals)) < wanted:
            planned = self._state.deadline
            self._timer.retry_later(self._state.now())
            self._timer.set(min(planned, self._state.deadline))

    def _count_vote(self, voter: Peer) -> None:
        """PySyncObj counts it, and leads from the majority on; each voter only once.

        Where everyone must vote, or this replica has no vote itself as PySyncObj believes it has,
        PySyncObj is told that there are enough when the last one is there.
        """
        if voter in self._votes or not voter.voter:
            return
        self._votes.add(voter)
        everyone = bool(self._state.campaign_flags & frames.EVERYONE)
        if everyone or not self._state.self_peer.voter:
            if len(self._votes) < (len(self._state.voters) if everyone else self._state.quorum):
                return
            self._state.votes_count = len(self._state.voters)
        self._server.count_vote(voter)

    # -- voting

    def on_vote(self, peer: Peer, frame: memoryview) -> None:
        flags, term, last_index, last_term, incarnation = frames.parse_vote(frame)
        if not self._may_grant(incarnation):
            return
        mine = self._state.term
        heard = not flags & frames.TRANSFER and self.hears_leader()
        if term < mine or (flags & frames.PRE and term == mine):
            self._outbox.tell(peer, frames.vote_reply(mine, term, flags & frames.PRE))
        elif flags & frames.PRE:
            granted = not heard and (last_term, last_index) >= self._newest()
            answer = frames.PRE | (frames.GRANTED if granted else 0)
            answer |= frames.SUSPECT if self._log.suspect else 0
            self._outbox.tell(peer, frames.vote_reply(mine, term, answer))
            if granted and self._is_slow:
                self._give_way(3)
            if not heard and not granted:
                self._stand_in()
        elif not heard and (flags & frames.EVERYONE or not self._log.suspect):
            self._vote(peer, term, last_index, last_term)

    def _stand_in(self) -> None:
        """A candidate that lacks entries of this log needs this vote. Who has one campaigns in
        time; a learner does not, and yet the last leader may have told it alone. If it was being
        promoted, too, nobody can win without it, and nobody else has such a log. So it campaigns:
        by its own configuration, whose voters elect it without its vote, and then hands over.
        """
        is_learner = self._state.me in self._membership.configuration.learners
        able = not self._log.suspect and not self._state.unspoken
        if is_learner and able and self._outbox.may_tell():
            self.start_prevote(self._state.now())

    def _newest(self) -> tuple[int, int]:
        return self._log.last_term, self._log.last_index

    def _vote(self, peer: Peer, term: int, last_index: int, last_term: int) -> None:
        voted = self._state.voted_for
        if term == self._state.term and voted == peer.id:
            self.grant(peer)
            return
        deadline = self._state.deadline
        if term > self._state.term:
            self._state.prevotes = None
        self._server.request_vote(peer, term, last_index, last_term)
        self._state.deadline = deadline
        if self._state.voted_for == peer.id or deadline == NEVER:
            self._timer.rest()
        if self._state.voted_for != peer.id:
            self._outbox.tell(peer, frames.vote_reply(term, term, 0))
        self._roles.announce()

    def grant(self, candidate: Peer) -> None:
        """PySyncObj granted its vote: told once it is durable."""
        term = self._state.term
        self._outbox.tell(candidate, frames.vote_reply(term, term, frames.GRANTED))

    def on_vote_reply(self, peer: Peer, frame: memoryview) -> None:
        flags, term, asked = frames.parse_vote_reply(frame)
        mine = self._state.term
        if term > mine:
            self._roles.newer_term(term)
        elif not peer.voter or (flags & frames.PRE and not flags & frames.GRANTED):
            return
        elif flags & frames.PRE:
            if self._state.prevotes is not None and asked == mine + 1:
                self._state.prevotes.add(peer)
                if flags & frames.SUSPECT:
                    self._suspects.add(peer)
                self._count_prevotes(self._state.prevotes)
        elif asked == term == mine and self._state.role == CANDIDATE:
            if flags & frames.GRANTED:
                self._count_vote(peer)
            else:
                self._count_refusal(peer)

    # -- taking over

    def on_timeout_now(self, peer: Peer, frame: memoryview) -> None:
        """The leader of this very term asks this node to take over."""
        _kind, _flags, _zero, term = frames.HEAD.unpack_from(frame)
        leads = self._state.leader is peer and term == self._state.term
        able = self._state.may_campaign and not self._log.suspect
        if leads and self._state.role == FOLLOWER and able:
            self._timer.attempts = 0
            self._campaign(frames.TRANSFER)
