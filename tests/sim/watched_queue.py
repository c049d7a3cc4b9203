"""A leader's queue as the simulation watches it: what it proposes, and whom it sends away empty."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from delivery.entries.ops import Granted, Result
from goqueue.wire.errors import GoQueueError
from goqueue.wire.types import Index
from log.levels import HIGHEST, Levels
from node.partition.queue import QueueHost, Ticket
from node.rpc.queue import GroupRef

if TYPE_CHECKING:
    from tests.sim.replica import Replica
    from tests.sim.work import Work


class Proposals:
    """The replica's Raft group, for its queue: each entry that it proposes is told."""

    def __init__(self, replica: Replica, work: Work) -> None:
        self._replica = replica
        self._work = work

    def __getattr__(self, name: str) -> Any:
        return getattr(self._replica.raft, name)

    def propose(self, *arguments: Any, **options: Any) -> Index:
        replica = self._replica
        seen = replica.state.applied_index
        index = replica.raft.propose(*arguments, **options)
        self._work.proposed(replica.id, replica.raft.term, index, seen)
        return index


class WatchedQueue(QueueHost):
    """`work.held` is told of a receive that is answered with nothing, though something is ready
    and nothing is on its way."""

    def __init__(self, replica: Replica, work: Work) -> None:
        raft: Any = Proposals(replica, work)
        super().__init__(
            raft_group=raft,
            state=replica.state,
            config=lambda: work.config,
            is_stuck=lambda: replica.process.store.stalled is not None,
            levels=Levels(finished=HIGHEST),
            dispatcher=replica.process.world.mutant.dispatcher,
        )
        self._replica = replica
        self._work = work

    def recall(self, request: int) -> bool:
        self._recalls = True
        try:
            return super().recall(request)
        finally:
            self._recalls = False

    _recalls = False

    def _is_open(self, ref: GroupRef) -> bool:
        if self._replica.process.world.mutant.puts_any_version:
            known = self._state.queue.groups.get(ref.id)
            return known is not None and known.version == ref.version
        return super()._is_open(ref)

    def _answer(self, ticket: Ticket, answer: Result | GoQueueError) -> None:
        if isinstance(answer, Granted) and not answer.grants and not self._recalls:
            self._look(self._receiving.get(ticket))
        super()._answer(ticket, answer)

    def _look(self, id: int | None) -> None:
        group = None if id is None else self._state.queue.groups.get(id)
        dispatcher = self._dispatcher
        if group is None or dispatcher is None or dispatcher.is_delivering:
            return
        if group.select(1, self._raft_group.log_time.now_ms()):
            self._work.held(self._replica.id, f"group {group.name}")
