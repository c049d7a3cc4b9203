"""Logs that stand in the write-ahead log alone, as long as nothing is published to them.

What a partition's founding and its elections leave in its log is a few hundred bytes. As segments
they would be three files, each written and synced at first and looked at whenever the store is
opened, for each of thousands of partitions that may never hold a message. So a log gets segments
with the first entry that is of another kind, or with more entries than are cheap to write again.

Until then each of its records has all its entries, and each checkpoint is preceded by another one:
so what the write-ahead log still has behind a checkpoint always begins with the whole log. Nothing
of this is seen in the format: entries that are logged again replace those that were there.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence

from goqueue.wire.types import Lsn
from log.entry import Entry
from log.partition.log import PartitionLog
from log.wal.pending_block import PendingBlock

AGAIN_A_TURN = 256
"""Logs written again before the loop is given back."""


class WalOnlyLogs:
    """Those of one store. Belongs to the loop's thread."""

    def __init__(self) -> None:
        self._lsns: OrderedDict[PartitionLog, Lsn] = OrderedDict()
        """Of the last record that is sure to have all of a log, in the order of these."""

    def add(self, log: PartitionLog, lsn: Lsn) -> None:
        """This log has no segments, and was logged whole before this LSN, the newest so far."""
        log.wal_only = True
        self._lsns[log] = lsn

    def forget(self, log: PartitionLog) -> None:
        self._lsns.pop(log, None)

    def log_again(self, lsn: Lsn) -> bool:
        """Logs some of those again that stand in records up to this LSN; whether others are left.
        Raises StoreFailed."""
        for _ in range(AGAIN_A_TURN):
            log, logged_lsn = next(iter(self._lsns.items()), (None, Lsn(0)))
            if log is None or logged_lsn > lsn:
                return False
            if log.wal_only:
                self._lsns[log] = log.log_again()
                self._lsns.move_to_end(log)
            else:
                del self._lsns[log]
        return True


def whole_logs(logs: Iterable[tuple[bytes, Sequence[Entry]]]) -> bytes:
    """Records that state these logs whole, each with its group's key."""
    block = PendingBlock()
    for key, entries in logs:
        if frames := [entry.frame for entry in entries]:
            block.append(key, frames, sum(map(len, frames)))
    block.end()
    return b"".join(block.parts)
