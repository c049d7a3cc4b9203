"""PySyncObj as the type checker shall see it: the names we use, private ones included.

PySyncObj is untyped, and its private names are mangled; this module is the only one that imports
it. `tests/unit/raft/test_pin.py` holds every declaration here against the installed release.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

SYNCOBJ_VERSION = "0.3.17"

FOLLOWER, CANDIDATE, LEADER = 0, 1, 2
"""PySyncObj's `_RAFT_STATE`."""

if TYPE_CHECKING:

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
        _SyncObj__raftState: int
        _SyncObj__raftCurrentTerm: int
        _SyncObj__votedForNodeId: str | None
        _SyncObj__votesCount: int
        _SyncObj__raftLeader: Any
        _SyncObj__raftElectionDeadline: float
        _SyncObj__transferInProgress: bool
        _SyncObj__raftLog: Any
        _SyncObj__raftCommitIndex: int
        _SyncObj__leaderCommitIndex: int | None
        _SyncObj__raftLastApplied: int
        _SyncObj__raftNextIndex: dict[Any, int]
        _SyncObj__raftMatchIndex: dict[Any, int]
        _SyncObj__lastResponseTime: dict[Any, float]
        _SyncObj__noopIDx: int | None
        _SyncObj__commandsWaitingCommit: dict[int, list[tuple[int, Any]]]
        _SyncObj__otherNodes: set[Any]
        _SyncObj__readonlyNodes: set[Any]
        _SyncObj__connectedNodes: set[Any]

        def __init__(
            self, selfNode: Any, otherNodes: Any, conf: Any = None, *, transport: Any = None
        ) -> None: ...

        def _SyncObj__setCurrentTerm(self, term: int, votedForNodeId: str | None) -> None: ...

        def _SyncObj__setState(self, newState: int) -> None: ...

        def _SyncObj__onMessageReceived(self, node: Any, message: dict[str, Any]) -> None: ...

        def _SyncObj__onBecomeLeader(self) -> None: ...

        def _SyncObj__sendAppendEntries(self) -> None: ...

        def _SyncObj__applyLogEntries(self) -> bool: ...

        def _SyncObj__generateRaftTimeout(self) -> float: ...

else:
    from pysyncobj import SyncObj, SyncObjConf
    from pysyncobj.journal import Journal as SyncObjJournal
    from pysyncobj.node import Node
    from pysyncobj.transport import Transport

__all__ = [
    "CANDIDATE",
    "FOLLOWER",
    "LEADER",
    "SYNCOBJ_VERSION",
    "Node",
    "SyncObj",
    "SyncObjConf",
    "SyncObjJournal",
    "Transport",
]
