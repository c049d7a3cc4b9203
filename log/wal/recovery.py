"""From the write-ahead log to each group's hard state, checkpoint and newest entries.

Replay goes by LSN: of each group only what lies past the checkpoint's LSN is replayed, all of it,
whatever its index; an append at i implies that entries from i on were truncated.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from goqueue.wire.types import PartitionId
from log.disk.files import Disk
from log.entry import Entry, decode_frames
from log.errors import WalDamaged
from log.wal.format import FileHeader, Record, RecordKind, WalState, checkpoint_items
from log.wal.install import Install
from log.wal.reader import WalImage, read_wal

_TAIL_KINDS = (RecordKind.APPEND, RecordKind.TRUNCATE, RecordKind.INSTALL)


@dataclass(slots=True)
class Replay:
    """The fold of a whole log: final state, and per group the records past the checkpoint."""

    directory: str
    state: WalState = field(default_factory=WalState)
    image: WalImage | None = None
    _tails: dict[bytes, deque[Record]] = field(default_factory=dict)
    _bases: dict[PartitionId, int] = field(default_factory=dict)
    _first: bool = True

    def on_header(self, header: FileHeader) -> None:
        state = header.state
        if self._first or state.checkpoint_lsn > self.state.checkpoint_lsn:
            self._bases = {
                partition_id: meta.checkpoint_index
                for partition_id, meta in state.partitions.items()
            }
        self._first = False
        self.state = state
        self._prune()

    def on_record(self, record: Record) -> None:
        self.state.apply(record)
        kind, key = record.kind, record.key
        if kind in _TAIL_KINDS:
            tail = self._tails.get(key)
            if tail is None:
                tail = self._tails[key] = deque()
            if kind == RecordKind.INSTALL:
                tail.clear()  # whatever was logged before went with the log that was
            tail.append(record)
        elif kind == RecordKind.CHECKPOINT:
            for item in checkpoint_items(record.payload):
                self._bases[item.partition_id] = item.last
            self._prune()
        elif kind in (RecordKind.CREATE, RecordKind.REMOVE):
            self._tails.pop(key, None)
            self._bases[PartitionId.unpack(key)] = 0

    def installed(self, partition_id: PartitionId) -> Install | None:
        """The copy that took the log's place past the checkpoint: its files may be on their way."""
        tail = self._tails.get(partition_id.pack())
        if not tail or tail[0].kind != RecordKind.INSTALL:
            return None
        return Install.unpack(tail[0].payload)

    def tail(self, partition_id: PartitionId) -> tuple[list[Entry], str]:
        """Entries past the checkpoint, and what is wrong with them, if anything."""
        base = self._bases.get(partition_id, 0)
        entries: list[Entry] = []
        name = f"{self.directory}, group {partition_id}"
        for record in self._tails.get(partition_id.pack(), ()):
            if record.kind == RecordKind.TRUNCATE:
                kept = int.from_bytes(record.payload, "little") - 1
                base = min(base, kept)
                del entries[kept - base :]
                continue
            if record.kind == RecordKind.INSTALL:
                base = Install.unpack(record.payload).last_index
                continue
            for entry in decode_frames(record.payload, name=name):
                if not base < entry.index <= base + len(entries) + 1:
                    return [], f"entry {entry.index} does not follow {base + len(entries)}"
                if entry.index <= base + len(entries):
                    del entries[entry.index - base - 1 :]
                entries.append(entry)
        if base != self.state.partitions[partition_id].checkpoint_index:
            return [], f"replay begins at {base}, not at the checkpoint"
        return entries, ""

    def _prune(self) -> None:
        """Forgets records up to the checkpoint."""
        for tail in self._tails.values():
            while tail and tail[0].lsn <= self.state.checkpoint_lsn:
                tail.popleft()


def replay_wal(disk: Disk, directory: str) -> Replay:
    """Reads the log in this directory. Raises WalDamaged or NewerFormat."""
    replay = Replay(directory)
    replay.image = read_wal(disk, directory, replay.on_header, replay.on_record)
    if replay.image is not None:
        oldest = replay.image.files[0]
        if oldest.start_lsn > replay.state.checkpoint_lsn and oldest.number > 1:
            raise WalDamaged(oldest.path, 0, "the files before it are missing")
    return replay
