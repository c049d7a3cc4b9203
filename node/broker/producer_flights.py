"""Which batches of idempotent producers are on their way from this node.

Batches of one producer go out together and may fail apart: when one is retried because leadership
moved, those behind it reach the new leader first and are out of order there, for a moment. Knowing
that an earlier one is on its way tells this from a real gap.
"""

from __future__ import annotations

from goqueue.wire.layout import HEADER
from goqueue.wire.types import PartitionId

_Key = tuple[PartitionId, int, int]


class Flight:
    """One append; a context from its beginning to its end."""

    __slots__ = ("_key", "_producers", "_sequence")

    def __init__(self, producers: ProducersInFlight, key: _Key | None, sequence: int) -> None:
        self._producers = producers
        self._key = key
        self._sequence = sequence

    @property
    def follows_another(self) -> bool:
        """Whether a batch with a lower sequence of the same producer is still on its way."""
        if self._key is None:
            return False
        return min(self._producers.sequences[self._key]) < self._sequence

    def __enter__(self) -> Flight:
        if self._key is not None:
            self._producers.sequences.setdefault(self._key, []).append(self._sequence)
        return self

    def __exit__(self, *_: object) -> None:
        if self._key is not None:
            sequences = self._producers.sequences[self._key]
            sequences.remove(self._sequence)
            if not sequences:
                del self._producers.sequences[self._key]


class ProducersInFlight:
    """By partition, producer and epoch: the first sequences of the batches on their way."""

    def __init__(self) -> None:
        self.sequences: dict[_Key, list[int]] = {}

    def entered(self, partition_id: PartitionId, batch: bytes) -> Flight:
        """The flight of an encoded batch; one without identity takes no part."""
        if len(batch) < HEADER.size:
            return Flight(self, None, 0)
        _, _, _, _, _, producer_id, _, epoch, _, _, sequence, *_ = HEADER.unpack_from(batch)
        if not producer_id:
            return Flight(self, None, 0)
        return Flight(self, (partition_id, producer_id, epoch), sequence)
