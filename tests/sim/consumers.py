"""Consumers of the simulated cluster: they receive, settle in every way, vanish, and come late."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from delivery.entries import ops
from delivery.leader.dispatcher import Want
from goqueue.wire.types import NodeId
from tests.sim.queue_requests import Ask, Done
from tests.sim.repeated import Repeated

if TYPE_CHECKING:
    from tests.sim.queue_work import QueueWork
    from tests.sim.work import GroupSpec

ACTIONS = {
    ops.ACK: "ack",
    ops.NACK: "nack",
    ops.REJECT: "reject",
    ops.EXTEND: "extend",
    ops.RELEASE: "release",
}
CHOICES = (ops.ACK,) * 10 + (ops.NACK,) * 4 + (ops.REJECT, ops.EXTEND, ops.RELEASE)
CALM_LIMIT = 100
LEAVES = 0.25
LEAVES_S = (0.003, 0.05)
"""How many receives are given up so soon, as by a client that goes: what they are granted is given
back, also where the answer was lost between two nodes."""
OLD_MAX = 20
"""Receipts that a consumer keeps to settle them once more, too late."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """A lease, as a client holds it."""

    group: int
    delivery: int
    offset: int

    @property
    def text(self) -> str:
        return f"{self.group}.{self.delivery}.{self.offset}"


class Consumer:
    """A member of one group. While faults strike it fails in all the ways that there are; once
    all is quiet it acks whatever it is given."""

    def __init__(self, work: QueueWork, number: int, spec: GroupSpec, rng: random.Random) -> None:
        self._work = work
        self._number = number
        self._spec = spec
        self._rng = rng
        self._settling = 0
        self._held = 0
        """Messages that it works on."""
        self._noted: set[Receipt] = set()
        """Those that the history knows."""
        self._old: list[Receipt] = []
        self._is_recorded = work.is_recorded(spec)
        self._limit = rng.choice((1, 3, 10))
        self._slowness_s = rng.choice((0.02, 0.1, 0.3))

    def __str__(self) -> str:
        return f"consumer {self._number} of {self._spec.name}"

    @property
    def idle(self) -> bool:
        return not self._settling and not self._held

    @property
    def _is_calm(self) -> bool:
        return self._work.world.is_quiet

    def start(self) -> None:
        self._work.world.loop.call_later(self._rng.uniform(0.05, 0.4), self._receive)

    # receiving

    def _receive(self) -> None:
        work, rng = self._work, self._rng
        world, sent = work.world, work.history.now()
        visibility_ms = rng.choice((None, None, None, 2 * self._spec.config.visibility_ms))
        request = rng.getrandbits(64) | 1
        limit = CALM_LIMIT if self._is_calm else self._limit
        want = Want(self._spec.id, f"c{self._number}", limit, visibility_ms, request)
        wait_s = rng.choice((0.0, 0.3, 1.0))
        asks: list[tuple[NodeId, Ask]] = []

        def send(node: NodeId, reply: Callable[[object], None]) -> None:
            asks.append((node, Ask(work.partition_id, reply, want=want, wait_s=wait_s)))
            world.ask_queue(*asks[-1])

        def ended(answer: object | None, _in_doubt: bool) -> None:
            result = answer.result if isinstance(answer, Done) else None
            grants = result.grants if isinstance(result, ops.Granted) else []
            if self._is_recorded and (not grants or len(asks) > 1):
                work.history.unreceived(self._spec.name, sent=sent)
            if result is None:
                for node, ask in asks:
                    world.withdraw(node, ask)
                self._pause(0.05)
            elif isinstance(result, ops.Granted):
                self._received(result, sent, wait_s)
            else:
                self._pause(0.1)  # the group is not open yet

        tries = rng.choice((1, 2, 0))
        asking = Repeated(world, rng, send, ended, tries=tries, wait_s=wait_s)
        asking.go()
        if not self._is_calm and rng.random() < LEAVES:
            world.loop.call_later(rng.uniform(*LEAVES_S), asking.give_up)

    def _pause(self, seconds: float) -> None:
        self._work.world.loop.call_later(seconds, self._receive)

    def _received(self, granted: ops.Granted, sent: float, wait_s: float) -> None:
        work = self._work
        receipts = [Receipt(self._spec.id, granted.delivery, g.offset) for g in granted.grants]
        work.world.timelines.told_granted(
            work.partition_id, self._spec.id, f"c{self._number}", granted
        )
        for receipt, grant in zip(receipts, granted.grants, strict=True):
            self._note(receipt, grant, sent)
        if receipts:
            self._held += 1
            self._work.world.loop.call_later(self._work_s(), self._done, receipts)
        else:
            self._pause(0.02 if wait_s else 0.3)

    def _note(self, receipt: Receipt, grant: ops.Grant, sent: float) -> None:
        work, offset = self._work, grant.offset
        work.told_granted(receipt.group, receipt.delivery, offset)
        message = work.log.messages.get(offset)
        if message is not None and work.knows(offset) and self._is_recorded:
            self._noted.add(receipt)
            work.history.received(
                self._spec.name,
                sent=sent,
                partition=0,
                offset=offset,
                value=work.values[offset].decode(),
                lane=message.lane,
                key=None if message.key is None else message.key.decode(),
                attempt=grant.attempt,
                reason=grant.reason,
                redrives=grant.redrives,
                receipt=receipt.text,
            )

    def _work_s(self) -> float:
        return 0.001 if self._is_calm else self._slowness_s * self._rng.uniform(0.1, 2.0)

    # settling

    def _done(self, receipts: list[Receipt]) -> None:
        """Settle them by groups of one action, or forget them, and go on."""
        rng = self._rng
        self._held -= 1
        by_action: dict[int, list[Receipt]] = {}
        for receipt in receipts:
            action = ops.ACK if self._is_calm else rng.choice(CHOICES)
            if not self._is_calm and rng.random() < 0.08:
                self._old = [*self._old[-OLD_MAX:], receipt]
            else:
                by_action.setdefault(action, []).append(receipt)
        for action, chosen in by_action.items():
            self._settle(action, chosen)
        if self._old and not self._is_calm and rng.random() < 0.3:
            self._settle_late()
        self._receive()

    def _settle_late(self) -> None:
        """A receipt of long ago, or one that another group was given."""
        receipt = self._rng.choice(self._old)
        if self._rng.random() < 0.2:
            other = 1 + receipt.group % 3
            if (other, receipt.delivery, receipt.offset) in self._work.log.granted:
                return  # one entry delivered to both: it would be a sound receipt, stolen
            receipt = Receipt(other, receipt.delivery, receipt.offset)
        self._settle(self._rng.choice((ops.ACK, ops.NACK, ops.EXTEND)), [receipt])

    def _settle(self, action: int, receipts: list[Receipt]) -> None:
        work, rng = self._work, self._rng
        op = self._settled(action, receipts)
        numbers = [self._begun(action, op.reason, receipt) for receipt in receipts]
        self._settling += 1

        def send(node: NodeId, reply: Callable[[object], None]) -> None:
            work.world.ask_queue(node, Ask(work.partition_id, reply, op=op))

        def ended(answer: object | None, _in_doubt: bool) -> None:
            self._settling -= 1
            result = answer.result if isinstance(answer, Done) else None
            settles = result.settles if isinstance(result, ops.SettledResult) else None
            for at, (number, receipt) in enumerate(zip(numbers, receipts, strict=True)):
                self._told(number, receipt, action, None if settles is None else settles[at])
            if action == ops.EXTEND and settles is not None and not self._is_calm:
                self._old = [*self._old[-OLD_MAX:], *receipts]

        tries = rng.choice((0, 0, 0, 1, 3))
        Repeated(work.world, rng, send, ended, tries=tries).go()

    def _settled(self, action: int, receipts: list[Receipt]) -> ops.Settled:
        rng = self._rng
        deliveries: dict[int, list[int]] = {}
        for receipt in receipts:
            deliveries.setdefault(receipt.delivery, []).append(receipt.offset)
        failing = action in (ops.NACK, ops.REJECT)
        return ops.Settled(
            receipts[0].group,
            action,
            list(deliveries.items()),
            reason=f"r{rng.randrange(1000)}" if failing else "",
            delay_ms=rng.choice((-1, 0, 0, 300)) if action == ops.NACK else -1,
            to_back=action == ops.NACK and rng.random() < 0.3,
            visibility_ms=rng.choice((50, 500)) if action == ops.EXTEND else 0,
            request=rng.getrandbits(64) | 1,
        )

    def _begun(self, action: int, reason: str, receipt: Receipt) -> int:
        """The number of the settle in the history; 0 for one that is not in it."""
        if receipt not in self._noted:
            return 0
        return self._work.history.settle(self._spec.name, receipt.text, ACTIONS[action], reason)

    def _told(self, number: int, receipt: Receipt, action: int, found: ops.Settle | None) -> None:
        if found is not None and found.code == ops.OK:
            self._work.told_settled(receipt.group, receipt.delivery, receipt.offset, action)
        if number:
            outcome = "unknown" if found is None else found.outcome or "refused"
            self._work.history.settled(number, outcome)


class Committer:
    """It commits in a group, and sometimes seeks, whatever others have in flight there."""

    def __init__(self, work: QueueWork, group: int, rng: random.Random) -> None:
        self._work = work
        self._group = group
        self._rng = rng

    def start(self) -> None:
        self._work.world.loop.call_later(self._rng.uniform(0.3, 0.8), self._next)

    def _next(self) -> None:
        work, rng = self._work, self._rng
        if work.world.is_quiet:
            return
        end = max(work.log.messages, default=0)
        offset = rng.randrange(end + 2)
        op = (ops.Committed if rng.random() < 0.8 else ops.Sought)(self._group, offset)

        def send(node: NodeId, reply: Callable[[object], None]) -> None:
            work.world.ask_queue(node, Ask(work.partition_id, reply, op=op))

        Repeated(work.world, rng, send, _ignore, tries=2).go()
        work.world.loop.call_later(rng.uniform(0.2, 1.0), self._next)


def _ignore(_answer: object | None, _in_doubt: bool) -> None:
    return None
