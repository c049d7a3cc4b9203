"""Which batches of which producers are stored: what a retry by sequence is judged against.

A producer numbers the records it sends to a partition from 0, anew in each epoch. The last batches
of each are remembered for days, so that a retry is answered with the original offset, also by a
new leader and after a restart.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import msgspec

from goqueue.wire.errors import OutOfOrder, ProducerFenced
from goqueue.wire.types import Offset

BATCHES_REMEMBERED = 64
"""Per producer: more than a client may have in flight."""
REMEMBERED_MS = 7 * 24 * 3600 * 1000
"""A producer that stored nothing for this long, by log time, is forgotten."""
PRODUCERS_MAX = 10_000
"""Per partition; beyond it the one that has been silent longest is forgotten."""


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
    """What is known of one producer in its newest epoch, oldest batch first."""

    epoch: int
    first_offset: Offset
    """Where its first batch of the epoch is; it is remembered longer than the batch itself."""
    time_ms: int = 0
    batches: deque[StoredSequence] = field(
        default_factory=lambda: deque[StoredSequence](maxlen=BATCHES_REMEMBERED)
    )

    @property
    def next_sequence(self) -> int:
        if not self.batches:
            return 0
        newest = self.batches[-1]
        return newest.base_sequence + newest.count


class Producers:
    """The producers of one partition, as of the applied entries."""

    def __init__(self) -> None:
        self._histories: dict[int, History] = {}

    def __len__(self) -> int:
        return len(self._histories)

    def history(self, producer_id: int) -> History | None:
        """What is remembered of this producer; not to be changed by the caller."""
        return self._histories.get(producer_id)

    def stored(self, producer_id: int, epoch: int, batch: StoredSequence, time_ms: int) -> None:
        """Note a batch of an applied entry; never fails, whatever the sequence."""
        history = self._histories.pop(producer_id, None)
        if history is None or history.epoch < epoch:
            history = History(epoch, batch.base_offset)
        if history.epoch == epoch:
            history.batches.append(batch)
            history.time_ms = time_ms
        self._histories[producer_id] = history  # the newest to speak is last

    def forget(self, now_ms: int) -> None:
        """Let go of who was silent for too long, and of the most silent beyond the bound."""
        while self._histories:
            producer_id, history = next(iter(self._histories.items()))
            fresh = history.time_ms + REMEMBERED_MS >= now_ms
            if fresh and len(self._histories) <= PRODUCERS_MAX:
                return
            del self._histories[producer_id]

    def dump(self) -> list[ProducerRecord]:
        """For a snapshot; equal for replicas that applied the same entries."""
        return [
            ProducerRecord(
                producer_id,
                history.epoch,
                history.time_ms,
                [
                    (batch.base_sequence, batch.count, batch.base_offset)
                    for batch in history.batches
                ],
                history.first_offset,
            )
            for producer_id, history in self._histories.items()
        ]

    def load(self, records: Iterable[ProducerRecord]) -> None:
        """Replace everything by what `dump` told."""
        self._histories = {record.producer_id: _history(record) for record in records}


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


def newest_first(batches: deque[StoredSequence]) -> Iterator[StoredSequence]:
    """Retries are most often of the newest batches."""
    return reversed(batches)


def _history(record: ProducerRecord) -> History:
    first_offset = record.first_offset
    if first_offset is None:
        first_offset = record.batches[0][2] if record.batches else 0
    history = History(record.epoch, Offset(first_offset), record.time_ms)
    history.batches.extend(
        StoredSequence(base_sequence, count, Offset(base_offset))
        for base_sequence, count, base_offset in record.batches
    )
    return history
