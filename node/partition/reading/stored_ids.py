"""Message ids as they are stored: proof that a hash which is known belongs to the same id."""

from __future__ import annotations

from collections.abc import Callable

from goqueue.wire.batch import RecordBatch
from goqueue.wire.errors import GoQueueError, Unavailable
from goqueue.wire.types import Offset
from log.entry import Entry
from log.errors import LogError
from node.partition.reading.reader import stored_batches


class StoredIds:
    """Of one replica. Neighbours share a batch, of which the last one is kept. Loop thread only.

    `carried_id` tells the id of a message that is stored though the log before it has gone.
    """

    def __init__(
        self,
        entry_at: Callable[[Offset], Entry | None],
        carried_id: Callable[[Offset], str | None],
    ) -> None:
        self._entry_at = entry_at
        self._carried_id = carried_id
        self._base = Offset(0)
        self._ends: list[int] = []
        self._buffer: bytes = b""

    def verify(self, offset: Offset, message_id: str) -> bool:
        """Whether the message at the offset has this id; False for one that is no longer stored.

        Raises `Unavailable` where it can't be read: nobody knows then.
        """
        if not 0 <= offset - self._base < len(self._ends) - 1:
            try:
                self._load(offset)
            except (LogError, GoQueueError) as error:
                raise Unavailable(
                    f"message id {message_id[:64]!r} may be stored at offset {offset}, "
                    "which can't be read here now",
                    offset=offset,
                ) from error
        row = offset - self._base
        if not 0 <= row < len(self._ends) - 1:
            return False
        return self._buffer[self._ends[row] : self._ends[row + 1]] == message_id.encode()

    def _load(self, offset: Offset) -> None:
        """Places of ids alone: most batches have many ids, of which one is asked for."""
        entry = self._entry_at(offset)
        self._ends, self._buffer = [], b""
        if entry is None:
            id = (self._carried_id(offset) or "").encode()
            self._base, self._ends, self._buffer = offset, [0, len(id)], id
            return
        for base, count, stored in stored_batches(entry):
            if base <= offset < base + count:
                batch = RecordBatch.parse(stored)
                self._base, self._buffer = base, batch.buffer
                self._ends = batch.message_id_ends()
                return
