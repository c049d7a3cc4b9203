"""One partition's queue at its leader: requests on their way into entries, and time.

What arrives in one turn of the loop shares an entry. One timer at most stands for the next thing
that time brings about; where nothing waits and nothing is due there is none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from itertools import chain

from delivery.config import LANES_COUNT, QueueConfig
from delivery.entries.ops import (
    RELEASE,
    Delivered,
    Granted,
    Op,
    Result,
    Settled,
    StaleResult,
    encode_ops,
    feature_of,
)
from delivery.leader.dispatcher import DUE_GRACE_MS, OPS_MAX, Dispatcher, Proposal, Want
from delivery.state.partition import PartitionState
from goqueue.wire.errors import (
    DiskFull,
    GoQueueError,
    NotLeader,
    OutcomeUnknown,
    ServerError,
    StaleGeneration,
)
from goqueue.wire.types import Index
from log.entry import EntryKind
from log.levels import Levels
from node.partition.consumer_activity import ConsumerActivity
from node.rpc.queue import GroupRef
from node.runtime.logger import get_logger
from raft.errors import Outcome
from raft.group import RaftGroup

LOOK_AGAIN_S = 0.1
"""Whoever was told that something is ready may never come for it: then the next one is told."""
TOLD_MAX = 64
"""Waiters of one group told at once that something is ready."""
HALT_IS_NEW_S = 0.5
"""Who begins to wait so soon after a halt may have asked before it."""
TIMER_S_MAX = 5.0
"""Log time may be set forward: how long at most that goes unnoticed."""
OVERDUE_S = 0.05
"""What is due and was not collected is on its way: its end begins a turn, or else this does."""

Ticket = asyncio.Future[Result]
Waiter = asyncio.Future[None]

_log = get_logger("queue")


class QueueHost:
    """The leader's side of one partition's queue; it stands idle on followers. Loop thread only."""

    def __init__(
        self,
        *,
        raft_group: RaftGroup,
        state: PartitionState,
        config: Callable[[], QueueConfig],
        is_stuck: Callable[[], bool] = lambda: False,
        requires_archive: Callable[[], bool] = lambda: False,
        created: int = 0,
        levels: Levels | None = None,
        dispatcher: Callable[[PartitionState], Dispatcher[Ticket]] = Dispatcher,
    ) -> None:
        self._created = created
        self._levels = levels or Levels()
        self._make_dispatcher = dispatcher
        self._requires_archive = requires_archive
        self._raft_group = raft_group
        self._state = state
        self._config = config
        self._is_stuck = is_stuck
        self._loop = asyncio.get_running_loop()
        self._dispatcher: Dispatcher[Ticket] | None = None
        self._scheduled = False
        self._notes_at_once = False
        self._timer: asyncio.TimerHandle | None = None
        self._waiters: dict[int, dict[Waiter, int]] = {}
        """Of each group, in the order of arrival, and down to which lane each wants messages."""
        self._opening: dict[Waiter, GroupRef] = {}
        self._halted_s: dict[int, float] = {}  # groups that were seen to have halted, and when
        self._armed_for: tuple[int | None, int | None] = (None, None)
        self._receiving: dict[Ticket, int] = {}
        """The groups of receives that are not answered."""
        self.consumer_activity = ConsumerActivity()

    # leadership

    def open(self) -> None:
        """This node leads, and all that was before is applied."""
        self.consumer_activity.begin_anew()
        self._dispatcher = self._make_dispatcher(self._state)
        self._dispatcher.watched = self._is_watched
        self.configure()

    def configure(self) -> None:
        """The topic's settings may be other ones."""
        if self._dispatcher is not None:
            self._dispatcher.configure(self._config())
            self._dispatcher.require_archive(self._requires_archive())
            self._schedule()

    def close(self, leader: str | None) -> None:
        """Leadership is lost: what waits was not proposed. What was learns its end from Raft."""
        dispatcher, self._dispatcher = self._dispatcher, None
        self._set_timer(None)
        if dispatcher is not None:
            for ticket in dispatcher.tickets():
                _fail(ticket, NotLeader(leader))
        for waiter in [*chain.from_iterable(self._waiters.values()), *self._opening]:
            _tell(waiter)

    @property
    def is_open(self) -> bool:
        """Whether this node leads."""
        return self._dispatcher is not None

    # requests

    async def receive(self, want: Want, opens: GroupRef) -> Granted:
        """Lease what is ready now, maybe nothing. A caller that is cancelled has leased nothing:
        what is granted to it later, or was in this very moment, is given back. Raises
        `StaleGeneration` where the partition is another member's."""
        dispatcher = self._leading()
        ticket: Ticket = self._loop.create_future()
        self._open_group(dispatcher, opens)
        dispatcher.receive(want, ticket, wait=False)
        self._receiving[ticket] = want.group
        self._schedule()
        try:
            result = await ticket
        except asyncio.CancelledError:
            if ticket in self._receiving:
                dispatcher.withdraw(ticket)
                self._schedule()
            elif not ticket.cancelled() and ticket.exception() is None:
                self.give_back(want.group, ticket.result())
            raise
        finally:
            self._receiving.pop(ticket, None)
        if isinstance(result, StaleResult):
            raise stale_generation(result)
        return result if isinstance(result, Granted) else Granted(0, 0, [])

    def recall(self, request: int) -> bool:
        """Whether all that was granted under this id, and ever will be, is known by now: who waits
        under it here is told of nothing."""
        if self._dispatcher is None:
            return False
        tickets = self._dispatcher.recall(request)
        for ticket in tickets or ():
            self._answer(ticket, Granted(0, 0, []))
        return tickets is not None

    async def submit(self, ops: Sequence[Op], opens: GroupRef | None = None) -> list[Result]:
        """Put operations into the log; their results once they are applied.

        Raises `NotLeader` (nothing has happened) or `OutcomeUnknown`.
        """
        dispatcher = self._leading()
        if opens is not None:
            self._open_group(dispatcher, opens)
        tickets: list[Ticket] = [self._loop.create_future() for _ in ops]
        for op, ticket in zip(ops, tickets, strict=True):
            dispatcher.submit(op, ticket)
        self._schedule()
        return [await tickets[0]] if len(tickets) == 1 else list(await asyncio.gather(*tickets))

    def give_back(self, group: int, granted: Result, rows: int = 0) -> None:
        """Release leases that nobody will be told of, from this row on: their attempt does not
        count."""
        if self._dispatcher is None or not isinstance(granted, Granted):
            return
        offsets = [grant.offset for grant in granted.grants[rows:]]
        if offsets:
            self._dispatcher.submit(Settled(group, RELEASE, [(granted.delivery, offsets)]), None)
            self._schedule()

    def put(self, op: Op) -> None:
        """As `submit`, for whom the result does not matter."""
        if self._dispatcher is not None:
            self._dispatcher.submit(op, None)
            self._schedule()

    def end_runs(self, runs: Collection[int]) -> None:
        """These runs are lost, and with them what their streams have in flight: until one of them
        asks for messages."""
        if self._dispatcher is not None:
            self._dispatcher.end_runs(runs)
            self._schedule()

    def reopen(self, ref: GroupRef) -> None:
        """Open the group here if it isn't, or is with older settings than these."""
        if self._dispatcher is not None and not self._is_open(ref):
            self._open_group(self._dispatcher, ref)
            self._schedule()

    def drop_group(self, group: int) -> None:
        """The group was deleted in the cluster."""
        self.consumer_activity.forget(group)
        self._halted_s.pop(group, None)
        if self._dispatcher is not None:
            self._dispatcher.drop_group(group)
            self._schedule()

    async def opened(self, ref: GroupRef) -> None:
        """Return once the group is open here. Raises `NotLeader`."""
        while not self._is_open(ref):
            self._open_group(self._leading(), ref)
            waiter: Waiter = self._loop.create_future()
            self._opening[waiter] = ref
            self._schedule()
            try:
                async with asyncio.timeout(LOOK_AGAIN_S):
                    await waiter
            except TimeoutError:
                continue  # the entry may have been refused, as by a leader that hands over
            finally:
                del self._opening[waiter]

    # waiting for something to be ready

    def is_ready(self, group: int, lowest_lane: int = LANES_COUNT - 1) -> bool:
        """Whether a receive would have something to do: a message to lease, or to open the
        group."""
        known = self._state.queue.groups.get(group)
        return known is None or bool(
            known.select(1, self._raft_group.log_time.now_ms(), lowest_lane)
        )

    def is_halted(self, group: int) -> bool:
        known = self._state.queue.groups.get(group)
        return known is not None and bool(known.halted)

    def is_watched(self, group: int) -> bool:
        """Whether a receive of the group waits here for messages."""
        return any(not waiter.done() for waiter in self._waiters.get(group, ()))

    @property
    def is_due(self) -> bool:
        """Whether a delay or a backoff has been over for a while that no entry has noted yet."""
        due_ms = self._state.queue.next_due_ms()
        return due_ms is not None and due_ms + DUE_GRACE_MS <= self._raft_group.log_time.now_ms()

    def watch(self, group: int, waiter: Waiter, lowest_lane: int = LANES_COUNT - 1) -> None:
        """Tell the waiter when something is ready for the group, of no lane below this one, when
        the group halts, or leadership is lost."""
        self._waiters.setdefault(group, {})[waiter] = lowest_lane
        if self._has_just_halted(group):
            _tell(waiter)
        self._watched()

    def unwatch(self, group: int, waiter: Waiter) -> None:
        waiters = self._waiters.get(group)
        if waiters is not None:
            waiters.pop(waiter, None)
            if not waiters:
                del self._waiters[group]
                self._watched()

    def applied(self, *, is_records: bool = False) -> None:
        """An entry was applied. Records change nothing here while nobody waits for them, unless
        something falls due sooner."""
        if self._dispatcher is None:
            return
        if not is_records or self._waiters or self._due() != self._armed_for:
            self._schedule()

    # whoever moves time

    def note_at_once(self) -> None:
        """Note what falls due as if somebody always waited for it."""
        if not self._notes_at_once:
            self._notes_at_once = True
            self._watched()

    def next_ms(self) -> int | None:
        """The log time at which time brings something about, if nothing happens before."""
        if self._dispatcher is None:
            return None
        return self._dispatcher.next_wake_ms(self._raft_group.log_time.now_ms())

    def wake(self) -> None:
        """Look now."""
        self._schedule()

    # private

    def _leading(self) -> Dispatcher[Ticket]:
        """Raises `NotLeader` also where no majority is in reach, `DiskFull` where none can write:
        nothing would be answered."""
        if self._dispatcher is None or not self._raft_group.is_ready_leader:
            raise NotLeader(self._raft_group.leader)
        if not self._raft_group.election.has_quorum:
            raise NotLeader(None)
        if self._is_stuck():
            raise DiskFull(retry_after_s=10)
        return self._dispatcher

    def begins(self, ref: GroupRef) -> int:
        """Where a group begins that is opened now. One that is older than this partition misses
        nothing of it, wherever it begins elsewhere."""
        if ref.config.start == "latest" and self._created <= ref.id:
            return self._state.next_offset
        return self._state.log_start_offset

    def _is_open(self, ref: GroupRef) -> bool:
        known = self._state.queue.groups.get(ref.id)
        return known is not None and known.version >= ref.version

    def _open_group(self, dispatcher: Dispatcher[Ticket], ref: GroupRef) -> None:
        if not self._is_open(ref):
            offset = self.begins(ref)
            dispatcher.open_group(ref.id, ref.name, ref.version, ref.config, offset)

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._scheduled = False
        dispatcher = self._dispatcher
        if dispatcher is None:
            return
        now_ms = self._raft_group.log_time.now_ms()
        proposal = dispatcher.collect(now_ms)
        refused = False
        if proposal is not None:
            for ticket, answer in proposal.answers:
                self._answer(ticket, answer)
            if proposal.sent:
                refused = not self._propose(dispatcher, proposal)
                if not refused and len(proposal.sent) >= OPS_MAX:
                    self._schedule()
        for waiter, ref in self._opening.items():
            if self._is_open(ref):
                _tell(waiter)
        ready = self._tell_waiters(now_ms)
        self._armed_for = self._due()
        self._set_timer(self._wake_s(dispatcher, now_ms, ready or refused))

    def _propose(self, dispatcher: Dispatcher[Ticket], proposal: Proposal[Ticket]) -> bool:
        """Whether the entry is on its way. What is left after a refusal is proposed again later: a
        leader that hands over refuses too, and leads on where that fails."""

        def done(outcome: Outcome, result: object, _index: Index) -> None:
            self._ended(dispatcher, proposal, outcome, result)

        try:
            if self._is_stuck():
                raise DiskFull(retry_after_s=10)
            self._levels.require(feature_of(proposal.ops))
            leases = all(isinstance(op, Delivered) for op in proposal.ops)
            body = encode_ops(proposal.ops)
            self._raft_group.propose(EntryKind.QUEUE, body, relaxed=leases, callback=done)
        except Exception as error:  # noqa: BLE001 - tickets of what is in no entry must be told
            refusal = error
            if not isinstance(refusal, GoQueueError):
                _log.exception("queue_entry_refused", group=str(self._raft_group.id))
                refusal = ServerError(f"the entry was refused: {error}", outcome="none")
            for ticket in dispatcher.failed(proposal):
                _fail(ticket, refusal)
            return False
        return True

    def _ended(
        self,
        dispatcher: Dispatcher[Ticket],
        proposal: Proposal[Ticket],
        outcome: Outcome,
        result: object,
    ) -> None:
        if outcome is Outcome.APPLIED:
            assert isinstance(result, list), "what a queue entry results in"
            self._note_deliveries(proposal, result)
            for ticket, answer in dispatcher.landed(proposal, result):
                self._answer(ticket, answer)
        else:
            unknown = outcome is Outcome.UNKNOWN
            for ticket in dispatcher.failed(proposal):
                _fail(ticket, OutcomeUnknown() if unknown else NotLeader(self._raft_group.leader))
        if dispatcher is self._dispatcher:
            self._schedule()
        else:  # a receive that got nothing does not wait for a leadership that is over
            for ticket in dispatcher.tickets():
                _fail(ticket, NotLeader(self._raft_group.leader))

    def _note_deliveries(self, proposal: Proposal[Ticket], results: list[Result]) -> None:
        now_ms = self._state.queue.time_ms
        for sent, granted in zip(proposal.sent, results, strict=True):
            if isinstance(sent.op, Delivered) and isinstance(granted, Granted) and granted.grants:
                self.consumer_activity.delivered(sent.op.group, len(granted.grants), now_ms)

    def _answer(self, ticket: Ticket, answer: Result | GoQueueError) -> None:
        group = self._receiving.pop(ticket, None)
        if isinstance(answer, GoQueueError):
            _fail(ticket, answer)
        elif not ticket.done():
            ticket.set_result(answer)
        elif group is not None:
            self.give_back(group, answer)

    # time

    def _watched(self) -> None:
        """Somebody waits for messages, or nobody any more: what is due is noted sooner, or not."""
        if self._dispatcher is not None:
            self._dispatcher.watched = self._is_watched
            self._schedule()

    @property
    def _is_watched(self) -> bool:
        return self._notes_at_once or bool(self._waiters)

    def _tell_waiters(self, now_ms: int) -> bool:
        """Tell as many as there are messages ready; whether anyone should be looked at again."""
        again = False
        for group, waiters in list(self._waiters.items()):
            known = self._state.queue.groups.get(group)
            if self._has_just_halted(group):
                for waiter in waiters:
                    _tell(waiter)
            for lane in sorted(set(waiters.values())):
                alike = [waiter for waiter, lowest in waiters.items() if lowest == lane]
                waiting = [waiter for waiter in alike if not waiter.done()][:TOLD_MAX]
                if not waiting:
                    continue
                count = len(waiting)
                ready = count if known is None else len(known.select(count, now_ms, lane))
                for waiter in waiting[:ready]:
                    _tell(waiter)
                again = again or 0 < ready < len(alike)
        return again

    def _has_just_halted(self, group: int) -> bool:
        """Whoever waits looks again then, and is told why nothing comes."""
        if not self.is_halted(group):
            self._halted_s.pop(group, None)
            return False
        now_s = self._loop.time()
        return now_s - self._halted_s.setdefault(group, now_s) < HALT_IS_NEW_S

    def _wake_s(
        self, dispatcher: Dispatcher[Ticket], now_ms: int, look_again: bool
    ) -> float | None:
        """In how many seconds the next turn is due, None for never."""
        wake_ms = dispatcher.next_wake_ms(now_ms)
        if wake_ms is None:
            return LOOK_AGAIN_S if look_again else None
        wait_s = min((wake_ms - now_ms) / 1000, TIMER_S_MAX) or OVERDUE_S
        return min(wait_s, LOOK_AGAIN_S) if look_again else wait_s

    def _due(self) -> tuple[int | None, int | None]:
        """The next times that stored messages bring about: of delays, and of expiries."""
        queue = self._state.queue
        return queue.delays.next_ms(), queue.expiries.next_ms()

    def _set_timer(self, wait_s: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if wait_s is not None:
            self._timer = self._loop.call_later(wait_s, self._fire)

    def _fire(self) -> None:
        self._timer = None
        self._schedule()


def _fail(ticket: Ticket, error: GoQueueError) -> None:
    if not ticket.done():
        ticket.set_exception(error)
        ticket.exception()  # a caller that is gone does not ask


def stale_generation(found: StaleResult) -> StaleGeneration:
    """Why a member may not act in a partition."""
    whose = f"member {found.member}" if found.member else "no member"
    return StaleGeneration(
        f"this partition belongs to {whose} of the group, since generation {found.generation}",
        generation=found.generation,
        owner=found.member,
    )


def _tell(waiter: Waiter) -> None:
    if not waiter.done():
        waiter.set_result(None)
