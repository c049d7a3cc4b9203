"""A partition's log in memory, for the fake broker: batches, offsets, log times, duplicates."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from dataclasses import dataclass, field

from goqueue.wire.batch import RecordBatch
from goqueue.wire.errors import OutOfOrder, ProducerFenced
from goqueue.wire.types import Offset
from node.api.records import AppendResult, StoredBatch

PRODUCER_BATCHES_REMEMBERED = 64


@dataclass(slots=True)
class _Producer:
    epoch: int
    first_offset: int = 0
    batches: list[tuple[int, int, int]] = field(default_factory=list[tuple[int, int, int]])


class FakePartition:
    """One partition's log: batches side by side with their base offsets and log times."""

    def __init__(self, batches_kept: int) -> None:
        self._kept = batches_kept
        self.start = 0
        self.next = 0
        self.size_bytes = 0
        self.archived: tuple[str, int] = ("", 0)
        self.batches: list[StoredBatch] = []
        self.bases: list[int] = []
        self.times_ms: list[int] = []
        self.producers: dict[int, _Producer] = {}
        self.message_ids: dict[str, Offset] = {}
        self.waiters: set[asyncio.Future[None]] = set()

    def append(
        self, buffer: bytes, parsed: RecordBatch, now_ms: int, durability: str
    ) -> AppendResult:
        count = parsed.count
        original = self._admit(parsed)
        if original is not None:
            time_ms = self._time_ms(original)
            return AppendResult(Offset(original), count, True, time_ms, durability)
        rows = self._place(parsed)
        if rows is not None:
            kept = [row for row, (_, duplicate) in enumerate(rows) if not duplicate]
            if not kept:
                time_ms = self._time_ms(rows[0][0])
                return AppendResult(rows[0][0], count, True, time_ms, durability, rows)
            rest = parsed.select(kept)
            time_ms = self._store(rest.buffer, rest, now_ms)
            return AppendResult(rows[0][0], count, False, time_ms, durability, rows)
        base = Offset(self.next)
        time_ms = self._store(buffer, parsed, now_ms)
        return AppendResult(base, count, False, time_ms, durability)

    def _place(self, parsed: RecordBatch) -> tuple[tuple[Offset, bool], ...] | None:
        """(offset, duplicate) of each row, None where no id of the batch is known."""
        following, is_known = Offset(self.next), False
        rows: list[tuple[Offset, bool]] = []
        for message_id in parsed.message_ids():
            known = self.message_ids.get(message_id) if message_id is not None else None
            if known is None or parsed.producer_id:
                if message_id is not None:
                    self.message_ids[message_id] = following
                rows.append((following, False))
                following = Offset(following + 1)
            else:
                is_known = True
                rows.append((known, True))
        return tuple(rows) if is_known else None

    def _time_ms(self, offset: int) -> int:
        return self.times_ms[max(0, bisect_right(self.bases, offset) - 1)]

    def _store(self, buffer: bytes, parsed: RecordBatch, now_ms: int) -> int:
        """The log time of it."""
        base = self.next
        time_ms = max(now_ms, self.times_ms[-1] if self.times_ms else 0)
        self.size_bytes += len(buffer)
        self.batches.append(StoredBatch(Offset(base), time_ms, buffer))
        self.bases.append(base)
        self.times_ms.append(time_ms)
        self.next += parsed.count
        if len(self.batches) > 2 * self._kept:
            self.forget(len(self.batches) - self._kept)
        if parsed.producer_id:
            known = self.producers[parsed.producer_id]
            if not known.batches:
                known.first_offset = base
            known.batches.append((parsed.base_sequence, parsed.count, base))
            del known.batches[:-PRODUCER_BATCHES_REMEMBERED]
        for waiter in self.waiters:
            if not waiter.done():
                waiter.set_result(None)
        return time_ms

    def read(
        self, offset: int, max_records: int, max_bytes: int, to_time_ms: int | None
    ) -> tuple[list[StoredBatch], int]:
        at = max(0, bisect_right(self.bases, offset) - 1)
        found: list[StoredBatch] = []
        following, size = offset, 0
        while at < len(self.batches) and following < self.next:
            batch = self.batches[at]
            enough = following - offset >= max_records or size + len(batch.batch) > max_bytes
            if found and enough:
                break
            if to_time_ms is not None and batch.time_ms >= to_time_ms:
                break
            found.append(batch)
            size += len(batch.batch)
            at += 1
            following = self.bases[at] if at < len(self.bases) else self.next
        return found, following

    def forget(self, count: int) -> None:
        """Drop the oldest batches, as retention does; at least one must be left."""
        self.size_bytes -= sum(len(stored.batch) for stored in self.batches[:count])
        for column in (self.batches, self.bases, self.times_ms):
            del column[:count]
        self.start = self.bases[0]

    def _admit(self, batch: RecordBatch) -> int | None:
        if not batch.producer_id:
            return None
        known = self.producers.get(batch.producer_id)
        if known is None or batch.producer_epoch > known.epoch:
            known = self.producers[batch.producer_id] = _Producer(batch.producer_epoch)
        if batch.producer_epoch < known.epoch:
            raise ProducerFenced(f"producer {batch.producer_id} has epoch {known.epoch}")
        for sequence, count, base in known.batches:
            if sequence == batch.base_sequence and count == batch.count:
                return base
        if known.batches:
            sequence, count, _ = known.batches[-1]
            if batch.base_sequence != sequence + count:
                within = (known.first_offset, self.next)
                raise OutOfOrder(sequence + count, batch.base_sequence, within)
        elif batch.base_sequence:
            raise OutOfOrder(0, batch.base_sequence)
        return None

    async def wait(self, wait_s: float) -> None:
        """Until something is appended, at most this long."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiters.add(waiter)
        try:
            await asyncio.wait_for(waiter, wait_s)
        except TimeoutError:
            pass
        finally:
            self.waiters.discard(waiter)
