"""Which batches of which producers are stored: what a retry by sequence is judged against.

A producer numbers the records it sends to a partition from 0, anew in each epoch. The last batches
of each are remembered for days, so that a retry is answered with the original offset, also by a
new leader and after a restart. All that is remembered fits into the bytes that the topic allows a
partition (`dedup_producers_bytes`, which travels in the log): replicas forget alike.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from delivery.config import QueueConfig
from goqueue.wire.errors import OutOfOrder, ProducerFenced
from goqueue.wire.types import Offset

BATCHES_REMEMBERED = 64
"""Per producer: more than a client may have in flight."""
REMEMBERED_MS = 7 * 24 * 3600 * 1000
"""A producer that stored nothing for this long, by log time, is forgotten."""
PRODUCER_BYTES = 400
BATCH_BYTES = 28
"""What one takes in memory, and each batch that is remembered of it."""
_COLUMNS = 3


@dataclass(frozen=True, slots=True)
class StoredSequence:
    """One batch of a producer: its first sequence, its records, and where they are."""

    base_sequence: int
    count: int
    base_offset: Offset


class ProducerRecord(msgspec.Struct, array_like=True, frozen=True):
    """One producer in a snapshot."""

    producer_id: int
    epoch: int
    time_ms: int
    batches: list[tuple[int, int, int]]
    first_offset: int | None = None
    """None in snapshots of releases that did not note it."""


@dataclass(slots=True)
class History:
    """What is known of one producer in its newest epoch."""

    epoch: int
    first_offset: Offset
    """Where its first batch of the epoch is; it is remembered longer than the batch itself."""
    time_ms: int = 0
    _rows: array[int] = field(default_factory=lambda: array("Q"))
    """First sequence, count and offset of each batch, oldest first."""

    def __len__(self) -> int:
        """Batches that are remembered."""
        return len(self._rows) // _COLUMNS

    @property
    def next_sequence(self) -> int:
        return self._rows[-3] + self._rows[-2] if self._rows else 0

    @property
    def bytes(self) -> int:
        return PRODUCER_BYTES + BATCH_BYTES * len(self)

    def batches(self) -> list[StoredSequence]:
        """Oldest first."""
        rows = iter(self._rows)
        return [StoredSequence(*row) for row in zip(rows, rows, map(Offset, rows), strict=True)]

    def note(self, batch: StoredSequence) -> None:
        """The newest one; the oldest is forgotten for it where there are enough."""
        if len(self) == BATCHES_REMEMBERED:
            del self._rows[:_COLUMNS]
        self._rows.extend((batch.base_sequence, batch.count, batch.base_offset))


class Producers:
    """The producers of one partition, as of the applied entries: at most so many bytes of them."""

    def __init__(self, bytes_max: int = QueueConfig().dedup_producers_bytes) -> None:
        self._histories = OrderedDict[int, History]()
        """Who has spoken last is last."""
        self._bytes = 0
        self._bytes_max = bytes_max
        self.evicted = 0
        """Forgotten before their time, for want of room, since this replica started."""

    @property
    def bytes(self) -> int:
        """What they take, by `PRODUCER_BYTES` and `BATCH_BYTES`."""
        return self._bytes

    def configure(self, bytes_max: int) -> None:
        """The bound from the next entry on."""
        self._bytes_max = bytes_max

    def __len__(self) -> int:
        return len(self._histories)

    def history(self, producer_id: int) -> History | None:
        """What is remembered of this producer; not to be changed by the caller."""
        return self._histories.get(producer_id)

    def stored(self, producer_id: int, epoch: int, batch: StoredSequence, time_ms: int) -> None:
        """Note a batch of an applied entry; never fails, whatever the sequence."""
        history = self._histories.pop(producer_id, None)
        self._bytes -= 0 if history is None else history.bytes
        if history is None or history.epoch < epoch:
            history = History(epoch, batch.base_offset)
        if history.epoch == epoch:
            history.note(batch)
            history.time_ms = time_ms
        self._histories[producer_id] = history
        self._bytes += history.bytes

    def forget(self, now_ms: int) -> None:
        """Let go of who was silent for too long, and of the most silent beyond the bound."""
        while self._histories:
            history = next(iter(self._histories.values()))  # an OrderedDict has it at once
            is_fresh = history.time_ms + REMEMBERED_MS >= now_ms
            if is_fresh and self._bytes <= self._bytes_max:
                return
            self._histories.popitem(last=False)
            self._bytes -= history.bytes
            self.evicted += is_fresh

    def dump(self) -> list[ProducerRecord]:
        """For a snapshot; equal for replicas that applied the same entries."""
        return [
            ProducerRecord(
                producer_id,
                history.epoch,
                history.time_ms,
                [(each.base_sequence, each.count, each.base_offset) for each in history.batches()],
                history.first_offset,
            )
            for producer_id, history in self._histories.items()
        ]

    def load(self, records: Iterable[ProducerRecord]) -> None:
        """Replace everything by what `dump` told. Raises OverflowError, changing nothing."""
        self._histories = OrderedDict((one.producer_id, _history(one)) for one in records)
        self._bytes = sum(history.bytes for history in self._histories.values())


def find_duplicate(
    known: Iterable[StoredSequence], base_sequence: int, count: int
) -> StoredSequence | None:
    """The very batch, if it is among these: a retry resends identical bytes."""
    for batch in known:
        if batch.base_sequence == base_sequence and batch.count == count:
            return batch
    return None


def check_epoch(producer_id: int, known: int, told: int) -> None:
    """Raises ProducerFenced where a newer epoch has written."""
    if told < known:
        raise ProducerFenced(
            f"producer {producer_id} has written with epoch {known}, newer than {told}",
            producer_id=producer_id,
            epoch=known,
        )


def check_sequence(expected: int, base_sequence: int) -> None:
    """Raises OutOfOrder where a batch is missing."""
    if base_sequence != expected:
        raise OutOfOrder(expected, base_sequence)


def _history(record: ProducerRecord) -> History:
    first_offset = record.first_offset
    if first_offset is None:
        first_offset = record.batches[0][2] if record.batches else 0
    history = History(record.epoch, Offset(first_offset), record.time_ms)
    for base_sequence, count, base_offset in record.batches[-BATCHES_REMEMBERED:]:
        history.note(StoredSequence(base_sequence, count, Offset(base_offset)))
    return history
