"""The leader's side of the queue: requests wait here until they share an entry.

A dispatcher belongs to one leadership, and decides without I/O or clock; whoever owns it proposes
the entries and tells it how they ended. Deliveries go out one entry at a time, because what an
entry grants depends on the one before; everything else goes at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from msgspec import structs

from delivery.config import LANES_COUNT, GroupConfig, QueueConfig, sound_queue
from delivery.entries.ops import (
    RELEASE,
    UNCLAIMED,
    Configure,
    Delivered,
    DeliveredToStream,
    DropGroup,
    Expired,
    Granted,
    Op,
    OpenGroup,
    RequireArchive,
    Result,
    Settled,
    StaleResult,
    StreamId,
    StreamsEnded,
    Tick,
    UnknownGroup,
)
from delivery.group.state import GroupState
from delivery.state.partition import PartitionState
from goqueue.wire.errors import GoQueueError, GroupHalted, TooManyInFlight

T = TypeVar("T")

Answer = Granted | UnknownGroup | StaleResult | GoQueueError

EXPIRED_MAX = 5000
"""Leases that one entry ends."""
DELIVERED_MAX = 10_000
"""Messages that one entry delivers."""
OPS_MAX = 1000
"""Operations of one entry."""
DUE_GRACE_MS = 15
"""How long what is due waits for an entry of its own: deliveries of it bring it about as well."""
IDLE_TICK_MS = 100
"""How late delays and backoffs may be noted while nobody waits for messages."""
EXPIRY_TICK_MS = 5000
"""How late expired messages are counted while nothing else happens."""


@dataclass(frozen=True, slots=True)
class Want:
    """A receive: up to `limit` messages for a member; `visibility_ms` None is the group's own.

    Messages of lanes below `lowest_lane` are not wanted. `generation` is the member's, or
    `UNCLAIMED` of who is none. A `stream`'s leases end with it, and with a visibility of 0 no
    sooner.
    """

    group: int
    member: str
    limit: int
    visibility_ms: int | None
    request: int
    generation: int = UNCLAIMED
    lowest_lane: int = LANES_COUNT - 1
    stream: StreamId | None = None


@dataclass(slots=True, eq=False)
class _Waiting(Generic[T]):
    want: Want
    ticket: T
    wait: bool
    held: bool = False
    """Whether it was kept once, though it does not wait, for what an entry may bring."""
    gone: bool = False
    """Whether its caller has left."""


@dataclass(slots=True)
class _Sent(Generic[T]):
    """An operation on its way; `waiting` if it is a receive's."""

    op: Op
    ticket: T | None
    waiting: _Waiting[T] | None = None


@dataclass(slots=True)
class Proposal(Generic[T]):
    """An entry to be proposed, if it has operations; `answers` are due now, whatever becomes of
    it."""

    sent: list[_Sent[T]] = field(default_factory=list["_Sent[T]"])
    answers: list[tuple[T, Answer]] = field(default_factory=list["tuple[T, Answer]"])

    @property
    def ops(self) -> list[Op]:
        return [sent.op for sent in self.sent]


