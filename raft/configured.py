"""The configuration in force on a replica, and PySyncObj's sets of nodes kept in step with it."""

from __future__ import annotations

import logging
from collections.abc import Callable

from goqueue.wire.types import Index, NodeId, Voter
from log.entry import Entry, EntryKind
from log.errors import EntryDamaged
from raft.configuration import Configuration, read_configuration
from raft.engine import Engine
from raft.errors import Unsafe
from raft.peer import Peer

logger = logging.getLogger("raft")

_SCAN_BYTES = 4 << 20


class Configured(Engine):
    """The newest configuration of the log is in force, committed or not; truncation rolls it back.

    `_configurations` ends with it and begins with the newest that is applied. PySyncObj's other
    nodes are the other voters, its read-only nodes all other replicas that receive entries.
    """

    on_voters: Callable[[Configuration], None] = staticmethod(lambda _committed: None)
    """Told each configuration once it is applied, in the log's order."""
    _configurations: list[Configuration]
    _readers: set[NodeId]
    """Nodes beside the configuration that receive entries of this node while it leads."""
    _strangers: dict[NodeId, Peer]
    """Nodes that spoke though no configuration known here names them."""
    _may_vote = False
    """Whether this replica, of this data directory, campaigns."""

    # -- what others may know

    @property
    def configuration(self) -> Configuration:
        """The one in force here: its index, its voters and its learners."""
        return self._configurations[-1]

    @property
    def configuration_before(self) -> Configuration:
        """The newest one that is known here to be committed."""
        return self._configurations[0]

    @property
    def configuration_committed(self) -> bool:
        """Whether the one in force is known here to be committed: it will stay."""
        return self.configuration.index <= self._SyncObj__raftLastApplied

    @property
    def voters(self) -> tuple[Voter, ...]:
        """The voters of the configuration in force."""
        return self.configuration.voters

    @property
    def is_learner(self) -> bool:
        """Whether this replica, as far as it knows, has no vote."""
        return not self._self_peer.voter

    @property
    def refused(self) -> bool:
        """Whether the configuration names this node with another data directory."""
        named = self.configuration.find(self.node)
        return named is not None and named != self._me

    # -- changes of it

    def _load_configurations(self) -> None:
        """Reads what the log holds after the snapshot, or all where that carries no configuration.

        Damage ends it: such a replica neither votes nor campaigns. Raises msgspec.DecodeError,
        Unsafe.
        """
        applied = self._SyncObj__raftLastApplied
        at = int(self._log.first_index)
        if self.configuration.index:
            at = max(at, applied + 1)
        try:
            while at <= self._log.last_index:
                entries = self._log.entries(Index(at), max_bytes=_SCAN_BYTES)
                for entry in entries:
                    if entry.kind == EntryKind.VOTERS:
                        self._configurations.append(self._read(entry))
                at = entries[-1].index + 1
        except EntryDamaged as error:
            logger.error("group %s: configurations after %d not read: %s", self.id, at, error)
        self._forget_before(applied)
        self._seat_peers()
        self._judge_vote()

    def _read(self, entry: Entry) -> Configuration:
        configuration = read_configuration(entry)
        if not configuration.is_sound() or not configuration.voters:
            raise Unsafe(f"group {self.id}: entry {entry.index} names {configuration}")
        return configuration

    def _configure(self, configuration: Configuration) -> None:
        """This configuration was appended: it is in force from now on."""
        self._configurations.append(configuration)
        self._come_into_force()

    def _unconfigure(self, index: int) -> None:
        """Entries from here on were truncated: an earlier configuration is in force again."""
        before = self.configuration.index
        while len(self._configurations) > 1 and self.configuration.index >= index:
            self._configurations.pop()
        if self.configuration.index != before:
            self._come_into_force()

    def _find_configuration(self, entry: Entry) -> None:
        """This one is going to be applied. Damage may have hidden it as the log was read, and was
        mended since: it must be known then, or the next snapshot would keep an older one for good.
        Raises msgspec.DecodeError, Unsafe.
        """
        if all(known.index != entry.index for known in self._configurations):
            found = [*self._configurations, self._read(entry)]
            self._configurations = sorted(found, key=lambda one: one.index)
            self._come_into_force()

    def _configuration_applied(self, index: int) -> None:
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
        self._seat_peers()
        self._judge_vote()
        self._host.configured()

    def _judge_vote(self) -> None:
        """Who is being removed campaigns until that has committed: without it nobody may win."""
        before = self._may_vote
        self._may_vote = any(self._me in one.voters for one in self._configurations[-2:])
        if self._may_vote != before:
            self._vote_changed()

    def _vote_changed(self) -> None:
        raise NotImplementedError

    # -- peers

    def _seat_peers(self) -> None:
        """Those that receive entries of this node while it leads, in a fixed order."""
        configuration = self.configuration
        voters = {voter.node for voter in configuration.voters}
        named = {member.node for member in configuration.members} | self._readers
        named.discard(self.node)
        for node in [node for node in self._peers if node not in named]:
            self._unseat(self._peers.pop(node))
        peers = {node: self._peers.get(node) or self._seat(node) for node in sorted(named)}
        for peer in peers.values():
            peer.voter = peer.node in voters
            if peer.connected != self._is_linked(peer.node):
                self._link(peer)
        self._peers = peers
        self._self_peer.voter = self._me in configuration.voters
        self._voters = tuple(sorted(voters))
        self._quorum = len(voters) // 2 + 1
        self._incarnations = {voter.node: voter.incarnation for voter in configuration.voters}
        self._SyncObj__otherNodes = {peer for peer in peers.values() if peer.voter}
        self._SyncObj__readonlyNodes = {peer for peer in peers.values() if not peer.voter}

    def _seat(self, node: NodeId) -> Peer:
        peer = self._strangers.pop(node, None) or Peer(node, voter=False)
        peer.heard_at = self._SyncObj__lastResponseTime[peer] = self._scheduler.now()
        self._SyncObj__raftNextIndex[peer] = self._log.last_index + 1
        self._SyncObj__raftMatchIndex[peer] = 0
        self._link(peer)
        return peer

    def _link(self, peer: Peer) -> None:
        """Notes whether there is a link to the very replica that the configuration names."""
        peer.connected = self._is_linked(peer.node)
        if peer.connected:
            self._SyncObj__connectedNodes.add(peer)
        else:
            self._SyncObj__connectedNodes.discard(peer)
            self._host.release(peer.node, peer.reset())

    def _is_linked(self, node: NodeId) -> bool:
        named = self.configuration.find(node)
        return self._host.is_connected(node, None if named is None else named.incarnation)

    def _unseat(self, peer: Peer) -> None:
        self._host.release(peer.node, peer.reset())
        peer.voter = False
        self._SyncObj__connectedNodes.discard(peer)
        for table in (
            self._SyncObj__raftNextIndex,
            self._SyncObj__raftMatchIndex,
            self._SyncObj__lastResponseTime,
        ):
            table.pop(peer, None)
        if self._host.is_connected(peer.node):
            peer.connected = True
            self._strangers[peer.node] = peer

    def _speaker(self, node: NodeId) -> Peer | None:
        """Whoever has a link may lead: its configuration may be newer than any known here."""
        peer = self._peers.get(node) or self._strangers.get(node)
        if peer is None and self._host.is_connected(node):
            peer = self._strangers[node] = Peer(node, voter=False)
            peer.connected = True
        return peer
