"""Messages that outlived the log before them, as the entries hold that carry them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

from delivery.entries.reappended import ReappendedBatch, decode_reappended
from delivery.history.compacted_set import CompactedSet
from goqueue.wire.batch import RecordBatch
from goqueue.wire.types import Index, Offset
from log.entry import Entry
from node.api.records import StoredBatch
from node.partition.reading.message_reader import DecodedBatch
from node.rpc.queue import MessageRow


class ReappendedRows(Mapping[Offset, MessageRow]):
    """The messages of one carrying entry; each is decoded when it is asked for."""

    def __init__(self, body: bytes | memoryview) -> None:
        self._places = {
            Offset(offset): (reappended, row)
            for reappended in decode_reappended(body)
            for row, offset in enumerate(reappended.offsets)
        }

    def __getitem__(self, offset: Offset) -> MessageRow:
        reappended, row = self._places[offset]
        return DecodedBatch(Offset(0), reappended.time_ms, reappended.batch).row_as(row, offset)

    def __iter__(self) -> Iterator[Offset]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


class CarriersLog(Protocol):
    """What reading them asks of a group's log."""

    def entry(self, index: Index) -> Entry: ...


class CompactedReader:
    """The messages that compaction has kept, in the order of their offsets. Loop thread only.

    Every method raises LogError where a carrying entry can't be read.
    """

    def __init__(self, log: CarriersLog, compacted_set: Callable[[], CompactedSet]) -> None:
        self._log = log
        self._compacted_set = compacted_set
        self._index = Index(0)
        self._batches: list[ReappendedBatch] = []
        self._firsts: list[int] = []

    def read(
        self, offset: Offset, *, max_records: int, max_bytes: int, to_time_ms: int | None
    ) -> tuple[list[StoredBatch], Offset | None]:
        """Batches of what is kept from `offset` on, and where reading goes on; None where nothing
        is kept from there on."""
        found: list[StoredBatch] = []
        records = size = 0
        at: int | None = self._next(offset)
        while at is not None:
            if found and (records >= max_records or size >= max_bytes):
                return found, Offset(at)
            reappended = self._holding(at)
            if to_time_ms is not None and reappended.time_ms >= to_time_ms:
                return found, Offset(at)
            batch, count = self._from(reappended, at)
            found.append(batch)
            records += count
            size += len(batch.batch)
            at = self._next(batch.base_offset + count)
        return found, None

    def time_at(self, offset: Offset) -> int | None:
        """The log time of a message; None for one that is not kept."""
        return self._holding(offset).time_ms if offset in self._compacted_set().offsets else None

    def offset_at(self, time_ms: int) -> Offset | None:
        """The first message that is kept and was stored at this time or later."""
        carriers = self._compacted_set().carriers
        low, high = 0, len(carriers)
        while low < high:
            middle = (low + high) // 2
            if self._load(carriers[middle].index)[0].time_ms < time_ms:
                low = middle + 1
            else:
                high = middle
        for carrier in carriers[max(0, low - 1) : low + 1]:
            for reappended in self._load(carrier.index):
                if reappended.time_ms >= time_ms:
                    at = self._next(reappended.offsets[0])
                    return None if at is None else Offset(at)
        return None

    # private

    def _next(self, offset: int) -> int | None:
        kept = self._compacted_set().offsets
        return int(kept.next_set_bit(offset)) if kept and offset <= kept.max() else None

    def _holding(self, offset: int) -> ReappendedBatch:
        carrier = self._compacted_set().carrier_of(offset)
        assert carrier is not None, "what is kept is carried"
        batches = self._load(carrier.index)
        return batches[bisect_right(self._firsts, offset) - 1]

    def _load(self, index: Index) -> list[ReappendedBatch]:
        if index != self._index:
            self._batches = list(decode_reappended(self._log.entry(index).body))
            self._firsts = [reappended.offsets[0] for reappended in self._batches]
            self._index = index
        return self._batches

    def _from(self, reappended: ReappendedBatch, at: int) -> tuple[StoredBatch, int]:
        """The batch that holds a message and its count; of one that is kept in part, the run from
        there on."""
        first, count = reappended.offsets[0], len(reappended.offsets)
        kept = self._compacted_set().offsets
        if kept.range_cardinality(first, first + count) == count:
            return StoredBatch(Offset(first), reappended.time_ms, reappended.batch), count
        end = at
        while end < first + count and end in kept:
            end += 1
        batch = RecordBatch.parse(reappended.batch).select(range(at - first, end - first))
        return StoredBatch(Offset(at), reappended.time_ms, batch.buffer), batch.count
