"""A partition's state: what its applied entries add up to. The same on every replica."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import msgspec

from delivery.dedup.message_ids import MessageIds
from delivery.dedup.producers import ProducerRecord, Producers, StoredSequence
from delivery.dedup.requests import Requests, RequestsRecord
from delivery.entries.columns import stored_header
from delivery.entries.ops import Configure, Result, decode_ops
from delivery.entries.reappended import decode_reappended
from delivery.entries.records import decode_appended, decode_trim
from delivery.errors import Diverged, SnapshotUnreadable, UnknownKind
from delivery.history.compacted_set import decode_compaction
from delivery.offsets.bitmaps import BitMap64, span
from delivery.state.queue import QueueState
from delivery.state.queue_snapshot import (
    QueueRecord,
    begin_outcome_notes,
    dump_queue,
    encode_bitmaps,
    load_queue,
)
from delivery.state.settled import is_settled
from goqueue.wire.types import Index, Offset
from goqueue.wire.unreadable import UNREADABLE
from log.entry import Entry, EntryKind

SNAPSHOT_VERSION = 2
COMPACTED_VERSION = 3
ARCHIVED_VERSION = 4
"""Of partitions that were compacted, or told of an archive: releases that know nothing of it can
not take them over."""
STREAMED_VERSION = 5
"""Of partitions with leases of streams, which come with `Feature.STREAMS`: it holds what the others
hold, and those."""
_VERSIONS = (SNAPSHOT_VERSION, COMPACTED_VERSION, ARCHIVED_VERSION, STREAMED_VERSION)


class PublishResult(msgspec.Struct, array_like=True, frozen=True):
    """Where one batch of a records entry is stored."""

    base_offset: int
    count: int


class _Snapshot(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    version: int
    applied_index: int
    time_ms: int
    next_offset: int
    log_start_index: int
    log_start_offset: int
    producers: list[ProducerRecord]
    requests: RequestsRecord
    message_ids: bytes
    queue: QueueRecord


_decoder = msgspec.msgpack.Decoder(_Snapshot)


class PartitionState:
    """Entries in, state out: no clock, no I/O. `apply` never fails on what a batch contains."""

    def __init__(self) -> None:
        self.applied_index = Index(0)
        self.time_ms = 0
        """Log time of the newest applied entry."""
        self.next_offset = Offset(0)
        self.log_start_index = Index(1)
        self.log_start_offset = Offset(0)
        self.producers = Producers()
        self.requests = Requests()
        self.message_ids = MessageIds()
        self.queue = QueueState()

    def apply(self, entry: Entry) -> list[PublishResult] | list[Result] | None:
        """Take the next committed entry: where each of its batches is stored, or what each of its
        operations resulted in.

        Entries of Raft's own may be left out. Raises Diverged where the entry does not follow,
        UnknownKind for one of a newer version: nothing has changed then, and nothing may follow.
        """
        if entry.index <= self.applied_index:
            raise Diverged(f"entry {entry.index} after entry {self.applied_index}")
        apply = _APPLY.get(entry.kind)
        if apply is None:
            raise UnknownKind(f"entry {entry.index} has the unknown kind {entry.kind}")
        results = apply(self, entry)
        self.applied_index = entry.index
        self.time_ms = entry.time_ms
        return results

    def snapshot(self) -> bytes:
        """The whole state; equal bytes on replicas that applied the same entries."""
        return self.freeze()()

    def freeze(self) -> Callable[[], bytes]:
        """The state as of now, copied; the call, on any thread, encodes it as `snapshot` does."""
        frozen = _Snapshot(
            self._version(),
            self.applied_index,
            self.time_ms,
            self.next_offset,
            self.log_start_index,
            self.log_start_offset,
            self.producers.dump(),
            self.requests.dump(),
            self.message_ids.dump(),
            dump_queue(self.queue),
        )
        return partial(msgspec.msgpack.Encoder(enc_hook=encode_bitmaps).encode, frozen)

    def restore(self, state: bytes) -> None:
        """Replace everything by a snapshot. Raises SnapshotUnreadable, changing nothing."""
        found = _decode_snapshot(state)
        message_ids = MessageIds()
        message_ids.evicted = self.message_ids.evicted
        try:
            message_ids.load(found.message_ids)
            self.producers.load(found.producers)
        except (ValueError, OverflowError) as error:
            raise SnapshotUnreadable(f"not a partition snapshot: {error}") from error
        self.applied_index = Index(found.applied_index)
        self.time_ms = found.time_ms
        self.next_offset = Offset(found.next_offset)
        self.log_start_index = Index(found.log_start_index)
        self.log_start_offset = Offset(found.log_start_offset)
        self.requests.load(found.requests)
        self.message_ids = message_ids
        self.queue = load_queue(found.queue)
        self.queue.log_start_offset, self.queue.time_ms = found.log_start_offset, found.time_ms
        if found.queue.outcome_notes is None:
            begin_outcome_notes(self.queue, found.applied_index, found.log_start_index)
        self._remember_ids()

    def _apply_records(self, entry: Entry) -> list[PublishResult]:
        if entry.base_offset != self.next_offset:
            raise Diverged(
                f"entry {entry.index} has offset {entry.base_offset}, not {self.next_offset}"
            )
        batches = list(decode_appended(entry.body, entry.base_offset))
        if sum(batch.count for batch in batches) != entry.record_count:
            raise Diverged(f"entry {entry.index} does not hold {entry.record_count} records")
        requests: list[tuple[int, Offset]] = []
        self.queue.advance(entry.time_ms)
        for batch in batches:
            if batch.count:
                self.queue.stored(batch, stored_header(batch.batch), entry.time_ms)
            stamp = batch.stamp()
            if stamp is not None:
                stored = StoredSequence(stamp.base_sequence, stamp.count, batch.base_offset)
                self.producers.stored(stamp.producer_id, stamp.epoch, stored, entry.time_ms)
            elif batch.tag:
                requests.append((batch.tag, batch.base_offset))
            ids = batch.message_ids()
            if ids is not None:
                self.message_ids.stored(ids, batch.base_offset, entry.time_ms)
        self.requests.stored(requests, entry.time_ms)
        self.requests.forget(entry.time_ms)
        self.producers.forget(entry.time_ms)
        self.message_ids.forget(entry.time_ms)
        self.next_offset = Offset(entry.base_offset + entry.record_count)
        return [PublishResult(batch.base_offset, batch.count) for batch in batches]

    def _apply_queue(self, entry: Entry) -> list[Result]:
        try:
            ops = decode_ops(entry.body)
        except UNREADABLE as error:
            raise UnknownKind(f"entry {entry.index} has an unknown operation: {error}") from error
        self.queue.advance(entry.time_ms)
        results = self.queue.apply(ops, entry.index, entry.time_ms)
        if any(isinstance(op, Configure) for op in ops):
            self._remember_ids()
        return results

    def _apply_carried(self, entry: Entry) -> None:
        self.queue.advance(entry.time_ms)
        for reappended in decode_reappended(entry.body):
            self.queue.carry(reappended.offsets, entry.index)

    def _apply_trim(self, entry: Entry) -> None:
        """The log begins later, unless something would be lost that must be kept; or, where only
        what is settled may go, that a group has to do."""
        trim = decode_trim(entry.body)
        self.queue.advance(entry.time_ms)
        index = Index(max(self.log_start_index, min(trim.index, entry.index)))
        offset = Offset(max(self.log_start_offset, min(trim.offset, self.next_offset)))
        if (index, offset) == (self.log_start_index, self.log_start_offset):
            return
        allowed = self.may_drop(offset) and self.queue.may_trim(index, offset)
        if allowed and (not trim.settled or is_settled(self.queue, index, offset)):
            self.queue.trim(index, offset)
            self.log_start_index, self.log_start_offset = index, offset
        else:
            self.queue.did_nothing(entry.index)

    def _apply_kept(self, entry: Entry) -> None:
        self.queue.advance(entry.time_ms)
        offsets = [o for reappended in decode_reappended(entry.body) for o in reappended.offsets]
        self.queue.compacted_set.carry(entry.index, len(entry.frame), offsets)

    def _apply_compact(self, entry: Entry) -> None:
        """The log begins later, but for what is kept: unless that is not what the leader saw, or
        something would be lost."""
        decision = decode_compaction(entry.body)
        self.queue.advance(entry.time_ms)
        index, offset = decision.index, decision.offset
        is_current = decision.from_index == self.log_start_index <= index <= entry.index
        within = self.log_start_offset <= offset <= self.next_offset
        allowed = is_current and within and self.queue.compacted_set.allows(decision)
        allowed = allowed and self.may_drop(offset, decision.kept)
        if allowed and self.queue.may_trim(index, offset):
            self.queue.compact(decision, entry.time_ms)
            self.log_start_index, self.log_start_offset = index, offset
        else:
            self.queue.did_nothing(entry.index)

    def evicted(self) -> dict[str, int]:
        """What was forgotten against duplicates before its time, for want of room, by its kind:
        since this replica started, in entries that it applied."""
        return {
            "producer": self.producers.evicted,
            "request": self.requests.evicted,
            "message_id": self.message_ids.evicted,
            "result": self.queue.results.evicted,
        }

    @property
    def first_offset(self) -> Offset:
        """The first message that readers find: what compaction has kept comes before the log."""
        kept = self.queue.compacted_set.offsets
        return Offset(kept.min()) if kept else self.log_start_offset

    def may_drop(
        self, offset: int, kept: BitMap64 | None = None, *, required: bool = False
    ) -> bool:
        """Whether the log may begin at the offset, and of what is before only `kept` stay, as far
        as messages wait for the archive: or would, where that is `required`."""
        archive = self.queue.archive
        if not (required or archive.required):
            return True
        gone = self.queue.compacted | span(self.log_start_offset, offset)
        if kept:
            gone -= kept
        return not gone or archive.lets_go(gone.max(), required=required)

    def _version(self) -> int:
        if any(group.leases.runs for group in self.queue.groups.values()):
            return STREAMED_VERSION
        if not self.queue.archive.is_unused:
            return ARCHIVED_VERSION
        return SNAPSHOT_VERSION if self.queue.compacted_set.is_empty else COMPACTED_VERSION

    def _remember_ids(self) -> None:
        config = self.queue.config
        self.message_ids.configure(config.dedup_window_ms, config.dedup_max)
        self.producers.configure(config.dedup_producers_bytes)
        self.requests.configure(config.dedup_requests_bytes)

    def _nothing(self, _entry: Entry) -> None:
        return None


_APPLY: dict[int, Callable[[PartitionState, Entry], list[PublishResult] | list[Result] | None]] = {
    EntryKind.NOOP: PartitionState._nothing,
    EntryKind.VOTERS: PartitionState._nothing,
    EntryKind.RECORDS: PartitionState._apply_records,
    EntryKind.TRIM: PartitionState._apply_trim,
    EntryKind.QUEUE: PartitionState._apply_queue,
    EntryKind.CARRIED: PartitionState._apply_carried,
    EntryKind.KEPT: PartitionState._apply_kept,
    EntryKind.COMPACT: PartitionState._apply_compact,
}


def _decode_snapshot(state: bytes) -> _Snapshot:
    try:
        version = msgspec.msgpack.decode(state, type=list[msgspec.Raw])[0]
        if msgspec.msgpack.decode(version) not in _VERSIONS:
            raise SnapshotUnreadable("a partition snapshot of another version")
        return _decoder.decode(state)
    except (*UNREADABLE, IndexError) as error:
        raise SnapshotUnreadable(f"not a partition snapshot: {error}") from error
