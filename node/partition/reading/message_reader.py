"""Single messages of one partition by offset, with a small memory of decoded batches.

What a receive is granted is mostly runs, and the next receive goes on in the same batch: each
stored batch is decoded once, not once a receive.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from goqueue.wire.batch import RecordBatch, resolve_ms
from goqueue.wire.errors import GoQueueError
from goqueue.wire.types import Index, Offset, PartitionId
from log.entry import Entry
from log.errors import LogError
from node.partition.reading.reader import PartitionReader, stored_batches
from node.rpc.queue import MessageRow

ROW_BYTES = 250
"""What a decoded row costs beside the bytes it was decoded from."""
CARRIERS_MAX = 4
"""Carrying entries whose messages are kept at hand, of about a MiB each."""
MESSAGE_BYTES = 200
"""What a message takes in an answer beside its value."""

DECODED_BYTES_MAX = 16 << 20
"""Values decoded for one answer, as many as the largest batch has: a few messages may lie in as
many batches, each of which is small only as it is stored."""

ReappendedRows = Callable[[Index], Mapping[Offset, MessageRow]]
"""The messages that a carrying entry holds."""


class Holders(Protocol):
    """Offset -> the entry that holds a message which outlived the log before it."""

    def get(self, key: int, /) -> int | None: ...


class DecodedBatch:
    """One stored batch whose columns are there as lists."""

    def __init__(self, base: Offset, time_ms: int, stored: bytes | memoryview) -> None:
        batch = RecordBatch.parse(stored)
        self.base = base
        self.count = batch.count
        self.plain_bytes = batch.header.values_plain_bytes
        self.size_bytes = len(batch.buffer) + self.plain_bytes + ROW_BYTES * batch.count
        self._time_ms = time_ms
        self._values = batch.values()
        self._keys = batch.keys()
        self._headers = batch.headers()
        self._lanes = batch.lanes()
        self._ids = batch.message_ids()
        self._deliver_at = batch.deliver_at()
        self._expires_at = batch.expires_at()
        self._nulls = batch.nulls()

    def row_as(self, at: int, offset: Offset) -> MessageRow:
        """Row `at`, which has this offset."""
        time_ms, due, expires = self._time_ms, self._deliver_at[at], self._expires_at[at]
        return MessageRow(
            offset,
            time_ms,
            self._values[at],
            self._keys[at],
            self._headers[at],
            self._lanes[at],
            self._ids[at],
            None if due is None else resolve_ms(due, time_ms),
            None if expires is None else resolve_ms(expires, time_ms),
            at in self._nulls,
        )


class BatchCache:
    """The batches of a node that were read last, bounded in bytes. Loop thread only."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.used = 0
        self._batches: OrderedDict[tuple[PartitionId, Offset], DecodedBatch] = OrderedDict()
        self._bases: dict[PartitionId, list[Offset]] = {}
        self._carried: OrderedDict[tuple[PartitionId, int], Mapping[Offset, MessageRow]] = (
            OrderedDict()
        )

    def find(self, partition_id: PartitionId, offset: Offset) -> DecodedBatch | None:
        bases = self._bases.get(partition_id, [])
        at = bisect_right(bases, offset)
        if not at:
            return None
        key = (partition_id, bases[at - 1])
        batch = self._batches[key]
        if offset >= batch.base + batch.count:
            return None
        self._batches.move_to_end(key)
        return batch

    def keep(self, partition_id: PartitionId, batch: DecodedBatch) -> None:
        """Remember a batch that `find` did not find; one that is too large alone is not kept."""
        if batch.size_bytes > self.bytes_max:
            return
        self._batches[(partition_id, batch.base)] = batch
        insort(self._bases.setdefault(partition_id, []), batch.base)
        self.used += batch.size_bytes
        while self.used > self.bytes_max:
            self._drop(next(iter(self._batches)))

    def forget(self, partition_id: PartitionId) -> None:
        """The partition is no longer here."""
        for base in list(self._bases.get(partition_id, ())):
            self._drop((partition_id, base))
        for key in [key for key in self._carried if key[0] == partition_id]:
            del self._carried[key]

    def carried(
        self, partition_id: PartitionId, index: int, read: ReappendedRows
    ) -> Mapping[Offset, MessageRow]:
        """The messages of a carrying entry, one of the few that were read last."""
        key = (partition_id, index)
        rows = self._carried.get(key)
        if rows is None:
            rows = self._carried[key] = read(Index(index))
            if len(self._carried) > CARRIERS_MAX:
                self._carried.popitem(last=False)
        self._carried.move_to_end(key)
        return rows

    def _drop(self, key: tuple[PartitionId, Offset]) -> None:
        partition_id, base = key
        self.used -= self._batches.pop(key).size_bytes
        bases = self._bases[partition_id]
        bases.remove(base)
        if not bases:
            del self._bases[partition_id]


