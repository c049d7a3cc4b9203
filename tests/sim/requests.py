"""What a client asks of a node, and how that ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from delivery.leader.appender import Rows
from goqueue.wire.batch import RecordBatch
from goqueue.wire.types import Offset, PartitionId

Identity = tuple[int, int, int] | int
"""(producer id, epoch, base sequence), or a request id: what must not be stored twice."""


@dataclass(frozen=True, slots=True)
class Stored:
    """The batch is stored, as durable as was promised."""

    base_offset: Offset
    duplicate: bool
    count: int = 1
    rows: Rows | None = None
    """Of a batch some of whose rows were known by their ids."""

    def each(self) -> Rows:
        """(offset, duplicate) of each row."""
        if self.rows is not None:
            return self.rows
        return tuple((Offset(self.base_offset + n), self.duplicate) for n in range(self.count))


@dataclass(frozen=True, slots=True)
class Refused:
    """The batch is not stored; with `unknown`, it may be, or may yet be."""

    unknown: bool


Answer = Stored | Refused


@dataclass(slots=True)
class Publish:
    """One batch on its way; `reply` is called once, or never if the node dies."""

    partition_id: PartitionId
    batch: RecordBatch
    request_id: int
    reply: Callable[[Answer], None]

    @property
    def identity(self) -> Identity:
        batch = self.batch
        if batch.producer_id:
            return batch.producer_id, batch.producer_epoch, batch.base_sequence
        return self.request_id
