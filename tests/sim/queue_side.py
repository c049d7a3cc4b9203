"""The queue of a simulated replica: the production dispatcher, as a node's leader runs it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, cast

from delivery.config import GroupConfig, QueueConfig
from delivery.dispatcher import Dispatcher, Proposal
from delivery.ops import Granted, Result, encode_ops
from delivery.partition import PartitionState
from goqueue.wire.errors import GoQueueError, NotLeader, OutcomeUnknown
from goqueue.wire.types import GroupId, Index, NodeId, Term
from log.entry import Entry, EntryKind
from raft.errors import Outcome
from tests.sim.loop import Timer
from tests.sim.queue_requests import Ask, Done, NotDone

if TYPE_CHECKING:
    from tests.sim.process import Process
    from tests.sim.replica import Replica

PUMPS_MAX = 100
"""Entries that one turn proposes; more would be a circle."""


@dataclass(frozen=True)
class GroupSpec:
    """A group as a node knows it."""

    id: int
    name: str
    config: GroupConfig
    version: int = 1


class Work(Protocol):
    """What is done with queues in a run, and what is known of it for certain."""

    config: QueueConfig

    def has(self, group: GroupId) -> bool:
        """Whether the partition's queue is used."""
        ...

    def known_groups(self, node: NodeId) -> list[GroupSpec]:
        """The groups as this node knows them now."""
        ...

    def proposed(self, group: GroupId, term: Term, index: Index, seen: Index) -> None:
        """A leader has made a queue entry, having applied everything up to `seen`."""
        ...

    def applied(self, group: GroupId, entry: Entry, state: PartitionState, result: object) -> None:
        """A replica has applied an entry."""
        ...

    def held(self, group: GroupId, ask: Ask) -> None:
        """A receive waits at a leader, though something is ready and nothing is under way."""
        ...


