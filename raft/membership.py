"""Who belongs to a group: the configuration in force on a replica, and the leader's changes of it.

A change moves one replica at a time (Raft dissertation, chapter 4): it is added as learner,
promoted once it has caught up, and removed. The next change waits for the one before to commit, and
for the leader's own no-op. Whatever interrupts a change leaves the group with the old configuration
or the new one, as any entry is lost or survives.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Protocol

from goqueue.wire.types import Index, NodeId, Voter
from log.entry import Entry, EntryKind
from log.errors import EntryDamaged
from raft.configuration import (
    SCAN_BYTES,
    Change,
    Configuration,
    Promote,
    encode_configuration,
    encode_voters,
    read_configuration,
    with_index,
)
from raft.errors import (
    ChangeUnderWay,
    ConfigurationMismatch,
    NotCaughtUp,
    NotLeader,
    Unsafe,
)
from raft.peer import Peer
from raft.roles import Roles
from raft.state import Proposed, State
from raft.transfer import Transfer

logger = logging.getLogger("raft")


class Membership:
    """The newest configuration of the log is in force, committed or not; truncation rolls it back.

    `_configurations` ends with it and begins with the newest that is applied. The peers in `State`
    are kept in step with it: PySyncObj's other nodes are the other voters, its read-only nodes all
    other replicas that receive entries.
    """

    on_voters: Callable[[Configuration], None] = staticmethod(lambda _committed: None)
    """Told each configuration once it is applied, in the log's order."""

    def __init__(self, state: State, roles: Roles, founders: Configuration) -> None:
        self._state = state
        self._log = state.log
        self._host = state.host
        self._roles = roles
        self._founders = founders
        self._configurations = [founders]
        self._strangers: dict[NodeId, Peer] = {}
        """Nodes that spoke though no configuration known here names them."""

    # -- what others may know

    @property
    def configuration(self) -> Configuration:
        """The one in force here: its index, its voters and its learners."""
        return self._configurations[-1]

    @property
    def voters(self) -> tuple[Voter, ...]:
        """The voters of the configuration in force."""
        return self.configuration.voters

    @property
    def before(self) -> Configuration:
        """The newest one that is known here to be committed."""
        return self._configurations[0]

    @property
    def is_committed(self) -> bool:
        """Whether the one in force is known here to be committed: it will stay."""
        return self.configuration.index <= self._state.applied_index

    @property
    def is_refused(self) -> bool:
        """Whether the configuration names this node with another data directory."""
        named = self.configuration.find(self._state.node)
        return named is not None and named != self._state.me

    def as_of(self, applied: Index) -> Configuration:
        """The newest one up to this entry."""
        return next(one for one in reversed(self._configurations) if one.index <= applied)

    # -- how one comes into force

    def check_founders(self) -> None:
        """Raises ConfigurationMismatch where the log was begun with other voters."""
        log, founders = self._log, self._founders.voters
        if log.first_index != 1 or log.last_index < 1 or not founders:
            return
        entry = log.entries(Index(1), max_count=1)[0]
        if entry.kind == EntryKind.VOTERS and bytes(entry.body) != encode_voters(founders):
            raise ConfigurationMismatch(
                f"group {self._state.id} was created with other voters than {founders}"
            )

    def begin_from(self, configuration: Configuration) -> None:
        """A snapshot carries this one."""
        self._configurations = [configuration]

    def load(self) -> None:
        """Reads what the log holds after the snapshot, or all where that carries no configuration.

        Damage ends it: such a replica neither votes nor campaigns. Raises msgspec.DecodeError,
        Unsafe.
        """
        applied = self._state.applied_index
        at = int(self._log.first_index)
        if self.configuration.index:
            at = max(at, applied + 1)
        try:
            while at <= self._log.last_index:
                entries = self._log.entries(Index(at), max_bytes=SCAN_BYTES)
                for entry in entries:
                    if entry.kind == EntryKind.VOTERS:
                        self._configurations.append(self._read(entry))
                at = entries[-1].index + 1
        except EntryDamaged as error:
            partition_id = self._state.id
            logger.error("group %s: configurations after %d not read: %s", partition_id, at, error)
        self._forget_before(applied)
        self._set_peers()
        self._judge_vote()

    def _read(self, entry: Entry) -> Configuration:
        configuration = read_configuration(entry)
        if not configuration.is_sound() or not configuration.voters:
            raise Unsafe(f"group {self._state.id}: entry {entry.index} names {configuration}")
        return configuration

    def appended(self, entries: Sequence[Entry]) -> None:
        """A follower has appended these. Raises msgspec.DecodeError, Unsafe."""
        for entry in entries:
            if entry.kind == EntryKind.VOTERS:
                self.configure(self._read(entry))

    def configure(self, configuration: Configuration) -> None:
        """This configuration was appended: it is in force from now on."""
        self._configurations.append(configuration)
        self._come_into_force()

    def truncated(self, index: int) -> None:
        """Entries from here on are gone: an earlier configuration is in force again."""
        before = self.configuration.index
        while len(self._configurations) > 1 and self.configuration.index >= index:
            self._configurations.pop()
        if self.configuration.index != before:
            self._come_into_force()

    def find(self, entry: Entry) -> None:
        """This one is going to be applied. Damage may have hidden it as the log was read, and was
        mended since: it must be known then, or the next snapshot would keep an older one for good.
        Raises msgspec.DecodeError, Unsafe.
        """
        if all(known.index != entry.index for known in self._configurations):
            found = [*self._configurations, self._read(entry)]
            self._configurations = sorted(found, key=lambda one: one.index)
            self._come_into_force()

    def applied(self, index: int) -> None:
        """All configurations up to this entry are committed: the ones before it are history."""
        self._forget_before(index)
        self._judge_vote()
        self._host.configured()
        self.on_voters(self._configurations[0])

    def _forget_before(self, applied: int) -> None:
        known = self._configurations
        while len(known) > 1 and known[1].index <= applied:
            known.pop(0)

    def _come_into_force(self) -> None:
        self._set_peers()
        self._judge_vote()
        self._host.configured()

    def _judge_vote(self) -> None:
        """Who is being removed campaigns until that has committed: without it nobody may win."""
        state = self._state
        before = state.may_vote
        state.may_vote = any(state.me in one.voters for one in self._configurations[-2:])
        if state.may_vote != before:
            self._roles.vote_changed()

    # -- peers

    def _set_peers(self) -> None:
        """Those that receive entries of this node while it leads, in a fixed order."""
        state, configuration = self._state, self.configuration
        voters = {voter.node for voter in configuration.voters}
        named = {member.node for member in configuration.members}
        named.discard(state.node)
        for node in [node for node in state.peers if node not in named]:
            self._drop_peer(state.peers.pop(node))
        peers = {node: state.peers.get(node) or self._seat(node) for node in sorted(named)}
        for peer in peers.values():
            peer.voter = peer.node in voters
            if peer.connected != self.is_linked(peer.node):
                self._link(peer)
        state.peers = peers
        state.self_peer.voter = state.me in configuration.voters
        state.voters = tuple(sorted(voters))
        state.quorum = len(voters) // 2 + 1
        state.incarnations = {voter.node: voter.incarnation for voter in configuration.voters}
        state.other_voters = {peer for peer in peers.values() if peer.voter}
        state.other_learners = {peer for peer in peers.values() if not peer.voter}

    def _seat(self, node: NodeId) -> Peer:
        state = self._state
        peer = self._strangers.pop(node, None) or Peer(node, voter=False)
        peer.heard_at = state.now()
        state.next_index[peer] = self._log.last_index + 1
        state.match_index[peer] = 0
        self._link(peer)
        return peer

    def _link(self, peer: Peer) -> None:
        """Notes whether there is a link to the very replica that the configuration names."""
        peer.connected = self.is_linked(peer.node)
        if not peer.connected:
            self._host.release(peer.node, peer.reset())

    def is_linked(self, node: NodeId) -> bool:
        """Whether there is a link to the very replica that the configuration names."""
        named = self.configuration.find(node)
        return self._host.is_connected(node, None if named is None else named.incarnation)

    def _drop_peer(self, peer: Peer) -> None:
        state = self._state
        self._host.release(peer.node, peer.reset())
        peer.voter = False
        state.next_index.pop(peer, None)
        state.match_index.pop(peer, None)
        if self._host.is_connected(peer.node):
            peer.connected = True
            self._strangers[peer.node] = peer

    def speaker(self, node: NodeId) -> Peer | None:
        """Whoever has a link may lead: its configuration may be newer than any known here."""
        peer = self._state.peers.get(node) or self._strangers.get(node)
        if peer is None and self._host.is_connected(node):
            peer = self._strangers[node] = Peer(node, voter=False)
            peer.connected = True
        return peer

    def unlink(self, node: NodeId) -> Peer | None:
        """A link is closed: the peer that it led to, if there was one."""
        peer = self._state.peers.get(node) or self._strangers.pop(node, None)
        if peer is None or not peer.connected:
            return None
        peer.connected = False
        self._host.release(node, peer.reset())
        return peer


