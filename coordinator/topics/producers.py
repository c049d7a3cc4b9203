"""Producer ids and epochs: who may stamp batches with which identity."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from coordinator.errors import ClusterFull
from goqueue.wire.errors import BadRequest, NotFound, ProducerFenced

TRANSACTIONAL_IDS_MAX = 100_000
TRANSACTIONAL_ID_CHARACTERS_MAX = 249
REMEMBERED_MS = 7 * 24 * 3600 * 1000
"""At the bound, a transactional id that was not asked for in this time makes room for a new one:
partitions have forgotten its sequences by then, too."""
EPOCH_MAX = 0xFFFF


class TransactionalRecord(msgspec.Struct, array_like=True, frozen=True):
    """One transactional id in a snapshot."""

    transactional_id: str
    producer_id: int
    epoch: int
    time_ms: int


class ProducerIdsRecord(msgspec.Struct, array_like=True, frozen=True):
    """All identities in a snapshot."""

    next_id: int
    transactional: list[TransactionalRecord]


class ProducerIds:
    """Every identity given out. One without a transactional id has epoch 0 for ever."""

    def __init__(self) -> None:
        self._next_id = 1
        self._transactional: dict[str, TransactionalRecord] = {}
        """The one asked for most recently is last."""
        self._epochs: dict[int, int] = {}

    def allocate(self, transactional_id: str | None, time_ms: int) -> tuple[int, int]:
        """A (producer id, epoch) that nobody has; it fences those before it of the same name.

        Raises BadRequest for a bad name, ClusterFull; nothing has changed then.
        """
        if transactional_id is None:
            return self._take_id(), 0
        if not 0 < len(transactional_id) <= TRANSACTIONAL_ID_CHARACTERS_MAX:
            raise BadRequest(
                f"a transactional id has 1 to {TRANSACTIONAL_ID_CHARACTERS_MAX} characters"
            )
        known = self._transactional.get(transactional_id)
        if known is None:
            self._make_room(time_ms)
        if known is None or known.epoch >= EPOCH_MAX:
            if known is not None:
                del self._epochs[known.producer_id]
            given = TransactionalRecord(transactional_id, self._take_id(), 0, time_ms)
        else:
            given = TransactionalRecord(
                transactional_id, known.producer_id, known.epoch + 1, time_ms
            )
        self._transactional.pop(transactional_id, None)
        self._transactional[transactional_id] = given
        self._epochs[given.producer_id] = given.epoch
        return given.producer_id, given.epoch

    def check(self, producer_id: int, epoch: int) -> None:
        """Raises NotFound for an id never given out, ProducerFenced for an epoch that is over."""
        if not 0 < producer_id < self._next_id:
            raise NotFound(
                f"producer id {producer_id} was never given out", producer_id=producer_id
            )
        current = self._epochs.get(producer_id, 0)
        if epoch < current:
            raise ProducerFenced(
                f"producer {producer_id} has epoch {current}, newer than {epoch}",
                producer_id=producer_id,
                epoch=current,
            )
        if epoch > current:
            raise NotFound(f"producer {producer_id} has no epoch {epoch}", producer_id=producer_id)

    @property
    def named(self) -> Mapping[str, TransactionalRecord]:
        """By transactional id, the one asked for most recently last."""
        return self._transactional

    def fresh(self, time_ms: int) -> Iterator[str]:
        """The transactional ids that make no room for others yet, newest first."""
        for record in reversed(self._transactional.values()):
            if record.time_ms + REMEMBERED_MS < time_ms:
                return
            yield record.transactional_id

    def dump(self) -> ProducerIdsRecord:
        """For a snapshot."""
        return ProducerIdsRecord(self._next_id, list(self._transactional.values()))

    def load(self, record: ProducerIdsRecord) -> None:
        """Replace everything by what `dump` told."""
        self._next_id = record.next_id
        self._transactional = {known.transactional_id: known for known in record.transactional}
        self._epochs = {known.producer_id: known.epoch for known in record.transactional}

    def _take_id(self) -> int:
        producer_id = self._next_id
        self._next_id += 1
        return producer_id

    def _make_room(self, time_ms: int) -> None:
        if len(self._transactional) < TRANSACTIONAL_IDS_MAX:
            return
        oldest = next(iter(self._transactional.values()))
        if oldest.time_ms + REMEMBERED_MS >= time_ms:
            raise ClusterFull(f"there are {TRANSACTIONAL_IDS_MAX} transactional ids already")
        del self._transactional[oldest.transactional_id]
        self._epochs.pop(oldest.producer_id, None)
