"""PySyncObj, and the only module that knows it: a `SyncObj` that works on our `State`, without its
sockets, threads, clock and pickle.

What stays PySyncObj's: granting a vote, counting votes, becoming a leader with its no-op, the one
way into and out of each role. `docs/internals/raft-holes.md` says what is replaced and why. It is
untyped, and its private names are mangled; `tests/unit/raft/test_pin.py` holds every name and
signature here against the installed release.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NoReturn

from goqueue.wire.types import Term
from log.entry import Entry
from raft.config import RaftConfig
from raft.errors import Refused
from raft.interfaces import Log

if TYPE_CHECKING:
    from raft.peer import Peer
    from raft.state import State

    class Node:
        def __init__(self, id: str) -> None: ...

        @property
        def id(self) -> str: ...

    class Transport:
        def __init__(self, syncObj: Any, selfNode: Any, otherNodes: Any) -> None: ...

        def send(self, node: Any, message: Any) -> bool: ...

    class SyncObjJournal: ...

    class SyncObjConf:
        def __init__(self, **options: object) -> None: ...

    class SyncObj:
        def __init__(
            self, selfNode: Any, otherNodes: Any, conf: Any = None, *, transport: Any = None
        ) -> None: ...

        def _SyncObj__setCurrentTerm(self, term: int, votedForNodeId: str | None) -> None: ...

        def _SyncObj__setState(self, newState: int) -> None: ...

        def _SyncObj__onMessageReceived(self, node: Any, message: dict[str, Any]) -> None: ...

else:
    from pysyncobj import SyncObj, SyncObjConf
    from pysyncobj.journal import Journal as SyncObjJournal
    from pysyncobj.node import Node
    from pysyncobj.transport import Transport

__all__ = ["NO_OP", "SYNCOBJ_VERSION", "Journal", "Node", "Server"]

SYNCOBJ_VERSION = "0.3.17"
NO_OP = bytes((1,))
"""PySyncObj's command byte of a no-op, the only command it may still append by itself."""
APPEND_PERIOD_S = 0.1
"""Of PySyncObj's own beats, which are never sent; it wants a fraction of the election timeout."""


class _Shared:
    """A private attribute of PySyncObj that is a field of `State`."""

    def __init__(self, field: str) -> None:
        self._field = field

    def __get__(self, server: Server, _type: type | None = None) -> Any:
        return getattr(server.state, self._field)

    def __set__(self, server: Server, value: Any) -> None:
        setattr(server.state, self._field, value)


_UNUSED = (
    "_poller",
    "_SyncObj__commandsQueue",
    "_SyncObj__properies",
    "_SyncObj__serializer",
)
"""What PySyncObj makes for its own sockets, commands and dumps, and its set of its own fields: a
twelfth of a replica's memory."""


@functools.cache
def _conf(config: RaftConfig) -> SyncObjConf:
    """The same for all groups of a node."""
    return SyncObjConf(
        autoTick=False,
        journalFile=None,
        commandsQueueSize=0,
        pollerType="select",
        appendEntriesPeriod=min(APPEND_PERIOD_S, config.election_min_s / 4),
        raftMinTimeout=config.election_min_s,
        raftMaxTimeout=config.election_max_s,
        connectionTimeout=config.election_max_s,
    )


