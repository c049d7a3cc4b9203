"""A Raft group that lets the world look at its decisive moments, whatever else it is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Protocol

from goqueue.wire.types import Index, NodeId, PartitionId, Term
from raft.group import RaftGroup
from raft.peer import Peer
from raft.state import LEADER


class Watcher(Protocol):
    """Who is told."""

    def began_to_lead(
        self, node: NodeId, partition_id: PartitionId, term: Term, voters: int
    ) -> None: ...

    def granted(
        self, node: NodeId, partition_id: PartitionId, term: Term, candidate: NodeId, last: Index
    ) -> None: ...

    def truncates(
        self, node: NodeId, partition_id: PartitionId, index: Index, term: Term | None
    ) -> None: ...


def watched(base: type[RaftGroup], watcher: Watcher) -> type[RaftGroup]:
    """`base`, telling of leaderships as they begin, of votes as they are granted, with the last
    entry of the log of who grants them, and of entries before they are dropped."""

    parts = base.parts

    class Voting(parts.voting):  # type: ignore[name-defined,misc]
        def grant(self, candidate: Peer) -> None:
            super().grant(candidate)
            state = self._state
            last = state.log.last_index
            watcher.granted(state.node, state.id, Term(state.term), candidate.node, last)

    class Following(parts.following):  # type: ignore[name-defined,misc]
        def _truncate(self, index: Index) -> None:
            state = self._state
            watcher.truncates(state.node, state.id, index, state.log.term_at(index))
            super()._truncate(index)

    class Watched(base):  # type: ignore[valid-type,misc]
        def __init__(self, *given: Any, **named: Any) -> None:
            super().__init__(*given, **named)
            self.server.on_role = self._on_role

        def _on_role(self, old: int, new: int) -> None:
            self.leadership.on_role(old, new)
            if new == LEADER:
                watcher.began_to_lead(self.node, self.id, self.term, len(self.membership.voters))

    Watched.parts = replace(parts, voting=Voting, following=Following)

    return Watched
