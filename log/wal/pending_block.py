"""The block that is being filled: records that wait for the next flush."""

from __future__ import annotations

from collections.abc import Sequence

from goqueue.wire.types import Lsn
from log.wal.format import RECORD, RECORD_BYTES, Record, RecordKind

NEVER_MS = 1 << 62


class PendingBlock:
    """Records as the parts that one block of the write-ahead log is written from."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.length = 0
        """Bytes of all parts."""
        self.records: list[Record] = []
        """What changes the state of groups: all but entries."""
        self.strict = False
        """Whether it must be synced before it counts as written."""
        self.sync_within_ms = NEVER_MS
        """Where it need not be, how long what it holds may stay unsynced."""
        self._open = b""
        """The key of the group whose append record is last, and still open."""
        self._open_at = 0
        self._open_length = 0

    def wait(self, sync_within_ms: int) -> None:
        """Something that it holds may stay unsynced for no longer than this."""
        self.sync_within_ms = min(self.sync_within_ms, sync_within_ms)

    def append(self, key: bytes, parts: Sequence[bytes], length: int) -> None:
        """Adds entries, of this many bytes together, to the group's open record or a new one."""
        if key != self._open:
            self._begin(RecordKind.APPEND, key, 0, length)
            self._open, self._open_at, self._open_length = key, len(self.parts) - 1, 0
        self._open_length += length
        self._add(parts, length)

    def add(
        self, kind: int, key: bytes, parts: Sequence[bytes], length: int, flags: int, start: int
    ) -> None:
        """Adds a record of another kind; `start` is the LSN at which the block's records begin."""
        self._begin(kind, key, flags, length)
        self._add(parts, length)
        self.records.append(Record(Lsn(start + self.length), kind, flags, key, b"".join(parts)))
        self.strict = True

    def end(self) -> None:
        """States the length of the append record that later appends of its group have joined."""
        if self._open:
            header = RECORD.pack(RecordKind.APPEND, 0, 0, self._open_length, self._open)
            self.parts[self._open_at] = header
            self._open = b""

    def _begin(self, kind: int, key: bytes, flags: int, length: int) -> None:
        self.end()
        self.parts.append(RECORD.pack(kind, flags, 0, length, key))
        self.length += RECORD_BYTES

    def _add(self, parts: Sequence[bytes], length: int) -> None:
        self.parts += parts
        self.length += length