class Propose(Protocol):
    """Appends an entry on the leader, as `RaftGroup.propose` does."""

    def __call__(self, kind: int, body: bytes, *, callback: Proposed) -> Index: ...


class Changes:
    """The leader's side of a change; what follows from one is `Membership`'s."""

    def __init__(
        self,
        state: State,
        roles: Roles,
        membership: Membership,
        transfer: Transfer,
        propose: Propose,
        caught_up: Callable[[NodeId], bool],
    ) -> None:
        self._state = state
        self._roles = roles
        self._membership = membership
        self._transfer = transfer
        self._propose = propose
        self._caught_up = caught_up

    def change(self, change: Change, callback: Proposed, *, epoch: int = 0) -> Index:
        """Appends the configuration that this makes; it is in force at once. Its entry's index.
        Its epoch is this one, or that of the configuration before, whichever is later.

        The callback tells, exactly once, how it ended, as `RaftGroup.propose`'s does. Raises
        NotLeader, ChangeUnderWay, NotCaughtUp, ChangeRefused; nothing was appended then. A leader
        that removes itself leads until that has committed, and then hands over.
        """
        state, membership = self._state, self._membership
        if not state.is_ready_leader:
            raise NotLeader(None if state.is_leader else state.leader_node)
        if not self._may_change():
            raise ChangeUnderWay
        after = membership.configuration.after(change, epoch)
        if isinstance(change, Promote) and not self._caught_up(change.node):
            raise NotCaughtUp(f"{change.node} has not caught up")
        index = self._propose(EntryKind.VOTERS, encode_configuration(after), callback=callback)
        membership.configure(with_index(after, index))
        logger.info("group %s: %s changes its replicas in entry %d", state.id, change, index)
        return index

    def _may_change(self) -> bool:
        return self._membership.is_committed

    def leave_when_removed(self) -> None:
        """A leader whose own removal has committed lets the one furthest ahead lead."""
        state = self._state
        if not state.is_leader or state.self_peer.voter or not self._membership.is_committed:
            return
        if not self._transfer.under_way:
            self._transfer.start(callback=self._left)

    def _left(self, _moved: bool) -> None:
        if self._state.is_leader:
            self._roles.step_down()
