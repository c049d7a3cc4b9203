"""A partition's state: what its applied entries add up to. The same on every replica."""

from __future__ import annotations

import msgspec

from delivery.errors import Diverged, SnapshotUnreadable, UnknownKind
from delivery.message_ids import MessageIds
from delivery.producers import ProducerRecord, Producers, StoredSequence
from delivery.records import decode_records, decode_trim
from delivery.requests import Requests, RequestsRecord
from goqueue.wire.types import Index, Offset
from log.entry import Entry, EntryKind

SNAPSHOT_VERSION = 2


class PublishResult(msgspec.Struct, array_like=True, frozen=True):
    """Where one batch of a records entry is stored."""

    base_offset: int
    count: int


class _Snapshot(msgspec.Struct, array_like=True, frozen=True):
    version: int
    applied_index: int
    time_ms: int
    next_offset: int
    log_start_index: int
    log_start_offset: int
    producers: list[ProducerRecord]
    requests: RequestsRecord
    message_ids: bytes


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

    def apply(self, entry: Entry) -> list[PublishResult] | None:
        """Take the next committed entry; for records, where each of its batches is stored.

        Entries of Raft's own may be left out. Raises Diverged where the entry does not follow,
        UnknownKind for one of a newer version: the replica must stop then, nothing has changed.
        """
        if entry.index <= self.applied_index:
            raise Diverged(f"entry {entry.index} after entry {self.applied_index}")
        results = None
        if entry.kind == EntryKind.RECORDS:
            results = self._apply_records(entry)
        elif entry.kind == EntryKind.TRIM:
            self._apply_trim(entry)
        elif entry.kind not in (EntryKind.NOOP, EntryKind.VOTERS):
            raise UnknownKind(f"entry {entry.index} has the unknown kind {entry.kind}")
        self.applied_index = entry.index
        self.time_ms = entry.time_ms
        return results

    def snapshot(self) -> bytes:
        """The whole state; equal bytes on replicas that applied the same entries."""
        return msgspec.msgpack.encode(
            _Snapshot(
                SNAPSHOT_VERSION,
                self.applied_index,
                self.time_ms,
                self.next_offset,
                self.log_start_index,
                self.log_start_offset,
                self.producers.dump(),
                self.requests.dump(),
                self.message_ids.dump(),
            )
        )

    def restore(self, state: bytes) -> None:
        """Replace everything by a snapshot. Raises SnapshotUnreadable, changing nothing."""
        found = _decode_snapshot(state)
        message_ids = MessageIds()
        try:
            message_ids.load(found.message_ids)
        except ValueError as error:
            raise SnapshotUnreadable(f"not a partition snapshot: {error}") from error
        self.applied_index = Index(found.applied_index)
        self.time_ms = found.time_ms
        self.next_offset = Offset(found.next_offset)
        self.log_start_index = Index(found.log_start_index)
        self.log_start_offset = Offset(found.log_start_offset)
        self.producers.load(found.producers)
        self.requests.load(found.requests)
        self.message_ids = message_ids

    def _apply_records(self, entry: Entry) -> list[PublishResult]:
        if entry.base_offset != self.next_offset:
            raise Diverged(
                f"entry {entry.index} has offset {entry.base_offset}, not {self.next_offset}"
            )
        batches = list(decode_records(entry.body, entry.base_offset))
        if sum(batch.count for batch in batches) != entry.record_count:
            raise Diverged(f"entry {entry.index} does not hold {entry.record_count} records")
        requests: list[tuple[int, Offset]] = []
        for batch in batches:
            if batch.request_id:
                requests.append((batch.request_id, batch.base_offset))
            stamp = batch.stamp()
            if stamp is not None:
                stored = StoredSequence(stamp.base_sequence, batch.count, batch.base_offset)
                self.producers.stored(stamp.producer_id, stamp.epoch, stored, entry.time_ms)
            ids = batch.message_ids()
            if ids is not None:
                self.message_ids.stored(ids, batch.base_offset, entry.time_ms)
        self.requests.stored(requests, entry.time_ms)
        self.requests.forget(entry.time_ms)
        self.producers.forget(entry.time_ms)
        self.message_ids.forget(entry.time_ms)
        self.next_offset = Offset(entry.base_offset + entry.record_count)
        return [PublishResult(batch.base_offset, batch.count) for batch in batches]

    def _apply_trim(self, entry: Entry) -> None:
        trim = decode_trim(entry.body)
        self.log_start_index = Index(max(self.log_start_index, min(trim.index, entry.index)))
        self.log_start_offset = Offset(
            max(self.log_start_offset, min(trim.offset, self.next_offset))
        )


def _decode_snapshot(state: bytes) -> _Snapshot:
    try:
        version = msgspec.msgpack.decode(state, type=list[msgspec.Raw])[0]
        if msgspec.msgpack.decode(version) != SNAPSHOT_VERSION:
            raise SnapshotUnreadable("a partition snapshot of another version")
        return _decoder.decode(state)
    except (msgspec.MsgspecError, IndexError) as error:
        raise SnapshotUnreadable(f"not a partition snapshot: {error}") from error
