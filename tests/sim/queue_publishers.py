"""Who fills the queue of the simulated cluster, and who tends to it."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from delivery.entries import ops
from goqueue.wire.batch import RecordBatch, encode_columns
from goqueue.wire.types import NodeId
from tests.check.queuemodel import DEAD, Group
from tests.sim.queue_requests import Ask, Done
from tests.sim.repeated import Repeated
from tests.sim.requests import Publish, Stored

if TYPE_CHECKING:
    from tests.sim.queue_work import QueueWork

REQUEST_S = 0.001
DELAYS_MS = (0, 0, 0, 60, 400, 2000, 3_600_000)
"""The longest outlives the run, whatever clocks do."""
TTLS_MS = (0, 0, 0, 0, 0, 700)
IDS = 12
"""Message ids that a publisher chooses from: most of them come again."""
KEYS = (None, "a", "b", "c")


@dataclass(frozen=True, slots=True)
class Row:
    """One message to be published."""

    value: str
    lane: int = 2
    key: str | None = None
    message_id: str | None = None
    delay_ms: int = 0
    ttl_ms: int = 0


class QueuePublisher:
    """Publishes messages of all kinds; those with an id again and again, under new requests."""

    def __init__(self, work: QueueWork, number: int, rng: random.Random) -> None:
        self._work = work
        self._rng = rng
        self._number = number
        self._count = 0
        self._flying = 0
        self._pause_s = rng.choice((0.1, 0.2, 0.4))

    def __str__(self) -> str:
        return f"queue publisher {self._number}"

    @property
    def idle(self) -> bool:
        return not self._flying

    def start(self) -> None:
        self._work.world.loop.call_later(self._rng.uniform(0, 0.3), self._publish)

    def _publish(self) -> None:
        world = self._work.world
        if world.is_quiet:
            return
        if self._flying < 3:
            self._send(self._rows())
        world.loop.call_later(self._pause_s * self._rng.uniform(0.2, 2.0), self._publish)

    def _rows(self) -> list[Row]:
        return [self._row() for _ in range(self._rng.choice((1, 1, 2, 4)))]

    def _row(self) -> Row:
        rng = self._rng
        if rng.random() < 0.3:
            name = f"id{self._number}-{rng.randrange(IDS)}"
            return Row(f"q-{name}", message_id=name)
        self._count += 1
        return Row(
            f"q{self._number}-{self._count}",
            lane=rng.choice((0, 1, 2, 2, 2, 3, 4)),
            key=rng.choice(KEYS),
            delay_ms=rng.choice(DELAYS_MS),
            ttl_ms=rng.choice(TTLS_MS),
        )

    def _send(self, rows: list[Row]) -> None:
        world, history, partition_id = self._work.world, self._work.history, self._work.partition_id
        numbers = [
            history.publish(
                row.value,
                partition=0,
                lane=row.lane,
                key=row.key,
                message_id=row.message_id,
                delay_ms=row.delay_ms,
                ttl_ms=row.ttl_ms,
            )
            for row in rows
        ]
        batch = _encode(rows)
        request = self._rng.getrandbits(64) | 1
        self._flying += 1

        def send(node: NodeId, reply: Callable[[object], None]) -> None:
            world.ask(node, Publish(partition_id, batch, request, reply), REQUEST_S)

        def ended(answer: object | None, in_doubt: bool) -> None:
            self._flying -= 1
            if isinstance(answer, Stored):
                for number, (offset, duplicate) in zip(numbers, answer.each(), strict=True):
                    history.published(number, 0, offset, duplicate=duplicate)
            else:
                for number in numbers:
                    history.unpublished(number, in_doubt=in_doubt)

        tries = self._rng.choice((0, 0, 2))
        Repeated(world, self._rng, send, ended, tries=tries).go()


class QueueAdmin:
    """Cancels delayed messages, redrives and purges dead ones."""

    def __init__(self, work: QueueWork, rng: random.Random) -> None:
        self._work = work
        self._rng = rng
        self._busy = False

    def __str__(self) -> str:
        return "queue admin"

    @property
    def idle(self) -> bool:
        return not self._busy

    def start(self) -> None:
        self._work.world.loop.call_later(self._rng.uniform(0.2, 0.6), self._next)

    def _next(self) -> None:
        work, rng = self._work, self._rng
        if work.world.is_quiet:
            return
        if not self._busy and work.log.groups:
            rng.choice((self._cancel, self._cancel, self._redrive, self._redrive, self._purge))()
        work.world.loop.call_later(rng.uniform(0.1, 0.6), self._next)

    def _cancel(self) -> None:
        """One of the newest delayed messages, due or not."""
        work = self._work
        delayed = [o for o, m in work.log.messages.items() if m.due_ms and work.knows(o)][-8:]
        if not delayed:
            return
        offset = self._rng.choice(delayed)
        number = work.history.cancel(0, offset)

        def ended(answer: object | None, in_doubt: bool) -> None:
            outcome = "unknown"
            if isinstance(answer, Done) and isinstance(answer.result, ops.CodesResult):
                if answer.result.codes == [ops.OK]:
                    outcome = "cancelled"
                elif not in_doubt:  # else an earlier try may have cancelled it
                    outcome = "refused"
                if outcome == "cancelled" and offset not in work.log.cancelled:
                    work.world.checks.violated(f"Q3: {offset} was said to be cancelled")
            work.history.cancelled(number, outcome)

        self._ask(ops.Cancelled([offset]), ended)

    def _redrive(self) -> None:
        group, dead = self._dead()
        if dead:
            self._work.history.redrive(group.name)
            self._ask(ops.Redriven(group.id, dead, job=1), _ignore)

    def _purge(self) -> None:
        group, dead = self._dead()
        if dead and self._rng.random() < 0.3:
            self._work.history.purge(group.name)
            self._ask(ops.Purged(group.id, dead), _ignore)

    def _dead(self) -> tuple[Group, list[int]]:
        """A group that has dead letters, and some of them."""
        group = self._rng.choice(list(self._work.log.groups.values()))
        dead = group.of(DEAD)
        return group, self._rng.sample(dead, min(len(dead), 3))

    def _ask(self, op: ops.Op, ended: Callable[[object | None, bool], None]) -> None:
        work = self._work
        self._busy = True

        def send(node: NodeId, reply: Callable[[object], None]) -> None:
            work.world.ask_queue(node, Ask(work.partition_id, reply, op=op))

        def done(answer: object | None, in_doubt: bool) -> None:
            self._busy = False
            ended(answer, in_doubt)

        tries = self._rng.choice((0, 1))
        Repeated(work.world, self._rng, send, done, tries=tries).go()


def _encode(rows: list[Row]) -> RecordBatch:
    """Delays and lives are relative to the log time of the entry."""
    return RecordBatch.parse(
        encode_columns(
            [row.value.encode() for row in rows],
            [None if row.key is None else row.key.encode() for row in rows],
            lanes=[row.lane for row in rows],
            deliver_at_ms=[row.delay_ms or None for row in rows],
            expires_at_ms=[row.ttl_ms or None for row in rows],
            message_ids=[row.message_id for row in rows],
        )
    )


def _ignore(_answer: object | None, _in_doubt: bool) -> None:
    return None
