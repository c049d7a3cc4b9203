"""A Raft group that lets the world look at its decisive moments, whatever else it is."""

from __future__ import annotations

from typing import Protocol

from goqueue.wire.types import GroupId, Index, NodeId, Term
from raft.group import RaftGroup
from raft.peer import Peer


class Watcher(Protocol):
    """Who is told."""

    def began_to_lead(self, node: NodeId, group: GroupId, term: Term, voters: int) -> None: ...

    def granted(
        self, node: NodeId, group: GroupId, term: Term, candidate: NodeId, last: Index
    ) -> None: ...

    def truncates(self, node: NodeId, group: GroupId, index: Index, term: Term | None) -> None: ...


def watched(base: type[RaftGroup], watcher: Watcher) -> type[RaftGroup]:
    """`base`, telling of leaderships as they begin, of votes as they are granted, with the last
    entry of the log of who grants them, and of entries before they are dropped."""

    class Watched(base):  # type: ignore[valid-type,misc]
        def _begin_to_lead(self) -> None:
            super()._begin_to_lead()
            watcher.began_to_lead(self.node, self.id, self.term, len(self.voters))

        def grant(self, candidate: Peer) -> None:
            super().grant(candidate)
            watcher.granted(self.node, self.id, self.term, candidate.node, self._log.last_index)

        def _truncate(self, index: Index) -> None:
            watcher.truncates(self.node, self.id, index, self._log.term_at(index))
            super()._truncate(index)

    return Watched