class QueueSide:
    """Requests go into the dispatcher of the leadership that there is; entries come out of it."""

    def __init__(self, process: Process, replica: Replica, work: Work) -> None:
        self._process = process
        self._replica = replica
        self._state = replica.state
        self._work = work
        self._dispatcher: Dispatcher[Ask] | None = None
        self._pump_planned = False
        self._timer: Timer | None = None
        self._flying = 0

    def lead(self) -> None:
        """A leadership begins: it knows nothing of the one before."""
        self.follow()
        self._dispatcher = self._process.world.mutant.dispatcher(self._state)
        self._dispatcher.configure(self._work.config)
        self.groups_changed()
        self.pump_soon()

    def applied(self, entry: Entry, result: object) -> None:
        """The replica has applied an entry: there may be something to deliver."""
        self._work.applied(self._replica.id, entry, self._state, result)
        if self._dispatcher is not None:
            self.pump_soon()

    def groups_changed(self) -> None:
        """What this node knows of the groups is wanted here."""
        if self._dispatcher is None:
            return
        for group in self._work.known_groups(self._process.node):
            self._dispatcher.open_group(group.id, group.name, group.version, group.config, 0)
        self.pump_soon()

    def follow(self) -> None:
        """Whoever waits is sent away."""
        dispatcher, self._dispatcher = self._dispatcher, None
        if dispatcher is not None:
            self._send_away(dispatcher)

    def _send_away(self, dispatcher: Dispatcher[Ask]) -> None:
        for ask in dispatcher.tickets():
            self._refuse(ask, NotLeader(self._replica.raft.leader))
            dispatcher.withdraw(ask)

    def ask(self, ask: Ask) -> None:
        """Take a request, or say who leads."""
        dispatcher = self._dispatcher
        if dispatcher is None or not self._replica.raft.is_ready_leader:
            self._refuse(ask, NotLeader(self._replica.raft.leader))
            return
        if not self._replica.raft.has_quorum:
            self._refuse(ask, NotLeader(None))
            return
        if ask.want is not None:
            dispatcher.receive(ask.want, ask, wait=ask.wait_s > 0)
            if ask.wait_s > 0:
                self._process.time.call_later(ask.wait_s, self._waited_enough, dispatcher, ask)
        else:
            assert ask.op is not None
            dispatcher.submit(ask.op, ask)
        self.pump_soon()

    def withdraw(self, ask: Ask) -> None:
        """Who asked has left."""
        ask.is_over = True
        if self._dispatcher is not None:
            self._dispatcher.withdraw(ask)
            self.pump_soon()

    def _waited_enough(self, dispatcher: Dispatcher[Ask], ask: Ask) -> None:
        if ask.is_over:
            return
        dispatcher.withdraw(ask)
        self._answer(ask, Granted(0, 0, []))
        self.pump_soon()

    def pump_soon(self) -> None:
        """Look for work before anything else happens."""
        if not self._pump_planned:
            self._pump_planned = True
            self._process.time.call_soon(self._pump)

    def _pump(self) -> None:
        self._pump_planned = False
        dispatcher = self._dispatcher
        for _ in range(PUMPS_MAX):
            if dispatcher is None or not self._replica.raft.is_ready_leader:
                return
            proposal = dispatcher.collect(self._replica.raft.log_time_ms())
            if proposal is None:
                self._look_who_waits(dispatcher)
                self._sleep(dispatcher)
                return
            for ask, answer in proposal.answers:
                if isinstance(answer, GoQueueError):
                    self._refuse(ask, answer)
                else:
                    self._answer(ask, answer)
            if proposal.ops:
                self._propose(dispatcher, proposal)
        raise AssertionError(f"{PUMPS_MAX} queue entries in one turn")

    def _look_who_waits(self, dispatcher: Dispatcher[Ask]) -> None:
        """With nothing under way, nobody waits for what is ready."""
        for ask in dispatcher.tickets() if not self._flying else ():
            group = None if ask.want is None else self._state.queue.groups.get(ask.want.group)
            if group is not None and group.select(1, self._replica.raft.log_time_ms()):
                self._work.held(self._replica.id, ask)

    def _sleep(self, dispatcher: Dispatcher[Ask]) -> None:
        now_ms = self._replica.raft.log_time_ms()
        wake_ms = dispatcher.next_wake_ms(now_ms)
        if self._timer is not None:
            self._timer.cancel()
        if wake_ms is not None:
            delay_s = max(0.001, (wake_ms - now_ms) / 1000)
            self._timer = self._process.time.call_later(delay_s, self.pump_soon)

    def _propose(self, dispatcher: Dispatcher[Ask], proposal: Proposal[Ask]) -> None:
        seen = self._state.applied_index
        raft = self._replica.raft
        body = encode_ops(proposal.ops)
        try:
            index = raft.propose(EntryKind.QUEUE, body, callback=self._ended(dispatcher, proposal))
        except NotLeader:
            for ask in dispatcher.failed(proposal):
                self._refuse(ask, NotLeader(raft.leader))
            self._dispatcher = None
            self._send_away(dispatcher)
            return
        self._flying += 1
        self._work.proposed(self._replica.id, raft.term, index, seen)

    def _ended(
        self, dispatcher: Dispatcher[Ask], proposal: Proposal[Ask]
    ) -> Callable[[Outcome, object, Index], None]:
        def ended(outcome: Outcome, result: object, _index: Index) -> None:
            self._flying -= 1
            if outcome is Outcome.APPLIED:
                for ask, told in dispatcher.landed(proposal, cast(list[Result], result)):
                    self._answer(ask, told)
            else:
                unknown = outcome is not Outcome.NONE
                error = OutcomeUnknown() if unknown else NotLeader(self._replica.raft.leader)
                for ask in dispatcher.failed(proposal):
                    self._refuse(ask, error, unknown=unknown)
            if dispatcher is not self._dispatcher:
                self._send_away(dispatcher)
            self.pump_soon()

        return ended

    def _answer(self, ask: Ask, result: Result) -> None:
        if not ask.is_over:
            ask.is_over = True
            self._process.answer_queue(ask, Done(result, self._process.node))

    def _refuse(self, ask: Ask, error: GoQueueError, *, unknown: bool = False) -> None:
        if not ask.is_over:
            ask.is_over = True
            self._process.answer_queue(ask, NotDone(error, unknown, self._replica.raft.leader))
