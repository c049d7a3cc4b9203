"""Pre-votes and votes: asking for them, granting them, counting them.

A suspect replica (of a relaxed group, after a power cut) may lack entries that it acknowledged, so
that a majority with it proves nothing. Its vote counts only where every voter votes for the same
candidate: whose log is then the newest that is left, and holds all that any of them holds.
"""

from __future__ import annotations

from raft import frames
from raft.peer import Peer
from raft.syncobj import CANDIDATE, FOLLOWER, LEADER, SyncObj
from raft.transfer import Transfers

NEVER = float("inf")


class Voting(Transfers):
    """Granting, counting and becoming leader are PySyncObj's; who is asked, and when, is ours."""

    _prevotes: set[Peer] | None = None
    _suspects: set[Peer]
    """Those among `_prevotes` that vote only together with everyone."""
    _votes: set[Peer]
    _refusals: set[Peer]
    """Who has told that the vote of this term is another's, or that this log is too old for it."""
    _campaign_flags = 0
    _campaign_at = -NEVER
    _took_s = 0.0
    """How long the disk needed to store the last vote for oneself."""
    _leader_heard_at = -NEVER
    _timeout_s = 0.0
    _attempts = 0

    def _may_campaign(self) -> bool:
        able = self._may_vote and self._log.last_index > 0 and not self._log.quarantined
        return able and not self.unspoken

    def _may_grant(self, incarnation: int) -> bool:
        """Whether a candidate asks this very replica.

        The candidate's configuration counts: it may be newer, and need the vote of somebody who
        does not know yet that he has one.
        """
        asked = incarnation == self.incarnation if incarnation else self._may_vote
        return asked and self._log.last_index > 0 and not self._log.quarantined

    def _vote_changed(self) -> None:
        if self._SyncObj__raftState != LEADER:
            self._prevotes = None
            self._rest()
            if not self._may_campaign():
                self._timeout_s = 0.0

    def _hears_leader(self) -> bool:
        """Whether a leader is alive as far as this node can know."""
        now = self._scheduler.now()
        if self._SyncObj__raftState == LEADER:
            return self._heard_voters(now - self._config.quorum_s) >= self._quorum
        heard = now - self._leader_heard_at < self._config.election_min_s
        return heard and self._SyncObj__raftLeader is not None

    def _retry_later(self, now: float) -> None:
        """Random at its longest, too: two candidates in step would split their votes for ever."""
        config = self._config
        longest = min(config.retry_max_s * 2 ** min(self._attempts, 8), config.election_max_s)
        shortest = longest * config.retry_min_s / config.retry_max_s
        self._set_deadline(now + shortest + (longest - shortest) * self._rng.random())
        self._attempts += 1

    def _wait_until(self, at: float) -> None:
        self._set_deadline(max(at, self._SyncObj__raftElectionDeadline))

    @property
    def was_asked_to_lead(self) -> bool:
        """Whether the last campaign was the former leader's wish."""
        return bool(self._campaign_flags & frames.TRANSFER)

    def _heard_voters(self, since: float) -> int:
        heard = sum(1 for peer in self._peers.values() if peer.voter and peer.heard_at > since)
        return heard + self._self_peer.voter

    def _rest(self) -> None:
        """Waits a full random timeout before the next suspicion."""
        self._timeout_s = self._SyncObj__generateRaftTimeout()
        self._set_deadline(
            self._scheduler.now() + self._timeout_s if self._may_campaign() else NEVER
        )

    def _set_leader(self, peer: Peer | None) -> None:
        self._SyncObj__raftLeader = peer
        self._announce()

    # -- campaigning

    def _start_prevote(self, now: float) -> None:
        """Asks whether others would vote, changing nobody's term (dissertation, 9.6).

        Who has much to apply before it could serve lets others try first, once.
        """
        self._set_leader(None)
        gives_way = self._attempts == 0 and self._lags
        self._retry_later(now)
        if gives_way:
            return
        self._prevotes = {self._self_peer} if self._self_peer.voter else set()
        self._suspects = {self._self_peer} if self._log.suspect else set()
        self._ask_voters(frames.PRE, self._SyncObj__raftCurrentTerm + 1)
        self._count_prevotes(self._prevotes)

    @property
    def _lags(self) -> bool:
        """Whether it has more to apply than one read brings: as after a restart."""
        behind = self._SyncObj__raftCommitIndex - self._SyncObj__raftLastApplied
        return behind > self._config.apply_entries

    def _count_prevotes(self, granted: set[Peer]) -> None:
        """Campaigns among a majority that is not suspect, or else among all voters."""
        if not self._log.suspect and len(granted - self._suspects) >= self._quorum:
            self._campaign()
        elif len(granted) == len(self._voters):
            self._campaign(frames.EVERYONE)

    def _ask_voters(self, flags: int, term: int) -> None:
        last_index, last_term = self._log.last_index, self._log.last_term
        for peer in self._peers.values():
            if peer.voter and peer.connected:
                incarnation = self._incarnations[peer.node]
                frame = frames.vote(term, last_index, last_term, flags, incarnation)
                self._network.send(peer.node, self.id, [frame])

    def _campaign(self, flags: int = 0) -> None:
        """A new term with a vote for oneself; both are told, and counted, once durable."""
        self._prevotes = None
        self._set_leader(None)
        self._SyncObj__setState(CANDIDATE)
        self._SyncObj__setCurrentTerm(self._SyncObj__raftCurrentTerm + 1, self._self_peer.id)
        self._SyncObj__votesCount = 0
        self._votes = set()
        self._refusals = set()
        self._campaign_flags = flags
        self._campaign_untold = True
        self._campaign_at = self._scheduler.now()
        self._retry_later(self._campaign_at)
        if self._may_tell():
            self._ask_for_votes()
        else:
            self._host.await_durable()

    def _ask_for_votes(self) -> None:
        self._campaign_untold = False
        if self._SyncObj__raftState != CANDIDATE:
            return
        self._await_slow_disks()
        self._ask_voters(self._campaign_flags, self._SyncObj__raftCurrentTerm)
        self._count_vote(self._self_peer)

    def _await_slow_disks(self) -> None:
        """Voters' disks may be as slow as this one, and busy with another sync first: whoever
        campaigns again before they can answer is never elected."""
        self._took_s = self._scheduler.now() - self._campaign_at
        if self._is_slow:
            self._give_way(2 + self._rng.random())

    @property
    def _is_slow(self) -> bool:
        return self._took_s > self._config.retry_min_s

    def _give_way(self, syncs: float) -> None:
        """Begins no election for as long as so many syncs take."""
        self._wait_until(self._scheduler.now() + syncs * self._took_s)

    def _count_refusal(self, voter: Peer) -> None:
        """Where a slow disk has this candidate wait for votes, and nobody is left who could bring
        enough of them, it waits no longer than it would with a quick one."""
        self._refusals.add(voter)
        asked = {peer for peer in self._peers.values() if peer.voter and peer.connected}
        everyone = bool(self._campaign_flags & frames.EVERYONE)
        wanted = len(self._voters) if everyone else self._quorum
        if self._is_slow and len(self._votes | (asked - self._refusals)) < wanted:
            planned = self._SyncObj__raftElectionDeadline
            self._retry_later(self._scheduler.now())
            self._set_deadline(min(planned, self._SyncObj__raftElectionDeadline))

    def _count_vote(self, voter: Peer) -> None:
        """PySyncObj counts it, and leads from the majority on; each voter only once.

        Where everyone must vote, or this replica has no vote itself as PySyncObj believes it has,
        PySyncObj is told that there are enough when the last one is there.
        """
        if voter in self._votes or not voter.voter:
            return
        self._votes.add(voter)
        everyone = bool(self._campaign_flags & frames.EVERYONE)
        if everyone or not self._self_peer.voter:
            if len(self._votes) < (len(self._voters) if everyone else self._quorum):
                return
            self._SyncObj__votesCount = len(self._voters)
        message = {"type": "response_vote", "term": self._SyncObj__raftCurrentTerm}
        SyncObj._SyncObj__onMessageReceived(self, voter, message)

    def _SyncObj__onMessageReceived(self, node: object, message: object) -> None:
        """PySyncObj's dispatcher takes no message from the network; ours asks it by name."""
        self._refuse(node, message)

    # -- voting

    def _on_vote(self, peer: Peer, frame: memoryview) -> None:
        flags, term, last_index, last_term, incarnation = frames.parse_vote(frame)
        if not self._may_grant(incarnation):
            return
        mine = self._SyncObj__raftCurrentTerm
        heard = not flags & frames.TRANSFER and self._hears_leader()
        if term < mine or (flags & frames.PRE and term == mine):
            self._tell(peer, frames.vote_reply(mine, term, flags & frames.PRE))
        elif flags & frames.PRE:
            granted = not heard and (last_term, last_index) >= self._newest()
            answer = frames.PRE | (frames.GRANTED if granted else 0)
            answer |= frames.SUSPECT if self._log.suspect else 0
            self._tell(peer, frames.vote_reply(mine, term, answer))
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
        is_learner = self._me in self.configuration.learners
        able = not self._log.suspect and not self.unspoken
        if is_learner and able and self._may_tell():
            self._start_prevote(self._scheduler.now())

    def _newest(self) -> tuple[int, int]:
        return self._log.last_term, self._log.last_index

    def _vote(self, peer: Peer, term: int, last_index: int, last_term: int) -> None:
        voted = self._SyncObj__votedForNodeId
        if term == self._SyncObj__raftCurrentTerm and voted == peer.id:
            self.grant(peer)
            return
        message = {
            "type": "request_vote",
            "term": term,
            "last_log_index": last_index,
            "last_log_term": last_term,
        }
        deadline = self._SyncObj__raftElectionDeadline
        if term > self._SyncObj__raftCurrentTerm:
            self._prevotes = None
        SyncObj._SyncObj__onMessageReceived(self, peer, message)
        self._SyncObj__raftElectionDeadline = deadline
        if self._SyncObj__votedForNodeId == peer.id or deadline == NEVER:
            self._rest()
        if self._SyncObj__votedForNodeId != peer.id:
            self._tell(peer, frames.vote_reply(term, term, 0))
        self._announce()

    def grant(self, candidate: Peer) -> None:
        """PySyncObj granted its vote: told once it is durable."""
        term = self._SyncObj__raftCurrentTerm
        self._tell(candidate, frames.vote_reply(term, term, frames.GRANTED))

    def _on_vote_reply(self, peer: Peer, frame: memoryview) -> None:
        flags, term, asked = frames.parse_vote_reply(frame)
        mine = self._SyncObj__raftCurrentTerm
        if term > mine:
            self._newer_term(term)
        elif not peer.voter or (flags & frames.PRE and not flags & frames.GRANTED):
            return
        elif flags & frames.PRE:
            if self._prevotes is not None and asked == mine + 1:
                self._prevotes.add(peer)
                if flags & frames.SUSPECT:
                    self._suspects.add(peer)
                self._count_prevotes(self._prevotes)
        elif asked == term == mine and self._SyncObj__raftState == CANDIDATE:
            if flags & frames.GRANTED:
                self._count_vote(peer)
            else:
                self._count_refusal(peer)

    # -- taking over

    def _on_timeout_now(self, peer: Peer, frame: memoryview) -> None:
        """The leader of this very term asks this node to take over."""
        _kind, _flags, _zero, term = frames.HEAD.unpack_from(frame)
        leads = self._SyncObj__raftLeader is peer and term == self._SyncObj__raftCurrentTerm
        able = self._may_campaign() and not self._log.suspect
        if leads and self._SyncObj__raftState == FOLLOWER and able:
            self._attempts = 0
            self._campaign(frames.TRANSFER)
