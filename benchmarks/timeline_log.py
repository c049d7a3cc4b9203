"""One partition's replica without a node around it: real entries, a real log, and timelines."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import cast

from delivery.entries.ops import Op, encode_ops
from delivery.entries.records import AppendBatch, encode_records
from delivery.state.partition import PartitionState
from delivery.timeline.message import Timeline
from goqueue.wire.batch import encode_columns
from goqueue.wire.types import Index, NodeId, Offset, PartitionId, TopicId, Voter
from log.config import StorageConfig
from log.disk.files import Disk
from log.entry import Entry, EntryKind, make_entry
from log.store.directory import Store
from node.partition.host import PartitionHost
from node.partition.reading.message_entry_index import PartitionEntryIndex
from node.partition.reading.reader import Bounds, PartitionReader
from node.partition.timeline_lookup import look_up

START_MS = 1_700_000_000_000
FLUSH_ENTRIES = 2000
VOTERS = ["node-1", "node-2", "node-3"]


class LoggedPartition:
    """What `look_up` asks of a replica. Every entry is applied at once, and written in bulk."""

    topic = "t"
    has_timelines = True
    is_leader = False
    voters: tuple[Voter, ...] = ()

    def __init__(self, disk: Disk, root: str, config: StorageConfig) -> None:
        self.id = PartitionId(TopicId(1, 1), 0)
        self.store = Store.open(disk, root, config)
        here = self.id in self.store.partition_ids()
        self.log = self.store.partition_log(self.id) if here else self.store.create_log(self.id)
        self.workers = ThreadPoolExecutor(2)
        self.now_ms = START_MS
        self.lag_ms: int | None = None
        self.state = PartitionState()
        self.state.queue.outcome_notes.vote(1, VOTERS)
        self._waiting: list[Entry] = []
        self.message_entries = PartitionEntryIndex(
            self.log,
            lambda: self.applied_index,
            lambda: self.state.queue.outcome_notes,
            self.workers,
        )
        self.reader = PartitionReader(self.log, self._bounds)

    @property
    def applied_index(self) -> Index:
        return self.state.applied_index

    def matches(self) -> dict[NodeId, Index]:
        return {}

    # entries

    def publish(self, count: int, size: int = 16, key: bytes | None = None) -> list[int]:
        """Offsets of so many messages."""
        base = self.state.next_offset
        batch = encode_columns([b"v" * size] * count, keys=[key] * count)
        body = b"".join(encode_records([AppendBatch(batch, count, 0)]))
        self._apply(EntryKind.RECORDS, body, base, count)
        return list(range(base, base + count))

    def do(self, *ops: Op) -> Index:
        """These operations as one entry: its index."""
        self._apply(EntryKind.QUEUE, encode_ops(ops))
        return self.applied_index

    def append(self) -> None:
        """All that was applied is in the log, if only in memory."""
        if self._waiting:
            self.log.append(self._waiting)
            self._waiting = []

    def flush(self) -> None:
        """All that was applied is on disk, in segments."""
        self.append()
        job = self.store.take_flush()
        if job is not None:
            job.sync()
            self.store.complete_flush(job)
            job.spill()
            self.store.complete_spill(job)
        if self.store.checkpoint_due:
            checkpoint = self.store.take_checkpoint()
            if checkpoint is not None:
                checkpoint.run()
                self.store.complete_checkpoint(checkpoint)
        self.log.evict(0)

    async def timeline(self, offset: int) -> Timeline:
        self.flush()
        return await look_up(cast("PartitionHost", self), Offset(offset))

    def close(self) -> None:
        self.flush()
        self.workers.shutdown()
        self.store.close()

    # private

    def _apply(self, kind: EntryKind, body: bytes, base: int = 0, count: int = 0) -> None:
        entry = make_entry(
            index=self.applied_index + 1,
            term=1,
            time_ms=self.now_ms,
            kind=kind,
            body=body,
            base_offset=base,
            record_count=count,
            matches=[self.applied_index] * len(VOTERS),
            lag_ms=self.lag_ms,
        )
        self.state.apply(entry)
        self._waiting.append(entry)
        if len(self._waiting) >= FLUSH_ENTRIES:
            self.flush()

    def _bounds(self) -> Bounds:
        state = self.state
        return Bounds(state.log_start_offset, state.next_offset, state.applied_index)


def in_pieces(offsets: Sequence[int], size: int) -> list[list[int]]:
    return [list(offsets[at : at + size]) for at in range(0, len(offsets), size)]