class MessageReader:
    """Reads messages of one replica. Loop thread only."""

    def __init__(
        self,
        partition_id: PartitionId,
        reader: PartitionReader,
        cache: BatchCache,
        *,
        carried: Callable[[], Holders],
        carried_rows: ReappendedRows,
    ) -> None:
        self._partition_id = partition_id
        self._reader = reader
        self._cache = cache
        self._carried = carried
        self._reappended_rows = carried_rows

    def rows(
        self, offsets: Iterable[Offset], max_bytes: int, *, least: int = 1
    ) -> list[MessageRow | None]:
        """Each message in turn, None for one that can't be read; the first `least` of them, and
        then as many as fit."""
        reading = _Reading(self._partition_id, self._reader, self._cache)
        carried = self._carried()
        found: list[MessageRow | None] = []
        taken = 0
        for offset in offsets:
            index = carried.get(offset)
            row = reading.row(offset) if index is None else self._rows_of(index).get(offset)
            taken += row_bytes(row)
            full = taken > max_bytes or reading.decoded_bytes > DECODED_BYTES_MAX
            if full and len(found) >= least:
                break
            found.append(row)
        return found

    def carried_id(self, offset: Offset) -> str | None:
        """The message id of one that outlived the log before it, None for any other. Raises
        LogError or GoQueueError where it can't be read."""
        index = self._carried().get(offset)
        if index is None:
            return None
        row = self._cache.carried(self._partition_id, index, self._reappended_rows).get(offset)
        return None if row is None else row.message_id

    def _rows_of(self, index: int) -> Mapping[Offset, MessageRow]:
        try:
            return self._cache.carried(self._partition_id, index, self._reappended_rows)
        except (LogError, GoQueueError):
            return {}


class _Reading:
    """One pass over messages: neighbours share the entry that is at hand."""

    def __init__(
        self, partition_id: PartitionId, reader: PartitionReader, cache: BatchCache
    ) -> None:
        self._partition_id = partition_id
        self._reader = reader
        self._cache = cache
        self._entry: Entry | None = None
        self._stored: list[tuple[Offset, int, memoryview]] = []
        self._batch: DecodedBatch | None = None
        self.decoded_bytes = 0

    def row(self, offset: Offset) -> MessageRow | None:
        batch = self._batch
        if batch is None or not batch.base <= offset < batch.base + batch.count:
            batch = self._cache.find(self._partition_id, offset)
            if batch is None:
                batch = self._decode(offset)
            self._batch = batch
        return None if batch is None else batch.row_as(offset - batch.base, offset)

    def _decode(self, offset: Offset) -> DecodedBatch | None:
        """The batch that holds the message; None where it is not stored, or damaged."""
        entry = self._entry
        try:
            if entry is None or not 0 <= offset - entry.base_offset < entry.record_count:
                entry = self._entry = self._reader.entry_at(offset)
                self._stored = [] if entry is None else stored_batches(entry)
            if entry is None:
                return None
            for base, count, stored in self._stored:
                if base <= offset < base + count:
                    batch = DecodedBatch(base, entry.time_ms, stored)
                    self.decoded_bytes += batch.plain_bytes
                    self._cache.keep(self._partition_id, batch)
                    return batch
        except (LogError, GoQueueError):
            return None
        return None


def row_bytes(row: MessageRow | None) -> int:
    """What a message takes in an answer."""
    if row is None:
        return MESSAGE_BYTES
    size = MESSAGE_BYTES + len(row.value) + (0 if row.key is None else len(row.key))
    if row.headers:
        size += sum(len(name) + len(value) for name, value in row.headers)
    return size
