"""Bugs of the queue, by what they replace: its state, a group, the leader's dispatcher."""

from __future__ import annotations

from typing import Any

import msgspec

from delivery.config import GroupConfig
from delivery.dedup.flights import Flights
from delivery.dedup.message_ids import MessageIds
from delivery.entries.ops import (
    ACK,
    OK,
    RELEASE,
    Committed,
    CountResult,
    Delivered,
    Granted,
    OpenGroup,
    Redriven,
    Result,
    Settle,
    Settled,
    SettledResult,
    Sought,
    SoughtResult,
    StaleResult,
)
from delivery.group.attempts import Attempts
from delivery.group.failures import Failures
from delivery.group.leases import Leases
from delivery.group.operations import GroupOperations
from delivery.group.rules import TIMED_OUT
from delivery.group.state import GroupState
from delivery.leader.appender import Appender
from delivery.leader.dispatcher import Dispatcher, Proposal
from delivery.state.partition import PartitionState
from delivery.state.queue import QueueState
from goqueue.wire.types import Offset
from log.entry import Entry

EARLY_MS = 50


class Altered(PartitionState):
    """A state whose queue, groups and operations are of these types, wherever they come from."""

    queue_type: type[QueueState] = QueueState
    group_type: type[GroupState] = GroupState
    operations_type: type[GroupOperations] = GroupOperations

    def __init__(self) -> None:
        super().__init__()
        self._alter()

    def apply(self, entry: Entry) -> Any:
        result = super().apply(entry)
        self._alter()
        return result

    def restore(self, state: bytes) -> None:
        super().restore(state)
        self._alter()

    def _alter(self) -> None:
        self.queue.__class__ = self.queue_type
        self.queue.operations = self.operations_type  # type: ignore[method-assign]
        for group in self.queue.groups.values():
            group.__class__ = self.group_type


# -- delays


class _DueEarlier(QueueState):
    """Delayed messages are due a little before their time."""

    def _hide(self, base: int, deliver_at: list[int | None], time_ms: int) -> None:
        sooner = [None if given is None else max(0, given - EARLY_MS) for given in deliver_at]
        super()._hide(base, sooner, time_ms)


class EarlyDelay(Altered):
    queue_type = _DueEarlier


class _DueByTheWall(QueueState):
    """What is due is judged by the clock of the machine."""

    wall_ms: Any = None

    def advance(self, now_ms: int) -> None:
        super().advance(now_ms if self.wall_ms is None else self.wall_ms())


class DelayByWallClock(Altered):
    """`wall_ms` is the clock of the machine that the replica runs on."""

    queue_type = _DueByTheWall
    wall_ms: Any = None

    def _alter(self) -> None:
        super()._alter()
        self.queue.wall_ms = self.wall_ms  # type: ignore[attr-defined]


class _CancelsWhatIsDue(QueueState):
    """A cancel is always said to have come in time."""

    def _cancel_code(self, offset: int) -> int:
        return OK if offset in self.delayed_ever else super()._cancel_code(offset)


class CancelledAndDelivered(Altered):
    queue_type = _CancelsWhatIsDue


class _TrimsAnything(QueueState):
    """What is delayed or dead goes with the log."""

    def needed_below(self, offset: int) -> list[int]:
        return []

    def may_trim(self, index: int, offset: int) -> bool:
        return True


class TrimmedWhileDelayed(Altered):
    queue_type = _TrimsAnything


# -- dead letters and attempts


class _DiesTwice(Attempts):
    """A dead letter stays in the queue."""

    def kill(self, offset: int, reason: str, now_ms: int) -> str:
        outcome = super().kill(offset, reason, now_ms)
        if outcome == "dead":
            self.group.make_ready(offset, now_ms)
        return outcome


class _OperationsThatKillTwice(GroupOperations):
    attempts_type = _DiesTwice


class DeadTwice(Altered):
    operations_type = _OperationsThatKillTwice


class _KeepsRedriven(GroupOperations):
    """What is redriven is still listed as dead."""

    def redrive(self, op: Redriven, now_ms: int) -> Any:
        dead = self.group.dead
        before = {offset: dead[offset] for offset in op.offsets if offset in dead}
        result = super().redrive(op, now_ms)
        self.group.dead = before | dead
        return result


class RedrivenAndDead(Altered):
    operations_type = _KeepsRedriven


class _ForgivesExpiry(Attempts):
    """A lease that runs out is no attempt."""

    def fail(
        self, offset: int, reason: str, now_ms: int, delay_ms: int, to_back: bool
    ) -> tuple[str, int]:
        if reason != TIMED_OUT:
            return super().fail(offset, reason, now_ms, delay_ms, to_back)
        self.group.make_ready(offset, now_ms)
        return "requeued", now_ms