class Dispatcher(Generic[T]):
    """What a leader still has to put into the log. Tickets are the owner's own, told apart by
    identity."""

    def __init__(self, state: PartitionState) -> None:
        self._state = state
        self._submitted: deque[_Sent[T]] = deque()
        self._waiting: dict[int, deque[_Waiting[T]]] = {}
        self._config: QueueConfig | None = None
        self._archive_required: bool | None = None
        self._openings: dict[int, OpenGroup] = {}
        self._opening: dict[int, int] = {}
        """Groups that entries on their way open, and with which version."""
        self._lost: set[int] = set()
        """Runs of nodes whose streams nobody else ends."""
        self._in_flight: dict[str, int] = {}
        """What entries on their way hold of deliveries, expiries, ticks, settings and openings."""
        self._flying: list[_Waiting[T]] = []
        """Receives in entries on their way."""
        self.watched = False
        """Whether somebody waits elsewhere to be told that something is ready."""

    # -- requests

    def configure(self, config: QueueConfig) -> None:
        """The partition's settings, to be put into the log where they differ from it."""
        self._config = sound_queue(config)

    def require_archive(self, required: bool) -> None:
        """Whether messages wait for the archive, to be put into the log where that differs."""
        self._archive_required = required

    def open_group(
        self, id: int, name: str, version: int, config: GroupConfig, offset: int
    ) -> None:
        """A group is wanted here, with these settings; one that is not open begins at `offset`."""
        group = self._state.queue.groups.get(id)
        if group is None or group.version < version:
            self._openings[id] = OpenGroup(id, name, version, config, offset)

    def drop_group(self, id: int) -> None:
        """The group was deleted."""
        self._openings.pop(id, None)
        if id in self._state.queue.groups or self._in_flight.get("opening"):
            self.submit(DropGroup(id), None)

    def receive(self, want: Want, ticket: T, *, wait: bool) -> None:
        """Let a receive wait for messages; without `wait`, until what is ready now is known."""
        assert want.limit > 0, "a receive wants messages"
        self._waiting.setdefault(want.group, deque()).append(_Waiting(want, ticket, wait))
        if want.stream is not None:
            self._lost.discard(want.stream.run)

    def end_runs(self, runs: Collection[int]) -> None:
        """These runs are lost, and so are their streams: until one of them asks for messages."""
        self._lost = set(runs)

    def submit(self, op: Op, ticket: T | None) -> None:
        """Put an operation into the next entry."""
        self._submitted.append(_Sent(op, ticket))

    def withdraw(self, ticket: T) -> None:
        """The caller has left: its receive is forgotten; what it is granted yet is released."""
        for queued in self._waiting.values():
            for waiting in queued:
                if waiting.ticket is ticket:
                    queued.remove(waiting)
                    return
        for waiting in self._flying:
            if waiting.ticket is ticket:
                waiting.gone = True

    def recall(self, request: int) -> list[T] | None:
        """Forget the receives that wait under this id: whose they were, for each to be told. None
        while an entry on its way may grant it something: what it does is known soon."""
        if any(waiting.want.request == request for waiting in self._flying):
            return None
        found: list[T] = []
        for queued in self._waiting.values():
            for waiting in [w for w in queued if w.want.request == request]:
                queued.remove(waiting)
                found.append(waiting.ticket)
        return found

    def tickets(self) -> list[T]:
        """Everyone who waits and is in no entry: what to fail when leadership is lost."""
        waiting = [w.ticket for queued in self._waiting.values() for w in queued]
        return waiting + [sent.ticket for sent in self._submitted if sent.ticket is not None]

    @property
    def is_delivering(self) -> bool:
        """Whether an entry on its way, or the one that is collected, delivers messages."""
        return bool(self._in_flight.get("delivered"))

    # -- entries

    def collect(self, now_ms: int) -> Proposal[T] | None:
        """What is to be proposed and answered at this log time; None where nothing is."""
        proposal: Proposal[T] = Proposal()
        self._add_settings(proposal)
        while self._submitted and len(proposal.sent) < OPS_MAX:
            proposal.sent.append(self._submitted.popleft())
        self._add_expired(proposal, now_ms)
        self._add_lost(proposal)
        if self._is_tick_due(now_ms):
            self._add(proposal, Tick(), "tick")
        if not self._in_flight.get("delivered"):
            self._add_deliveries(proposal, now_ms)
        return proposal if proposal.sent or proposal.answers else None

    def landed(self, proposal: Proposal[T], results: list[Result]) -> list[tuple[T, Result]]:
        """The entry has applied: who is to be told what. Receives that got nothing may go on
        waiting."""
        self._end_flight(proposal)
        told: list[tuple[T, Result]] = []
        for sent, result in zip(proposal.sent, results, strict=True):
            if sent.waiting is not None:
                told += self._landed_receive(sent, sent.waiting, result)
            elif sent.ticket is not None:
                told.append((sent.ticket, result))
        return told

    def failed(self, proposal: Proposal[T]) -> list[T]:
        """The entry has not applied, or nobody knows: who is to be told so."""
        self._end_flight(proposal)
        left = [sent for sent in proposal.sent if sent.waiting is None or not sent.waiting.gone]
        return [sent.ticket for sent in left if sent.ticket is not None]

    def next_wake_ms(self, now_ms: int) -> int | None:
        """The log time at which `collect` will have something to do, if nothing else happens."""
        queue = self._state.queue
        wakes: list[int | None] = []
        if not self._in_flight.get("expired"):
            wakes += [group.next_deadline_ms() for group in queue.groups.values()]
        if not self._in_flight.get("tick"):
            wakes.append(self._tick_ms())
            due_ms = queue.next_due_ms()
            if due_ms is not None and due_ms > now_ms and self._has_waiting():
                wakes.append(due_ms)
        found = min((wake for wake in wakes if wake is not None), default=None)
        return None if found is None else max(found, now_ms)

    # -- collecting

    def _add(self, proposal: Proposal[T], op: Op, kind: str) -> None:
        proposal.sent.append(_Sent(op, None))
        self._in_flight[kind] = self._in_flight.get(kind, 0) + 1

    def _add_settings(self, proposal: Proposal[T]) -> None:
        config = self._config
        differs = config is not None and config != self._state.queue.config
        if config is not None and differs and not self._in_flight.get("settings"):
            self._add(proposal, Configure(config), "settings")
        wanted = self._archive_required
        stands = self._state.queue.archive.required
        if wanted is not None and wanted != stands and not self._in_flight.get("archive"):
            self._add(proposal, RequireArchive(wanted), "archive")
        for opening in self._openings.values():
            group = self._state.queue.groups.get(opening.group)
            applied = -1 if group is None else group.version
            if max(applied, self._opening.get(opening.group, -1)) < opening.version:
                self._add(proposal, opening, "opening")
                self._opening[opening.group] = opening.version
        self._openings = {}

    def _add_expired(self, proposal: Proposal[T], now_ms: int) -> None:
        if self._in_flight.get("expired"):
            return
        for group in self._state.queue.groups.values():
            deadline_ms = group.next_deadline_ms()
            if deadline_ms is not None and deadline_ms <= now_ms:
                overdue = group.leases.overdue(now_ms, EXPIRED_MAX)
                if overdue:
                    self._add(proposal, Expired(group.id, overdue), "expired")

    def _add_lost(self, proposal: Proposal[T]) -> None:
        if not self._lost or self._in_flight.get("streams"):
            return
        for group in self._state.queue.groups.values():
            for run in sorted(group.leases.runs & self._lost):
                self._add(proposal, StreamsEnded(group.id, run, [], lost=True), "streams")

    def _tick_ms(self) -> int | None:
        """When an entry is wanted for what falls due."""
        queue, waiting = self._state.queue, self._has_waiting()
        wakes = [
            (queue.delays.next_ms(), DUE_GRACE_MS if waiting else IDLE_TICK_MS),
            (queue.next_wake_ms(), 0 if waiting else IDLE_TICK_MS),
            (queue.expiries.next_ms(), EXPIRY_TICK_MS),
        ]
        return min((at + grace for at, grace in wakes if at is not None), default=None)

    def _is_tick_due(self, now_ms: int) -> bool:
        tick_ms = self._tick_ms()
        return tick_ms is not None and tick_ms <= now_ms and not self._in_flight.get("tick")

    def _add_deliveries(self, proposal: Proposal[T], now_ms: int) -> None:
        coming = any(map(self._in_flight.get, ("tick", "expired", "opening")))
        for id_, queued in list(self._waiting.items()):
            group = self._state.queue.groups.get(id_)
            if group is not None and queued:
                self._deliver(proposal, group, queued, now_ms)
            elif group is None and self._in_flight.get("opening"):
                continue
            elif group is None:
                proposal.answers += [(w.ticket, UnknownGroup(id_)) for w in queued]
                queued.clear()
            for waiting in [w for w in queued if not w.wait]:
                if coming and not waiting.held:
                    waiting.held = True
                else:
                    queued.remove(waiting)
                    proposal.answers.append((waiting.ticket, Granted(0, now_ms, [])))
            if not queued:
                del self._waiting[id_]

    def _deliver(
        self,
        proposal: Proposal[T],
        group: GroupState,
        queued: deque[_Waiting[T]],
        now_ms: int,
    ) -> None:
        self._refuse_strangers(proposal, group, queued)
        refusal = _refusal(group)
        if refusal is not None:
            self._refuse(proposal, queued, refusal)
            return
        repeats = self._repeats(group, queued)
        chosen: set[int] = set()
        for lane in sorted({waiting.want.lowest_lane for waiting in queued}):
            of_lane = [waiting for waiting in queued if waiting.want.lowest_lane == lane]
            wants = [waiting for waiting in of_lane if waiting not in repeats]
            wanted = sum(waiting.want.limit for waiting in wants)
            limit = min(wanted, DELIVERED_MAX - len(chosen))
            offsets = group.select(limit + len(chosen), now_ms, lane)
            if chosen:
                offsets = [offset for offset in offsets if offset not in chosen][:limit]
            chosen.update(offsets)
            self._share_out(proposal, group, queued, wants, offsets)
        flying = {waiting.want.request for waiting in self._flying}
        for waiting, is_answered in repeats.items():
            if is_answered or waiting.want.request in flying:
                self._send(proposal, group, queued, waiting, [])

    def _repeats(self, group: GroupState, queued: deque[_Waiting[T]]) -> dict[_Waiting[T], bool]:
        """Receives that must choose nothing, as nobody would be granted it: what their request
        was granted (True), or one that waits before them will be, is told to them again."""
        found: dict[_Waiting[T], bool] = {}
        asked: set[int] = set()
        for waiting in queued:
            request = waiting.want.request
            known = self._state.queue.results.of(request)
            if isinstance(known, Granted) and group.upholds(known):
                found[waiting] = True
            elif request in asked:
                found[waiting] = False
            elif request:
                asked.add(request)
        return found

    @staticmethod
    def _refuse_strangers(
        proposal: Proposal[T], group: GroupState, queued: deque[_Waiting[T]]
    ) -> None:
        """Who does not own the partition learns so at once."""
        owner = group.owner
        for waiting in list(queued):
            if not group.is_owned_by(waiting.want.member, waiting.want.generation):
                queued.remove(waiting)
                stale = StaleResult(group.id, owner.member, owner.generation)
                proposal.answers.append((waiting.ticket, stale))

    def _share_out(
        self,
        proposal: Proposal[T],
        group: GroupState,
        queued: deque[_Waiting[T]],
        wants: list[_Waiting[T]],
        offsets: list[int],
    ) -> None:
        at = 0
        for waiting in wants:
            if at >= len(offsets):
                return
            share = offsets[at : at + waiting.want.limit]
            at += len(share)
            self._send(proposal, group, queued, waiting, share)

    def _send(
        self,
        proposal: Proposal[T],
        group: GroupState,
        queued: deque[_Waiting[T]],
        waiting: _Waiting[T],
        offsets: list[int],
    ) -> None:
        queued.remove(waiting)
        want = waiting.want
        visibility_ms = want.visibility_ms
        if visibility_ms is None:
            visibility_ms = group.config.visibility_ms
        op = Delivered(
            group.id,
            want.member,
            visibility_ms,
            offsets,
            want.request,
            want.generation,
            want.lowest_lane,
        )
        if want.stream is not None:
            op = DeliveredToStream(**structs.asdict(op), stream=want.stream)
        proposal.sent.append(_Sent(op, waiting.ticket, waiting))
        self._flying.append(waiting)
        self._in_flight["delivered"] = self._in_flight.get("delivered", 0) + 1

    @staticmethod
    def _refuse(proposal: Proposal[T], queued: deque[_Waiting[T]], refusal: GoQueueError) -> None:
        """Halted groups tell all who ask; full ones only those who do not wait."""
        for waiting in list(queued):
            if isinstance(refusal, GroupHalted) or not waiting.wait:
                queued.remove(waiting)
                proposal.answers.append((waiting.ticket, refusal))

    # -- landing

    def _end_flight(self, proposal: Proposal[T]) -> None:
        for sent in proposal.sent:
            if sent.waiting is not None:
                self._flying.remove(sent.waiting)
            is_own = sent.ticket is None or sent.waiting is not None
            kind = _KINDS.get(type(sent.op)) if is_own else None
            if kind is not None and self._in_flight.get(kind):
                self._in_flight[kind] -= 1
            if isinstance(sent.op, OpenGroup):
                self._opening.pop(sent.op.group, None)

    def _landed_receive(
        self, sent: _Sent[T], waiting: _Waiting[T], result: Result
    ) -> list[tuple[T, Result]]:
        granted = isinstance(result, Granted) and bool(result.grants)
        if waiting.gone:
            if isinstance(result, Granted) and granted and not self._came_again(waiting.want):
                offsets = [grant.offset for grant in result.grants]
                deliveries = [(result.delivery, offsets)]
                self.submit(Settled(waiting.want.group, RELEASE, deliveries), None)
            return []
        if granted or isinstance(result, UnknownGroup | StaleResult):
            return [(waiting.ticket, result)]
        self._waiting.setdefault(waiting.want.group, deque()).appendleft(waiting)
        return []

    def _came_again(self, want: Want) -> bool:
        """Whether the same request waits once more: it will be granted the same."""
        queued = (*self._waiting.get(want.group, ()), *self._flying)
        return want.request != 0 and any(w.want.request == want.request for w in queued)

    def _has_waiting(self) -> bool:
        return self.watched or any(self._waiting.values())


def _refusal(group: GroupState) -> GoQueueError | None:
    if group.halted:
        return GroupHalted(f"group {group.name} is halted: {group.halted}", group=group.name)
    if group.is_full:
        return TooManyInFlight(
            f"group {group.name} has {len(group.leases)} messages in flight in this partition",
            limit=group.config.in_flight_max,
        )
    return None


_KINDS: dict[type, str] = {
    Configure: "settings",
    OpenGroup: "opening",
    Expired: "expired",
    Tick: "tick",
    Delivered: "delivered",
    DeliveredToStream: "delivered",
    RequireArchive: "archive",
    StreamsEnded: "streams",
}
