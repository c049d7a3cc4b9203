"""A group in one partition, in memory, for the fake broker: leases, attempts, lanes, dead letters.

It is the queue's meaning at its plainest: every question walks the log from the group's floor.
Lanes are strict here: the bound on waiting is the real queue's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from delivery.config import GroupConfig
from delivery.entries.ops import StaleResult
from delivery.group.rules import FENCED
from delivery.group.state import Owner
from goqueue.wire.batch import LANES
from goqueue.wire.errors import NotInFlight, ReceiptExpired, StaleGeneration
from goqueue.wire.types import Offset
from node.api.claims import Claim
from node.api.figures import GroupPartitionView
from node.api.queue import SettleRequest
from node.http.fake.log import FakeLog, FakeRecord
from node.partition.queue import stale_generation

REASON_TIMEOUT = "visibility timeout"


@dataclass(slots=True)
class FakeLease:
    delivery: int
    deadline_ms: int
    member: str


@dataclass(slots=True)
class FakeDead:
    died_ms: int
    attempts: int
    reason: str
    history: list[tuple[int, str]]
    redrives: int


@dataclass(frozen=True, slots=True)
class FakeSettle:
    outcome: str
    attempts: int
    visible_at_ms: int
    advanced: bool


class FakeGroup:
    """Where one group stands in one partition."""

    def __init__(self, log: FakeLog, config: GroupConfig, clock_ms: Callable[[], int]) -> None:
        self.log = log
        self.config = config
        self.committed_offset = log.partition.next if config.start == "latest" else 0
        self.halted = ""
        self.owner = Owner()
        self.leases: dict[int, FakeLease] = {}
        self.dead: dict[int, FakeDead] = {}
        self.parked: set[bytes] = set()
        self.redrives: Counter[int] = Counter()
        self.counters: Counter[str] = Counter()
        self.waited_ms, self.waits = [0] * len(LANES), [0] * len(LANES)
        self._clock_ms = clock_ms
        self._settled: set[int] = set()
        self._attempts: Counter[int] = Counter()
        self._history: dict[int, list[tuple[int, str]]] = {}
        self._visible_at_ms: dict[int, int] = {}
        self._behind: dict[int, int] = {}
        self._finished: dict[tuple[int, int], bool] = {}

    # owning

    def own(self, member: str, generation: int, since: int, *, fence: bool) -> int:
        """Give the partition to a member unless somebody newer has it; how many leases it ended.

        `since` is a delivery's number: receipts of those before it are stale.
        """
        self.expire()
        owner = self.owner
        if generation <= owner.generation:
            return 0
        ended: list[int] = []
        if member != owner.member:
            ended = [offset for offset, lease in self.leases.items() if lease.member != member]
        self.owner = Owner(member, generation, owner.since if member == owner.member else since)
        for offset in ended:
            lease = self.leases.pop(offset)
            self._finished[offset, lease.delivery] = False
            if fence:
                self._fail(offset, None, FENCED, final=False)
            else:
                self._attempts[offset] -= 1
        return len(ended)

    def is_owned_by(self, claim: Claim) -> bool:
        return self.owner.admits(claim.member, claim.generation)

    def stale(self) -> StaleGeneration:
        """Why somebody else may not act here."""
        return stale_generation(StaleResult(0, self.owner.member, self.owner.generation))

    # taking

    def select(self, limit: int) -> list[FakeRecord]:
        """What would be delivered next, in order."""
        self.expire()
        ready = [record for record in self._unsettled() if self._is_ready(record)]
        if self.config.ordering == "key":
            firsts: dict[bytes, int] = {}
            for record in self._unsettled():
                if record.key is not None and record.offset in self.leases:
                    firsts[record.key] = record.offset
            for record in self._unsettled():
                due = record.deliver_at_ms is None or record.deliver_at_ms <= self._clock_ms()
                if record.key is not None and due:
                    firsts.setdefault(record.key, record.offset)
            ready = [r for r in ready if r.key is None or firsts[r.key] == r.offset]
        ready.sort(key=lambda r: (r.lane, self._behind.get(r.offset, -1), r.offset))
        return ready[:limit]

    def lease(self, records: Sequence[FakeRecord], delivery: int, member: str, ms: int) -> int:
        """The deadline of the new leases."""
        deadline_ms = self._clock_ms() + ms
        for record in records:
            self.leases[record.offset] = FakeLease(delivery, deadline_ms, member)
            self._attempts[record.offset] += 1
            self.waited_ms[record.lane] += self._ready_for_ms(record)
            self.waits[record.lane] += 1
            self.counters["delivered"] += 1
            if self._attempts[record.offset] > 1:
                self.counters["redelivered"] += 1
        return deadline_ms

    def attempts(self, offset: int) -> int:
        return self._attempts[offset]

    def last_reason(self, offset: int) -> str:
        history = self._history.get(offset)
        return history[-1][1] if history else ""

    # settling

    def settle(self, offset: int, delivery: int, wanted: SettleRequest) -> FakeSettle:
        """Raises NotInFlight, ReceiptExpired, StaleGeneration."""
        self.expire()
        lease = self.leases.get(offset)
        if lease is None or lease.delivery != delivery:
            if delivery < self.owner.since:
                raise self.stale()
            settled = self._finished.get((offset, delivery), True)
            raise NotInFlight if settled else ReceiptExpired
        now_ms, attempts = self._clock_ms(), self._attempts[offset]
        if wanted.action == "extend":
            lease.deadline_ms = now_ms + wanted.visibility_ms
            self.counters["extended"] += 1
            return FakeSettle("extended", attempts, lease.deadline_ms, False)
        del self.leases[offset]
        self._finished[offset, delivery] = True
        committed_offset = self.committed_offset
        if wanted.action == "ack":
            self._settled.add(offset)
            self.counters["acked"] += 1
            self._advance()
            return FakeSettle("acked", attempts, 0, self.committed_offset > committed_offset)
        if wanted.action == "release":
            self._attempts[offset] -= 1
            return FakeSettle("released", attempts - 1, now_ms, False)
        self.counters["nacked" if wanted.action == "nack" else "rejected"] += 1
        outcome = self._fail(offset, wanted, wanted.reason, final=wanted.action == "reject")
        visible_at_ms = 0 if outcome == "dead" else max(now_ms, self._visible_at_ms.get(offset, 0))
        return FakeSettle(
            outcome, attempts, visible_at_ms, self.committed_offset > committed_offset
        )

    def commit(self, offset: int) -> None:
        for settled in range(self.committed_offset, min(offset, self.log.partition.next)):
            self._settled.add(settled)
            self.leases.pop(settled, None)
        self._advance()

    def seek(self, offset: int) -> None:
        self.commit(offset)
        self.committed_offset = offset
        self._settled = {dead for dead in self.dead if dead >= offset}
        for known in (self.leases, self._attempts, self._visible_at_ms, self._history):
            for later in [found for found in known if found >= offset]:
                del known[later]

    def expire(self) -> None:
        """End the leases whose deadline has passed."""
        now_ms = self._clock_ms()
        for offset, lease in list(self.leases.items()):
            if lease.deadline_ms <= now_ms:
                del self.leases[offset]
                self._finished[offset, lease.delivery] = False
                self.counters["expired"] += 1
                self._fail(offset, None, REASON_TIMEOUT, final=False)

    # dead letters

    def revive(self, offset: int) -> None:
        self.redrives[offset] += 1
        del self.dead[offset]
        self._settled.update(range(offset, self.committed_offset))
        self._settled.discard(offset)
        self._attempts.pop(offset, None)
        self.committed_offset = min(self.committed_offset, offset)

    def purge(self, offset: int) -> None:
        del self.dead[offset]

    def pending(self) -> set[int]:
        """What is not settled, due or not."""
        return {record.offset for record in self._unsettled()}

    def stored(self) -> set[int]:
        """All that may be delivered, now or later or again."""
        now_ms = self._clock_ms()
        return {r.offset for r in self.log.records() if not self.log.gone(r, now_ms)}

    def oldest_ms(self) -> int:
        """For how long the oldest message that is due and not settled could have been taken."""
        now_ms = self._clock_ms()
        return max(
            (
                now_ms - max(record.time_ms, record.deliver_at_ms or 0)
                for record in self._unsettled()
                if self.log.visible(record, now_ms)
            ),
            default=0,
        )

    def view(self, topic: str, partition: int) -> GroupPartitionView:
        self.expire()
        now_ms = self._clock_ms()
        pending, waits, waiting, parked = [0] * len(LANES), [0] * len(LANES), 0, Counter[bytes]()
        for record in self._unsettled():
            if record.key is not None and record.key in self.parked:
                parked[record.key] += 1
            elif self._visible_at_ms.get(record.offset, 0) > now_ms:
                waiting += 1
            elif self._is_ready(record):
                pending[record.lane] += 1
                waits[record.lane] = max(waits[record.lane], self._ready_for_ms(record))
        return GroupPartitionView(
            topic=topic,
            partition=partition,
            committed_offset=Offset(self.committed_offset),
            end=Offset(self.log.partition.next),
            ready=sum(pending),
            in_flight=len(self.leases),
            waiting=waiting,
            dead=len(self.dead),
            acked=self.counters["acked"],
            nacked=self.counters["nacked"],
            rejected=self.counters["rejected"],
            expired=self.counters["expired"],
            redelivered=self.counters["redelivered"],
            delivered=self.counters["delivered"],
            fallen=0,
            halted=self.halted,
            lane_pending=pending,
            lane_wait_ms=waits,
            lane_wait_ms_max=waits,
            parked=sorted((key, parked[key]) for key in self.parked),
            lane_wait_ms_sum=self.waited_ms,
            lane_waits=self.waits,
            extended=self.counters["extended"],
            died=self.counters["died"],
            lag=sum(pending) + len(self.leases) + waiting + sum(parked.values()),
        )

    # what follows from what happened

    def _fail(self, offset: int, wanted: SettleRequest | None, reason: str, *, final: bool) -> str:
        """One more failed attempt: what becomes of the message."""
        now_ms, attempts, config = self._clock_ms(), self._attempts[offset], self.config
        self._history.setdefault(offset, []).append((now_ms, reason))
        if final or (config.max_attempts and attempts >= config.max_attempts):
            record = self.log.record(offset)
            if config.on_poison == "park" and record is not None and record.key is not None:
                self.parked.add(record.key)
                return "parked"
            redrives = self.redrives[offset]
            history = self._history[offset]
            self.dead[offset] = FakeDead(now_ms, attempts, reason, history, redrives)
            self._settled.add(offset)
            self.counters["died"] += 1
            self._advance()
            return "dead"
        delay_ms = 0 if wanted is None else wanted.delay_ms
        if delay_ms is None:
            delay_ms = min(config.backoff_ms * 2 ** (attempts - 1), config.backoff_ms_max)
        self._visible_at_ms[offset] = now_ms + delay_ms
        if wanted is not None and wanted.to_back:
            self._behind[offset] = max(self._behind.values(), default=self.log.partition.next) + 1
        return "requeued"

    def _advance(self) -> None:
        now_ms = self._clock_ms()
        while self.committed_offset < self.log.partition.next:
            record = self.log.record(self.committed_offset)
            gone = record is None or self.log.gone(record, now_ms)
            if not gone and self.committed_offset not in self._settled:
                return
            self._settled.discard(self.committed_offset)
            self.committed_offset += 1

    def _unsettled(self) -> Iterator[FakeRecord]:
        now_ms = self._clock_ms()
        for record in self.log.records(self.committed_offset):
            if record.offset not in self._settled and not self.log.gone(record, now_ms):
                yield record

    def _ready_for_ms(self, record: FakeRecord) -> int:
        since_ms = max(record.time_ms, record.deliver_at_ms or 0)
        return self._clock_ms() - max(since_ms, self._visible_at_ms.get(record.offset, 0))

    def _is_ready(self, record: FakeRecord) -> bool:
        now_ms = self._clock_ms()
        return (
            record.offset not in self.leases
            and record.key not in self.parked
            and self.log.visible(record, now_ms)
            and self._visible_at_ms.get(record.offset, 0) <= now_ms
        )
