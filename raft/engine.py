"""The part of PySyncObj that we stand on, without its sockets, threads, clock and pickle.

What stays PySyncObj's: the state of a Raft server (term, vote, state, leader, next and match
indexes, votes, waiting commands), granting and counting votes, becoming a leader.
`docs/internals/raft-holes.md` says what is overridden and why.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from goqueue.wire.types import GroupId, Incarnation, NodeId, Voter
from log.entry import Entry, EntryKind, make_entry
from raft.config import RaftConfig
from raft.configuration import Configuration
from raft.errors import Refused
from raft.interfaces import GroupHost, Log, Network, Scheduler, StateMachine
from raft.journal import Journal
from raft.log_time import LogClock
from raft.peer import Peer
from raft.syncobj import LEADER, SyncObj, SyncObjConf, Transport


class GroupTransport(Transport):
    """Where PySyncObj's own messages end: only a granted vote is ever sent by it."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(None, None, None)
        self._engine = engine

    def send(self, node: Peer, message: dict[str, Any]) -> bool:
        if message["type"] != "response_vote":
            raise Refused(f"PySyncObj must not send {message['type']!r}")
        self._engine.grant(node)
        return True


APPEND_PERIOD_S = 0.1
"""Of PySyncObj's own beats, which are never sent; it wants a fraction of the election timeout."""


class Engine(SyncObj):
    """A `SyncObj` with everything injected; every other way into PySyncObj is closed."""

    def __init__(
        self,
        *,
        id: GroupId,
        node: NodeId,
        incarnation: Incarnation,
        configuration: Configuration,
        readers: Sequence[NodeId],
        log: Log,
        network: Network,
        scheduler: Scheduler,
        rng: random.Random,
        clock: LogClock,
        state: StateMachine,
        config: RaftConfig,
        host: GroupHost,
    ) -> None:
        self.id = id
        self.node = node
        self.failed: Exception | None = None
        self.stopped = False
        self._log = log
        self._network = network
        self._scheduler = scheduler
        self._rng = rng
        self._clock = clock
        self._state = state
        self._time_ms = 0
        self._commit_lag: tuple[int, int] = (0, 0)
        """The newest entry when it was committed here, as leader, and how long that had taken."""
        self._config = config
        self._host = host
        self.incarnation = incarnation
        self._me = Voter(node, incarnation)
        self._configurations = [configuration]
        self._readers = set(readers)
        self._strangers: dict[NodeId, Peer] = {}
        self._voters: tuple[NodeId, ...] = ()
        self._quorum = 1
        self._incarnations: dict[NodeId, Incarnation] = {}
        self._peers: dict[NodeId, Peer] = {}
        self._self_peer = Peer(node, voter=False)
        conf = SyncObjConf(
            autoTick=False,
            journalFile=None,
            commandsQueueSize=0,
            pollerType="select",
            appendEntriesPeriod=min(APPEND_PERIOD_S, config.election_min_s / 4),
            raftMinTimeout=config.election_min_s,
            raftMaxTimeout=config.election_max_s,
            connectionTimeout=config.election_max_s,
            onStateChanged=self._on_state_changed,
        )
        SyncObj.__init__(
            self,
            self._self_peer,
            [],
            conf,
            transport=GroupTransport(self),
        )
        self._take_over_log()

    def __dir__(self) -> Iterable[str]:
        """Nothing: when it starts, PySyncObj looks among all names, one by one, for methods that it
        should replicate, and there are none. It took half of a group's start."""
        return ()

    def _take_over_log(self) -> None:
        """Replaces PySyncObj's journal by ours, and derives from it all that outlives a restart.

        Nothing is taken as committed but what the newest state snapshot holds: the commit index is
        learnt again from a leader, and never lies beyond the log's end.
        """
        self._SyncObj__raftLog = Journal(self._log, self._make_noop)
        hard = self._log.hard_state
        self._SyncObj__raftCurrentTerm = max(hard.term, self._log.last_term)
        self._SyncObj__votedForNodeId = (
            hard.vote if hard.term == self._SyncObj__raftCurrentTerm else None
        )
        self._SyncObj__raftCommitIndex = 0
        self._SyncObj__leaderCommitIndex = None
        self._SyncObj__raftLastApplied = 0

    def _make_noop(self, index: int, term: int) -> Entry:
        return make_entry(
            index=index, term=term, time_ms=self.log_time_ms(), kind=EntryKind.NOOP, matches=()
        )

    def log_time_ms(self) -> int:
        """Log time in milliseconds: a leader's now, never back; elsewhere the newest entry's."""
        if self._SyncObj__raftState == LEADER:
            self._time_ms = self._clock.read_ms(self._time_ms)
            return self._time_ms
        return self._newest_time_ms()

    def _newest_time_ms(self) -> int:
        last = self._log.last_index
        if last < self._log.first_index:
            return self._time_ms
        return self._log.entries(last, max_count=1)[0].time_ms

    def _start_log_time(self) -> None:
        """A leadership begins: log time goes on from the newest entry's."""
        self._time_ms = self._newest_time_ms()
        self._clock.start(self._time_ms)

    @property
    def _halted(self) -> bool:
        return self.stopped or self.failed is not None

    # -- what the parts built on this one provide

    def grant(self, candidate: Peer) -> None:
        """PySyncObj granted its vote: to be told once it is durable."""
        raise NotImplementedError

    def _on_state_changed(self, old: int, new: int) -> None:
        raise NotImplementedError

    # -- clock and randomness: PySyncObj's are module globals

    def _SyncObj__generateRaftTimeout(self) -> float:
        low, high = self._config.election_min_s, self._config.election_max_s
        return low + (high - low) * self._rng.random()

    def _set_deadline(self, at: float) -> None:
        self._SyncObj__raftElectionDeadline = at
        self._host.set_deadline(at)

    # -- closed doors

    def _SyncObj__onSetCodeVersion(self, newVersion: int) -> None:
        """There are no replicated methods to enumerate."""

    def _refuse(self, *_args: object, **_kwargs: object) -> NoReturn:
        raise Refused("this way into PySyncObj is closed")

    _applyCommand = _refuse
    _checkCommandsToApply = _refuse
    _onTick = _refuse
    doTick = _refuse
    setCodeVersion = _refuse
    addNodeToCluster = _refuse
    removeNodeFromCluster = _refuse
    transferLeadership = _refuse
    forceLogCompaction = _refuse
    getStatus = _refuse
    _SyncObj__setCodeVersion = _refuse
    _SyncObj__doApplyCommand = _refuse
    _SyncObj__changeCluster = _refuse
    _SyncObj__doChangeCluster = _refuse
    _SyncObj__parseChangeClusterRequest = _refuse
    _SyncObj__updateClusterConfiguration = _refuse
    _SyncObj__tryLogCompaction = _refuse
    _SyncObj__loadDumpFile = _refuse
    _SyncObj__deleteEntriesFrom = _refuse
    _SyncObj__deleteEntriesTo = _refuse
    _SyncObj__onReadonlyNodeConnected = _refuse
    _SyncObj__onReadonlyNodeDisconnected = _refuse
    _SyncObj__sendNextNodeIdx = _refuse