class _OperationsThatForgiveExpiry(GroupOperations):
    attempts_type = _ForgivesExpiry


class ExpiryUncounted(Altered):
    operations_type = _OperationsThatForgiveExpiry


# -- leases and settles


class _TakesOldReceipts(GroupOperations):
    """A receipt is good as long as its message is in flight, for whomever."""

    def _lease_of(self, delivery: int, offset: int) -> Settle | None:
        return None if offset in self.group.leases else super()._lease_of(delivery, offset)


class ExpiredSettles(Altered):
    operations_type = _TakesOldReceipts


class _TakesForeignReceipts(GroupOperations):
    """A receipt of any group is good: nobody looks whose it is."""

    def settle(self, op: Settled, now_ms: int) -> SettledResult:
        for group in self.group.stored.groups.values():  # type: ignore[attr-defined]
            if any(group.leases.of_delivery(delivery) for delivery, _ in op.deliveries):
                return GroupOperations(group).settle(op, now_ms)
        return super().settle(op, now_ms)


class ForeignReceipts(Altered):
    operations_type = _TakesForeignReceipts


class _CommitsComeTwice(QueueState):
    """A commit or a seek that comes again under its request id is done again."""

    def _apply(self, op: Any, index: int, time_ms: int) -> Result:
        if isinstance(op, Committed | Sought):
            op = msgspec.structs.replace(op, request=0)
        return super()._apply(op, index, time_ms)


class CommitsComeTwice(Altered):
    queue_type = _CommitsComeTwice


class LeasesNotInSnapshot(Altered):
    """Who restarts from a snapshot knows of no lease, and delivers again."""

    def restore(self, state: bytes) -> None:
        super().restore(state)
        for group in self.queue.groups.values():
            for offset in list(group.leases):
                group.make_ready(offset, self.time_ms)
            group.leases = Leases()


class AttemptsNotInSnapshot(Altered):
    """Who restarts from a snapshot counts attempts from one."""

    def restore(self, state: bytes) -> None:
        super().restore(state)
        for group in self.queue.groups.values():
            group.failures = Failures()


class LeasesDroppedAtFailover(Dispatcher[Any]):
    """A new leader gives back what is in flight: it does not know its holders."""

    def __init__(self, state: PartitionState) -> None:
        super().__init__(state)
        for group in state.queue.groups.values():
            deliveries: dict[int, list[int]] = {}
            for offset in list(group.leases):
                lease = group.leases.get(offset)
                if lease is not None:
                    deliveries.setdefault(lease.delivery, []).append(offset)
            if deliveries:
                self.submit(Settled(group.id, RELEASE, list(deliveries.items())), None)


class SettleAnsweredEarly(Dispatcher[Any]):
    """An ack is answered when it is proposed."""

    def collect(self, now_ms: int) -> Proposal[Any] | None:
        proposal = super().collect(now_ms)
        for sent in [] if proposal is None else proposal.sent:
            if isinstance(sent.op, Settled) and sent.op.action == ACK and sent.ticket is not None:
                assert proposal is not None
                proposal.answers.append((sent.ticket, _acked(sent.op)))  # type: ignore[arg-type]
        return proposal


class AckInMemory(Dispatcher[Any]):
    """An ack changes what the leader remembers, and nothing else."""

    def submit(self, op: Any, ticket: Any) -> None:
        group = self._state.queue.groups.get(getattr(op, "group", 0))
        if isinstance(op, Settled) and op.action == ACK and group is not None:
            GroupOperations(group).settle(op, self._state.time_ms)
            self._early = [*getattr(self, "_early", []), (ticket, _acked(op))]
        else:
            super().submit(op, ticket)

    def collect(self, now_ms: int) -> Proposal[Any] | None:
        early, self._early = getattr(self, "_early", []), []
        proposal = super().collect(now_ms)
        if early:
            proposal = proposal or Proposal()
            proposal.answers += early
        return proposal


def _acked(op: Settled) -> SettledResult:
    settles = [Settle(OK, "acked", 1) for _, offsets in op.deliveries for _ in offsets]
    return SettledResult(settles, 0, False, 0)


class _RemembersNothing(QueueState):
    """A receive that was granted nothing is remembered as such, and repeated as such."""

    def _apply(self, op: Any, index: int, time_ms: int) -> Result:
        result = super()._apply(op, index, time_ms)
        if isinstance(op, Delivered) and op.request and isinstance(result, Granted):
            self.results.remember(op.request, time_ms, result)
        return result


class EmptyGrantRemembered(Altered):
    queue_type = _RemembersNothing


