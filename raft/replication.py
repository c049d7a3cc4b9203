"""The leader's side: windows, back-off by terms, and the commit index."""

from __future__ import annotations

import logging

from goqueue.wire.types import Index, NodeId
from log.entry import Entry
from raft import frames
from raft.following import agreement
from raft.log_time import LogTime
from raft.membership import Membership
from raft.peer import Peer
from raft.roles import Roles
from raft.state import State

logger = logging.getLogger("raft")


class Replication:
    """AppendEntries as sent, and the answers. Only answers to this very leadership count.

    The leader counts itself by its durable index, like everybody else.
    """

    def __init__(
        self, state: State, roles: Roles, membership: Membership, log_time: LogTime
    ) -> None:
        self._state = state
        self._log = state.log
        self._host = state.host
        self._roles = roles
        self._membership = membership
        self._log_time = log_time
        self.replicated_bytes = 0
        """Bytes of entries sent to other replicas."""

    # -- sending

    def send(self) -> None:
        """Sends every follower what its window allows, or else a commit index it does not know."""
        if not self._state.is_leader:
            return
        if self._log.durable_index < self._log.last_index:
            self._host.await_durable()
        commit = self._state.commit_index
        for peer in self._state.peers.values():
            if not peer.connected:
                continue
            self._send_entries(peer)
            known = min(commit, self._state.match_index[peer])
            if known > peer.commit_told and not peer.probing:
                frame = frames.beat(self._state.term, known, 0)
                if self._state.send(peer, frame):
                    peer.commit_told = known

    def _send_entries(self, peer: Peer) -> None:
        last = self._log.last_index
        following = self._state.next_index
        while not peer.paused and (following[peer] <= last or peer.probing):
            if not self._send_append(peer, last):
                return

    def _send_append(self, peer: Peer, last: int) -> bool:
        """One frame to this follower; False if there is no room, no link, or nothing to read."""
        config = self._state.config
        following = self._state.next_index[peer]
        prev_term = self._log.term_at(Index(following - 1))
        if following < self._log.first_index or prev_term is None or self._is_copied(peer):
            self._mark_behind(peer, following)
            return False
        entries: list[Entry] = []
        if following <= last:
            if peer.inflight_bytes >= config.window_bytes:
                return False
            entries = self._log.entries(
                Index(following), max_bytes=config.append_bytes, max_count=config.append_entries
            )
        parts = [entry.frame for entry in entries]
        size = sum(map(len, parts))
        if size and not self._host.reserve(peer.node, size):
            return False
        commit = self._state.commit_index
        head = frames.append_head(self._state.term, following - 1, prev_term, commit, len(parts))
        if not self._state.send(peer, head, *parts):
            self._host.release(peer.node, size)
            return False
        sent = following + len(parts) - 1
        if size:
            self.replicated_bytes += size
            peer.inflight.append((sent, size))
            peer.inflight_bytes += size
        peer.sent_at = self._state.now()
        peer.commit_told = max(peer.commit_told, min(commit, sent))
        if peer.probing:
            peer.paused = True
        else:
            self._state.next_index[peer] = sent + 1
        return True

    def _is_copied(self, peer: Peer) -> bool:
        """Whether this learner holds nothing and is to begin with a copy of another replica."""
        holds_nothing = self._state.next_index[peer] == 1 and not peer.voter
        return holds_nothing and self._host.copies_to_learners()

    def _mark_behind(self, peer: Peer, following: int) -> None:
        if not peer.behind:
            peer.behind = True
            logger.warning(
                "group %s: %s needs a copy: its next entry is %d, the log begins at %d",
                self._state.id,
                peer.node,
                following,
                self._log.first_index,
            )

    # -- answers

    def on_ack(self, peer: Peer, frame: memoryview) -> None:
        flags, term, index, hint_index, hint_term = frames.parse_ack(frame)
        if not self.answers_me(peer, term):
            return
        if flags & frames.REJECTED:
            self._on_rejection(peer, index, hint_index, hint_term)
        elif index <= self._log.last_index:
            self._on_match(peer, index)

    def on_ask_end(self, peer: Peer, frame: memoryview) -> None:
        term, nonce, _zero = frames.parse_end(frame)
        if term == self._state.term and self._state.is_leader:
            self._state.send(peer, frames.end(term, nonce, self._log.last_index))
            if not peer.probing and not peer.inflight:
                # It was started anew, and in an idle group no frame would tell it what it holds.
                self._host.release(peer.node, peer.reset())
                self._host.wake()

    def answers_me(self, peer: Peer, term: int) -> bool:
        """Whether an answer belongs to this very leadership; a newer term ends it."""
        if term > self._state.term:
            self._roles.newer_term(term)
            return False
        if not self._is_current(term) or not self._state.is_leader:
            return False
        peer.heard_at = self._state.now()
        return True

    def _is_current(self, term: int) -> bool:
        return term == self._state.term

    def rests_too(self, node: NodeId) -> None:
        """While this leader rests: this replica does, too, and has told that it holds the same."""
        peer = self._state.peers.get(node)
        if peer is not None and self._state.is_leader:
            self._match(peer, self._log.last_index)

    def _on_match(self, peer: Peer, match: int) -> None:
        self._match(peer, match)
        self._host.wake()

    def _match(self, peer: Peer, match: int) -> None:
        matched = self._state.match_index
        if match > matched[peer]:
            matched[peer] = match
        self._host.release(peer.node, peer.acknowledged(match))
        if peer.probing:
            self._host.release(peer.node, peer.reset())
            peer.probing = False
            self._state.next_index[peer] = matched[peer] + 1
        if not peer.voter:
            self._measure(peer, match)

    def _measure(self, peer: Peer, match: int) -> None:
        """Rounds (dissertation, 4.2.1): each brings all that the log held when it began.

        Whoever needs less than an election's time for one has caught up; so has whoever holds all
        there is, however long that took: the next round would bring nothing, and none may come.
        """
        now, last = self._state.now(), self._log.last_index
        if peer.goal is None:
            peer.goal, peer.goal_since = last, now
        if match >= peer.goal:
            in_time = now - peer.goal_since <= self._state.config.election_min_s
            peer.caught_up = in_time or match >= last
            peer.goal, peer.goal_since = (None if match >= last else last), now

    def caught_up(self, node: NodeId) -> bool:
        """Whether this leader knows that this replica keeps up, so that it may be promoted."""
        if not self._state.is_leader:
            return False
        peer = self._state.peers.get(node)
        if peer is None:
            return node == self._state.node
        now = self._state.now()
        heard = self._state.heard_at(peer) >= now - self._state.config.quorum_s
        if not peer.connected or peer.probing or not heard:
            return False
        if peer.voter:
            return self._state.match_index[peer] >= self._state.commit_index
        waits = peer.goal is not None and now - peer.goal_since > self._state.config.election_min_s
        return peer.caught_up and not waits

    def matches(self) -> dict[NodeId, Index]:
        """On a leader, what each voter is known to hold durably; elsewhere only this node's."""
        state = self._state
        if not state.is_leader:
            return {state.node: self._log.durable_index}
        return {
            name: Index(match) for name, match in zip(state.voters, state.matched(), strict=True)
        }

    @property
    def trim_limit(self) -> Index:
        """The newest index that every voter has and has applied here: trim no further."""
        floor = min(self.matches().values()) if self._state.is_leader else 0
        return Index(min(floor, self._state.applied_index))

    def match_of(self, node: NodeId) -> Index:
        """On a leader, what a replica is known to hold durably, voter or not."""
        peer = self._state.peers.get(node)
        if peer is None:
            return self._log.durable_index if node == self._state.node else Index(0)
        return Index(self._state.match_index[peer])

    def in_step(self, node: NodeId) -> bool:
        """Whether this leader has sent this replica all there is, and is answered: what it may
        lack is on its way. Of itself: whether it can read what it holds."""
        if not self._state.is_leader:
            return False
        peer = self._state.peers.get(node)
        if peer is None:
            return node == self._state.node and not self._log.quarantined
        heard = self._state.heard_at(peer) >= self._state.now() - self._state.config.quorum_s
        sent = self._state.next_index[peer] > self._log.last_index
        return peer.connected and heard and sent and not peer.probing

    def _on_rejection(self, peer: Peer, rejected: int, hint_index: int, hint_term: int) -> None:
        """The follower does not have `rejected`: back off, by whole terms, to where it may agree.

        An answer to a frame that was overtaken by a better one changes nothing.
        """
        following = self._state.next_index
        matched = self._state.match_index
        if peer.probing:
            if rejected != following[peer] - 1:
                return
        elif rejected <= matched[peer]:
            return
        self._host.release(peer.node, peer.reset())
        agreed = agreement(self._log, min(rejected - 1, hint_index), hint_term)
        following[peer] = max(1, agreed + 1)
        matched[peer] = min(matched[peer], following[peer] - 1)
        self._host.wake()

    def advance_commit(self) -> None:
        """Commits what a majority holds durably, if it is of this term (Raft 5.4.2). Part of a
        flush, which applies that next."""
        match = self._state.match_index
        held = [match[peer] for peer in self._state.peers.values() if peer.voter]
        if self._state.self_peer.voter:
            held.append(self._own_match())
        held.sort(reverse=True)
        index = held[self._state.quorum - 1]
        if not self._keeps_configuration():
            return
        if index > self._state.commit_index and self._may_commit(index):
            self._state.commit_index = index
            if index == self._log.last_index:
                self._log_time.committed(index)

    def _own_match(self) -> int:
        return self._log.durable_index

    def _keeps_configuration(self) -> bool:
        """Whether a power cut leaves the configuration that is counted by. A relaxed log may lose
        what it counts itself for: it then counts everyone who may hold that, and so must know them.
        """
        return (
            not self._log.relaxed or self._membership.configuration.index <= self._log.durable_index
        )

    def _may_commit(self, index: int) -> bool:
        """Whether counting may commit this entry: only if it is of this leader's own term."""
        noop = self._state.noop_index
        return noop is not None and index >= noop
