"""A partition as consumers meet it: its state, its leader's dispatcher, and a clock that is set.

Every entry that applies is kept, so that a failover can be played: another replica applies the
same entries, or begins from a snapshot, and a new leader goes on from there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from delivery.config import GroupConfig, QueueConfig
from delivery.entries import ops
from delivery.entries.records import AppendBatch, encode_records, encode_trim
from delivery.group.state import GroupState
from delivery.leader.dispatcher import Dispatcher, Want
from delivery.state.partition import PartitionState
from goqueue.wire.batch import LANE_NORMAL, RecordBatch, encode_columns
from goqueue.wire.errors import GoQueueError
from goqueue.wire.types import Index, Offset
from log.entry import Entry, EntryKind, make_entry

START_MS = 1_700_000_000_000
VISIBILITY_MS = 30_000
_GROUP_IDS = {"g": 1, "other": 2}
Answered = tuple[int, ops.Result | GoQueueError]


@dataclass(frozen=True, slots=True)
class Received:
    """One message as its consumer has it."""

    offset: int
    attempt: int
    reason: str
    delivery: int
    group: str


class Partition:
    """Publishes, receives and settles by one call each; `now_ms` moves only by `pass_ms`."""

    def __init__(self, config: QueueConfig | None = None) -> None:
        self.state = PartitionState()
        self.now_ms = START_MS
        self.entries: list[Entry] = []
        self._tickets = 0
        self._settings: dict[str, tuple[GroupConfig, int]] = {}
        self.dispatcher: Dispatcher[int] = Dispatcher(self.state)
        self.config = config or QueueConfig()
        self.dispatcher.configure(self.config)
        self._turn()

    # -- what clients do

    def publish(
        self,
        count: int = 1,
        *,
        lanes: int | Sequence[int] = LANE_NORMAL,
        keys: Sequence[bytes | None] | None = None,
        delays_ms: Sequence[int | None] | int | None = None,
        ttl_ms: int | None = None,
    ) -> list[int]:
        """The offsets of `count` messages in one entry."""
        base = int(self.state.next_offset)
        encoded = encode_columns(
            [b"value-%d" % (base + row) for row in range(count)],
            keys,
            timestamps_ms=self.now_ms,
            lanes=lanes,
            deliver_at_ms=[delays_ms] * count if isinstance(delays_ms, int) else delays_ms,
            expires_at_ms=None if ttl_ms is None else [ttl_ms] * count,
        )
        return self.store(RecordBatch.parse(encoded))

    def store(self, batch: RecordBatch) -> list[int]:
        """Store any batch as it is."""
        base = int(self.state.next_offset)
        body = encode_records([AppendBatch.of(batch, 0)])
        self._apply(EntryKind.RECORDS, body, base_offset=base, record_count=batch.count)
        return list(range(base, base + batch.count))

    def open(self, name: str = "g", config: GroupConfig | None = None, offset: int = 0) -> None:
        self._settings[name] = (config or GroupConfig(), offset)
        self._open(name)

    def receive(
        self, limit: int = 1000, group: str = "g", visibility_ms: int = VISIBILITY_MS
    ) -> list[Received]:
        """What a receive without waiting answers."""
        ticket = self.wait_for(limit, group, visibility_ms, wait=False)
        return self.answers(self._turn(), ticket, group)

    def wait_for(
        self,
        limit: int = 1000,
        group: str = "g",
        visibility_ms: int = VISIBILITY_MS,
        *,
        wait: bool = True,
    ) -> int:
        """Begin a receive; its ticket."""
        self._tickets += 1
        want = Want(_GROUP_IDS[group], "member", limit, visibility_ms, self._tickets)
        self.dispatcher.receive(want, self._tickets, wait=wait)
        return self._tickets

    def answers(self, answered: list[Answered], ticket: int, group: str = "g") -> list[Received]:
        for found, result in answered:
            if found == ticket:
                if isinstance(result, GoQueueError):
                    raise result
                assert isinstance(result, ops.Granted), result
                return [
                    Received(g.offset, g.attempt, g.reason, result.delivery, group)
                    for g in result.grants
                ]
        raise AssertionError(f"receive {ticket} is not answered")

    def settle(self, action: int, *messages: Received, **how: object) -> list[ops.Settle]:
        """Each message's own end, in order; all of one group."""
        deliveries = [(one.delivery, [one.offset]) for one in messages]
        result = self.do(ops.Settled(_GROUP_IDS[messages[0].group], action, deliveries, **how))  # type: ignore[arg-type]
        assert isinstance(result, ops.SettledResult)
        return result.settles

    def ack(self, *messages: Received) -> list[ops.Settle]:
        return self.settle(ops.ACK, *messages)

    def nack(self, *messages: Received, **how: object) -> list[ops.Settle]:
        return self.settle(ops.NACK, *messages, **how)

    def do(self, op: ops.Op) -> ops.Result:
        """Any operation, and what it came to."""
        self._tickets += 1
        self.dispatcher.submit(op, self._tickets)
        result = next(result for ticket, result in self._turn() if ticket == self._tickets)
        assert not isinstance(result, GoQueueError)
        return result

    # -- time and failure

    def pass_ms(self, milliseconds: int) -> list[Answered]:
        """Time passes; the leader does what it has to on its way. What was answered meanwhile."""
        end_ms = self.now_ms + milliseconds
        answered: list[Answered] = []
        while True:
            wake_ms = self.dispatcher.next_wake_ms(self.now_ms)
            if wake_ms is None or wake_ms > end_ms:
                break
            self.now_ms = max(self.now_ms, wake_ms)
            before = len(self.entries)
            answered += self._turn()
            if len(self.entries) == before:
                self.now_ms += 1
        self.now_ms = max(self.now_ms, end_ms)
        return answered + self._turn()

    def fail_over(self, *, after_ms: int = 0, by_snapshot: bool = False) -> None:
        """Another replica leads after a while in which nobody did."""
        state = PartitionState()
        if by_snapshot:
            state.restore(self.state.snapshot())
        else:
            for entry in self.entries:
                state.apply(entry)
            assert state.snapshot() == self.state.snapshot()
        self.state = state
        self.now_ms += after_ms
        self.dispatcher = Dispatcher(state)
        self.dispatcher.configure(self.config)
        for name in self._settings:
            self._open(name)
        self._turn()

    def trim(self, offset: int) -> None:
        """Retention takes everything below the offset."""
        body = encode_trim(Index(self.state.applied_index + 1), Offset(offset))
        self._apply(EntryKind.TRIM, body)

    # -- what is there

    def group(self, name: str = "g") -> GroupState:
        return self.state.queue.groups[_GROUP_IDS[name]]

    # -- private

    def _open(self, name: str) -> None:
        config, offset = self._settings[name]
        self.dispatcher.open_group(_GROUP_IDS[name], name, 1, config, offset)
        self._turn()

    def _turn(self) -> list[Answered]:
        """Entries are made, applied and answered until the dispatcher has nothing to do now."""
        answered: list[Answered] = []
        while (proposal := self.dispatcher.collect(self.now_ms)) is not None:
            answered += proposal.answers
            if not proposal.ops:
                continue
            results = self._apply(EntryKind.QUEUE, ops.encode_ops(proposal.ops))
            answered += self.dispatcher.landed(proposal, results)
        return answered

    def _apply(
        self,
        kind: EntryKind,
        body: bytes | list[bytes | memoryview],
        *,
        base_offset: int = 0,
        record_count: int = 0,
    ) -> list[ops.Result]:
        entry = make_entry(
            index=self.state.applied_index + 1,
            term=1,
            time_ms=self.now_ms,
            kind=kind,
            body=body,
            base_offset=base_offset,
            record_count=record_count,
        )
        self.entries.append(entry)
        return self.state.apply(entry) or []  # type: ignore[return-value]


def offsets(messages: Sequence[Received]) -> list[int]:
    return [message.offset for message in messages]