# -- order


class _OneCursor(GroupState):
    """What was delivered is one offset, whatever the lane: below it nothing is looked for."""

    def select(self, limit: int, now_ms: int, lowest_lane: int = 4) -> list[int]:
        cursor = getattr(self, "cursor", -1)
        return [offset for offset in super().select(limit, now_ms) if offset > cursor]


class _MovesTheCursor(GroupOperations):
    def deliver(self, op: Delivered, delivery: int, now_ms: int) -> Granted | StaleResult:
        group: Any = self.group
        group.cursor = max(getattr(group, "cursor", -1), *op.offsets)
        return super().deliver(op, delivery, now_ms)


class LaneSkip(Altered):
    group_type = _OneCursor
    operations_type = _MovesTheCursor


class _InOffsetOrder(GroupState):
    """Lanes are not looked at."""

    def select(self, limit: int, now_ms: int, lowest_lane: int = 4) -> list[int]:
        return sorted(super().select(10_000, now_ms))[:limit]


class LanesIgnored(Altered):
    group_type = _InOffsetOrder


class _InOffsetOrderOnceSought(GroupState):
    """Where a group was sought, lanes are not looked at."""

    sought = False

    def select(self, limit: int, now_ms: int, lowest_lane: int = 4) -> list[int]:
        found = super().select(10_000 if self.sought else limit, now_ms)
        return sorted(found)[:limit] if self.sought else found


class _NotesSeeks(GroupOperations):
    def seek(self, op: Sought, now_ms: int) -> SoughtResult | StaleResult:
        group: Any = self.group
        group.sought = True
        return super().seek(op, now_ms)


class LanesForgottenBySeeks(Altered):
    group_type = _InOffsetOrderOnceSought
    operations_type = _NotesSeeks


class _DelayedOutliveCommits(GroupOperations):
    """A commit settles what is there, and not what is delayed before it."""

    def commit(self, op: Committed) -> CountResult | StaleResult:
        base = self.group.base
        result = super().commit(op)
        self.group.base = base
        return result


class DelayedOutliveCommits(Altered):
    operations_type = _DelayedOutliveCommits


class _KeyGoesOn(Attempts):
    """A key's next message comes when the one before has failed once."""

    def fail(
        self, offset: int, reason: str, now_ms: int, delay_ms: int, to_back: bool
    ) -> tuple[str, int]:
        found = super().fail(offset, reason, now_ms, delay_ms, to_back)
        if self.group.order is not None:
            self.group.follow(offset)
        return found


class _OperationsThatLetKeysGoOn(GroupOperations):
    attempts_type = _KeyGoesOn


class KeyGoesOn(Altered):
    operations_type = _OperationsThatLetKeysGoOn


# -- settings and ids


class _TakesAnyVersion(QueueState):
    """A group's settings are those that were put last, though they be older."""

    def _apply(self, op: Any, index: int, time_ms: int) -> Result:
        group = self.groups.get(op.group) if isinstance(op, OpenGroup) else None
        if group is None:
            return super()._apply(op, index, time_ms)
        self.operations(group).configure(op.version, op.config)
        return None


class AnyVersion(Altered):
    queue_type = _TakesAnyVersion


class PutsAnyVersion(Dispatcher[Any]):
    """A leader puts the settings that it knows, though the partition has newer ones."""

    def open_group(
        self, id: int, name: str, version: int, config: GroupConfig, offset: int
    ) -> None:
        self.submit(OpenGroup(id, name, version, config, offset), None)


class RepeatsChoose(Dispatcher[Any]):
    """Messages are chosen for a receive that will be told what it was granted before."""

    def _repeats(self, group: Any, queued: Any) -> dict[Any, bool]:
        return {}


class IdsForgottenAtFailover(Appender):
    """A new leader knows the message ids of its own time only."""

    def __init__(self, state: PartitionState, **options: Any) -> None:
        super().__init__(state, **options | {"verify": self._is_mine})
        self._led_from = state.next_offset

    def _is_mine(self, offset: Offset, _message_id: str) -> bool:
        return offset >= self._led_from


class _KnowsNoIds(Flights):
    """What is in flight is not known by its ids."""

    def board_ids(self, *_boarded: object) -> None:
        return None


class IdsInFlightIgnored(Appender):
    """Message ids are known once they are stored."""

    def __init__(self, state: PartitionState, **options: Any) -> None:
        super().__init__(state, **options)
        self._flights = _KnowsNoIds()


class IdsNotInSnapshot(PartitionState):
    """Who restarts from a snapshot knows no message ids."""

    def restore(self, state: bytes) -> None:
        super().restore(state)
        self.message_ids = MessageIds()
