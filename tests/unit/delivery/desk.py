"""A partition's state driven entry by entry, by one who is leader, clock and every member."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import msgspec

from delivery.config import GroupConfig, QueueConfig
from delivery.entries.ops import (
    ACK,
    NACK,
    REJECT,
    Cancelled,
    CodesResult,
    Committed,
    Configure,
    CountResult,
    Delivered,
    Expired,
    Granted,
    Op,
    OpenGroup,
    Redriven,
    Result,
    Settled,
    SettledResult,
    Sought,
    SoughtResult,
    Tick,
    encode_ops,
)
from delivery.entries.reappended import ReappendedBatch, encode_reappended
from delivery.entries.records import AppendBatch, encode_records, encode_trim
from delivery.group.state import GroupState
from delivery.state.partition import PartitionState
from goqueue.wire.batch import encode_columns
from goqueue.wire.types import Index, Offset
from log.entry import EntryKind, make_entry
from tests.unit.delivery.batches import START_MS

Receipts = list[tuple[int, list[int]]]
"""(delivery, its offsets)."""


class Desk:
    """Everything applies at once; `now_ms` is the log time of the next entry."""

    def __init__(self, **config: Any) -> None:
        self.state = PartitionState()
        self.now_ms = START_MS
        if config:
            self.do(Configure(QueueConfig(**config)))

    @property
    def queue(self) -> Any:
        return self.state.queue

    def group(self, group: int = 1) -> GroupState:
        return self.state.queue.groups[group]

    # -- entries

    def apply(self, kind: EntryKind, body: Any, base: int = 0, count: int = 0) -> Any:
        entry = make_entry(
            index=self.state.applied_index + 1,
            term=1,
            time_ms=self.now_ms,
            kind=kind,
            body=body,
            base_offset=base,
            record_count=count,
        )
        return self.state.apply(entry)

    def publish(self, count: int = 1, **columns: Any) -> list[int]:
        """Offsets of `count` messages in one batch."""
        base = self.state.next_offset
        batch = encode_columns([b"v"] * count, **columns)
        body = encode_records([AppendBatch(batch, count, 0)])
        self.apply(EntryKind.RECORDS, body, base, count)
        return list(range(base, base + count))

    def do(self, *ops: Op) -> list[Result]:
        return cast("list[Result]", self.apply(EntryKind.QUEUE, encode_ops(ops)))

    def trim(self, offset: int, *, index: int | None = None) -> bool:
        """Whether the log begins there now."""
        at = self.state.applied_index + 1 if index is None else index
        self.apply(EntryKind.TRIM, encode_trim(Index(at), Offset(offset)))
        return self.state.log_start_offset == offset

    def carry(self, offsets: Sequence[int]) -> int:
        """The index of the entry that holds these messages now."""
        batch = encode_columns([b"v"] * len(offsets))
        self.apply(
            EntryKind.CARRIED, encode_reappended([ReappendedBatch(self.now_ms, offsets, batch)])
        )
        return self.state.applied_index

    def retain(self, offset: int) -> None:
        """Trim as a leader does: what is needed below is carried first."""
        index = self.state.applied_index + 1
        needed = self.state.queue.needed_below(offset)
        if needed:
            self.carry(needed)
        assert self.trim(offset, index=index)

    def restart(self) -> None:
        """The state goes through a snapshot."""
        snapshot = self.state.snapshot()
        self.state = PartitionState()
        self.state.restore(snapshot)
        assert self.state.snapshot() == snapshot

    def wait(self, duration_ms: int) -> None:
        """Time passes, and an entry notes it."""
        self.now_ms += duration_ms
        self.do(Tick())

    # -- operations

    def open(self, group: int = 1, *, offset: int = 0, **config: Any) -> GroupState:
        self.do(OpenGroup(group, f"g{group}", 1, GroupConfig(**config), offset))
        return self.group(group)

    def configure(self, group: int = 1, **changes: Any) -> None:
        found = self.group(group)
        config = msgspec.structs.replace(found.config, **changes)
        self.do(OpenGroup(group, found.name, found.version + 1, config))

    def receive(
        self, limit: int = 1000, group: int = 1, visibility_ms: int | None = None
    ) -> Granted:
        found = self.group(group)
        offsets = found.select(limit, self.now_ms)
        wanted_ms = found.config.visibility_ms if visibility_ms is None else visibility_ms
        return self.deliver(offsets, group, wanted_ms)

    def deliver(self, offsets: list[int], group: int = 1, visibility_ms: int = 30_000) -> Granted:
        (result,) = self.do(Delivered(group, "m", visibility_ms, offsets))
        assert isinstance(result, Granted)
        return result

    def offsets(self, limit: int = 1000, group: int = 1) -> list[int]:
        """Receive; which messages came."""
        return [grant.offset for grant in self.receive(limit, group).grants]

    def settle(
        self, action: int, receipts: Receipts, group: int = 1, **fields: Any
    ) -> SettledResult:
        (result,) = self.do(Settled(group, action, receipts, **fields))
        assert isinstance(result, SettledResult)
        return result

    def ack(self, granted: Granted, group: int = 1) -> SettledResult:
        return self.settle(ACK, all_of(granted), group)

    def nack(self, granted: Granted, reason: str = "bad", **fields: Any) -> SettledResult:
        return self.settle(NACK, all_of(granted), reason=reason, **fields)

    def reject(self, granted: Granted, reason: str = "bad", group: int = 1) -> SettledResult:
        return self.settle(REJECT, all_of(granted), group, reason=reason)

    def expire(self, group: int = 1) -> int:
        """End the leases that are over, as the leader does; how many."""
        overdue = self.group(group).leases.overdue(self.now_ms, 1000)
        return self.count(Expired(group, overdue))

    def cancel(self, *offsets: int) -> list[int]:
        (result,) = self.do(Cancelled(list(offsets)))
        assert isinstance(result, CodesResult)
        return result.codes

    def commit(self, offset: int, group: int = 1) -> int:
        return self.count(Committed(group, offset))

    def seek(self, offset: int, group: int = 1) -> SoughtResult:
        (result,) = self.do(Sought(group, offset))
        assert isinstance(result, SoughtResult)
        return result

    def redrive(self, *offsets: int, group: int = 1, force: bool = False) -> CountResult:
        (result,) = self.do(Redriven(group, list(offsets), 0, force))
        assert isinstance(result, CountResult)
        return result

    def count(self, op: Op) -> int:
        (result,) = self.do(op)
        assert isinstance(result, CountResult)
        return result.count


def all_of(granted: Granted) -> Receipts:
    """The receipts of everything that was delivered."""
    return [(granted.delivery, [grant.offset for grant in granted.grants])]