class Server(SyncObj):
    """A `SyncObj` with everything injected; every other way into PySyncObj is closed."""

    _SyncObj__raftState = _Shared("role")
    _SyncObj__raftCurrentTerm = _Shared("term")
    _SyncObj__votedForNodeId = _Shared("voted_for")
    _SyncObj__votesCount = _Shared("votes_count")
    _SyncObj__raftLeader = _Shared("leader")
    _SyncObj__raftElectionDeadline = _Shared("deadline")
    _SyncObj__transferInProgress = _Shared("handing_over")
    _SyncObj__raftCommitIndex = _Shared("commit_index")
    _SyncObj__raftLastApplied = _Shared("applied_index")
    _SyncObj__raftNextIndex = _Shared("next_index")
    _SyncObj__raftMatchIndex = _Shared("match_index")
    _SyncObj__noopIDx = _Shared("noop_index")
    _SyncObj__commandsWaitingCommit = _Shared("waiting")
    _SyncObj__otherNodes = _Shared("other_voters")
    _SyncObj__readonlyNodes = _Shared("other_learners")

    on_role: Callable[[int, int], None] = staticmethod(lambda _old, _new: None)
    """Told the role before and the role now: every way into and out of leadership passes here."""
    on_granted: Callable[[Peer], None] = staticmethod(lambda _candidate: None)
    """PySyncObj granted its vote: to be told once it is durable."""
    on_leading: Callable[[], None] = staticmethod(lambda: None)
    """A leadership has begun, and its no-op is in the log."""

    def __init__(self, state: State, make_noop: Callable[[int, int], Entry]) -> None:
        self.state = state  # first of all: what PySyncObj sets up is set up there
        conf = _conf(state.config)
        super().__init__(state.self_peer, [], conf, transport=_Transport(self))
        for unused in _UNUSED:
            delattr(self, unused)
        self._SyncObj__raftLog = Journal(state.log, make_noop)
        state.recover()

    def __dir__(self) -> Iterable[str]:
        """Nothing: when it starts, PySyncObj looks among all names, one by one, for methods that it
        should replicate, and there are none. It took half of a group's start."""
        return ()

    def _SyncObj__setState(self, newState: int) -> None:
        """PySyncObj's one way from role to role."""
        old = self.state.role
        super()._SyncObj__setState(newState)
        if old != newState:
            self.on_role(old, newState)

    # -- what PySyncObj is asked for

    def save_term(self, term: int, vote: str | None) -> None:
        """Takes and saves the term with this vote in it; not durable yet."""
        self._SyncObj__setCurrentTerm(term, vote)

    def take_role(self, role: int) -> None:
        """Becomes follower, candidate or leader; `on_role` is told where that is new."""
        self._SyncObj__setState(role)

    def request_vote(self, candidate: Peer, term: int, last_index: int, last_term: int) -> None:
        """Grants this candidate a vote, or not; the deadline is its own affair afterwards."""
        message = {
            "type": "request_vote",
            "term": term,
            "last_log_index": last_index,
            "last_log_term": last_term,
        }
        SyncObj._SyncObj__onMessageReceived(self, candidate, message)

    def count_vote(self, voter: Peer) -> None:
        """Counts a vote of this term, and leads from the majority on."""
        message = {"type": "response_vote", "term": self.state.term}
        SyncObj._SyncObj__onMessageReceived(self, voter, message)

    # -- what PySyncObj asks for

    def _SyncObj__sendAppendEntries(self) -> None:
        self.on_leading()

    def _SyncObj__generateRaftTimeout(self) -> float:
        """PySyncObj's clock and randomness are module globals."""
        return self.state.draw_timeout_s()

    def _SyncObj__onSetCodeVersion(self, newVersion: int) -> None:
        """There are no replicated methods to enumerate."""

    # -- closed doors

    def _refuse(self, *_args: object, **_kwargs: object) -> NoReturn:
        raise Refused("this way into PySyncObj is closed")

    def _SyncObj__onMessageReceived(self, node: object, message: object) -> None:
        """PySyncObj's dispatcher takes no message from the network; ours asks it by name."""
        self._refuse(node, message)

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
    _SyncObj__applyLogEntries = _refuse
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


class _Transport(Transport):
    """Where PySyncObj's own messages end: only a granted vote is ever sent by it."""

    def __init__(self, server: Server) -> None:
        super().__init__(None, None, None)
        self._server = server

    def send(self, node: Peer, message: dict[str, Any]) -> bool:
        if message["type"] != "response_vote":
            raise Refused(f"PySyncObj must not send {message['type']!r}")
        self._server.on_granted(node)
        return True


class Journal(SyncObjJournal):
    """A list-like adapter: no second copy of anything, and no way to drop entries behind our back.

    `make_noop(index, term)` encodes the no-op with which a new leader begins.
    """

    def __init__(self, log: Log, make_noop: Callable[[int, int], Entry]) -> None:
        self._log = log
        self._make_noop = make_noop

    # -- as a list

    def __len__(self) -> int:
        return self._log.last_index - self._log.first_index + 1

    def __getitem__(self, at: int) -> tuple[bytes, int, int]:
        if at == -1:
            return b"", self._log.last_index, self._log.last_term
        if at == 0:
            first = self._log.first_index
            return b"", first, self._log.term_at(first) or 0
        raise Refused("PySyncObj reads entries only at the log's ends")

    def add(self, command: bytes, idx: int, term: int) -> None:
        """Appends a leader's no-op; nothing else comes this way."""
        if command != NO_OP:
            raise Refused("PySyncObj may append nothing but a no-op")
        self._log.append([self._make_noop(idx, term)])

    def clear(self) -> NoReturn:
        raise Refused("the log is not PySyncObj's to clear")

    def deleteEntriesFrom(self, entryFrom: int) -> NoReturn:
        raise Refused("the log is truncated on conflict only")

    def deleteEntriesTo(self, entryTo: int) -> NoReturn:
        raise Refused("the log's head is moved by trim entries only")

    # -- hard state

    def setCurrentTerm(self, term: int, votedForNodeId: str | None) -> None:
        """Saves term and vote; nobody is told before they are durable."""
        hard = self._log.hard_state
        if hard.term != term or hard.vote != votedForNodeId:
            self._log.save_hard_state(Term(term), votedForNodeId)

    def getCurrentTerm(self) -> int:
        return self._log.hard_state.term

    def getVotedForNodeId(self) -> str | None:
        return self._log.hard_state.vote

    # -- not used: the commit index is learnt from the leader after a restart

    def setRaftCommitIndex(self, raftCommitIndex: int) -> None:
        return None

    def getRaftCommitIndex(self) -> int:
        return 0

    def onOneSecondTimer(self) -> None:
        return None

    def _destroy(self) -> None:
        return None
