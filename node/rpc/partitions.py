"""What nodes ask each other over the peer link, byte for byte.

Publishes have a fixed header before the untouched batch; everything else is msgpack.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TypeVar, cast

import msgspec

from goqueue.wire.errors import BadRequest
from goqueue.wire.types import PARTITION_ID_BYTES, Offset, PartitionId
from goqueue.wire.unreadable import UNREADABLE
from node.api.archive import PartitionArchive
from node.api.records import MAJORITY, RELAXED, AppendResult, Slice, StoredBatch, Visibility

APPEND = "append"
READ = "read"
OFFSET_AT = "offset_at"
ENDS = "ends"
TRACE = "trace"
SYNC = "sync"
COMMAND = "command"
ENTRY = "entry"
CLUSTER_INDEX = "cluster_index"
MOVE_PROGRESS = "move_progress"
"""How far the partitions are that are being moved, of who leads the cluster group."""
COMMAND_TIMEOUT_S = 15.0
"""What a peer's command may take here; its own deadline is its own."""

_APPEND = struct.Struct("<QB")
_APPENDED = struct.Struct("<QIQB")
_VALIDATED = 1
_DUPLICATE, _RELAXED = 1, 2
"""Flags of the answer to an append."""


class PartitionRequest(msgspec.Struct, array_like=True, frozen=True):
    """The base of requests about groups."""

    def packed_partitions(self) -> Sequence[bytes]:
        """The groups named, in their packed form."""
        raise NotImplementedError


class ReadRequest(PartitionRequest, array_like=True, frozen=True):
    """A read of one partition at its leader."""

    partition: bytes
    offset: int
    max_records: int
    max_bytes: int
    wait_ms: int
    to_time_ms: int | None
    visible: bool = False
    current: bool = False
    """The end is confirmed whether or not what is answered reaches it."""

    def packed_partitions(self) -> Sequence[bytes]:
        return (self.partition,)


class SliceAnswer(msgspec.Struct, array_like=True, frozen=True):
    """`Slice` on the wire: batches as (base offset, log time, bytes), visibility as (log time, ttl,
    withdrawn offsets)."""

    batches: Sequence[tuple[int, int, bytes]]
    next_offset: int
    log_start: int
    end_offset: int
    visibility: tuple[int, int, Sequence[int]] | None = None


class OffsetRequest(PartitionRequest, array_like=True, frozen=True):
    """A time or an offset of one partition."""

    partition: bytes
    value: int

    def packed_partitions(self) -> Sequence[bytes]:
        return (self.partition,)


class PartitionsRequest(PartitionRequest, array_like=True, frozen=True):
    """Partitions: whose ends are wanted (`linear`: from their leaders, not older than the
    question), or whose logs are to be synced."""

    partitions: list[bytes]
    linear: bool = False

    def packed_partitions(self) -> Sequence[bytes]:
        return self.partitions


class PartitionOffsets(msgspec.Struct, array_like=True, frozen=True):
    """What one replica knows of its partition."""

    partition: bytes
    earliest: int
    next: int
    leader: str | None
    isr: list[str]
    size_bytes: int
    is_leader: bool
    archive: PartitionArchive | None = None


class PartitionOffsetsAnswer(msgspec.Struct, array_like=True, frozen=True):
    """Of the partitions asked for, those that could answer."""

    offsets: list[PartitionOffsets]


GroupTraced = tuple[str, str, int, str, int, int, str]
"""Name, state, attempts; consumer and end of a lease; when it comes again, and why it failed."""


class TraceAnswer(msgspec.Struct, array_like=True, frozen=True):
    """What the leader knows of one message: (time, type, attributes) of each event, and where it
    stands in each group."""

    message_id: str | None
    events: list[tuple[int, str, dict[str, str | int | list[str]]]]
    groups: list[GroupTraced] = []
    status: str = "in_progress"
    attempts: int = 0
    exact: bool = True


class SyncAnswer(msgspec.Struct, array_like=True, frozen=True):
    """Index through which each group is synced, in the order asked; 0 where it isn't here. `leads`
    says of each whether it is led there, as of a moment after the question."""

    indexes: list[int]
    leads: list[bool] = []


R = TypeVar("R", bound=PartitionRequest)

encode = msgspec.msgpack.Encoder().encode
_slice_decoder = msgspec.msgpack.Decoder(SliceAnswer)
_trace_decoder = msgspec.msgpack.Decoder(TraceAnswer)
_offsets_decoder = msgspec.msgpack.Decoder(PartitionOffsetsAnswer)
_sync_decoder = msgspec.msgpack.Decoder(SyncAnswer)
decode_trace = _trace_decoder.decode
decode_offsets = _offsets_decoder.decode
decode_sync = _sync_decoder.decode


def encode_append(
    partition_id: PartitionId, request_id: int, validated: bool, batch: bytes
) -> bytes:
    return b"".join(
        (partition_id.pack(), _APPEND.pack(request_id, _VALIDATED if validated else 0), batch)
    )


def decode_append(payload: bytes) -> tuple[PartitionId, int, bool, bytes]:
    """(group, request id, validated, batch). Raises `BadRequest` on a short payload."""
    at = PARTITION_ID_BYTES + _APPEND.size
    if len(payload) < at:
        raise BadRequest("an append is cut short")
    request_id, flags = _APPEND.unpack_from(payload, PARTITION_ID_BYTES)
    return PartitionId.unpack(payload), request_id, bool(flags & _VALIDATED), payload[at:]


def encode_appended(result: AppendResult) -> bytes:
    """A fixed header, then a number a row where they don't follow each other: its offset, doubled,
    and one more for a duplicate."""
    flags = _DUPLICATE * result.duplicate | _RELAXED * (result.durability == RELAXED)
    head = _APPENDED.pack(result.base_offset, result.count, result.time_ms, flags)
    if result.rows is None:
        return head
    numbers = [2 * offset + duplicate for offset, duplicate in result.rows]
    return head + struct.pack(f"<{len(numbers)}Q", *numbers)


def decode_appended(payload: bytes) -> AppendResult:
    base_offset, count, time_ms, flags = _APPENDED.unpack_from(payload)
    rows = None
    if len(payload) > _APPENDED.size:
        numbers = struct.unpack_from(f"<{count}Q", payload, _APPENDED.size)
        rows = tuple((Offset(number >> 1), bool(number & 1)) for number in numbers)
    durability = RELAXED if flags & _RELAXED else MAJORITY
    return AppendResult(
        Offset(base_offset), count, bool(flags & _DUPLICATE), time_ms, durability, rows
    )


def encode_slice(slice_: Slice) -> bytes:
    batches = [
        (stored.base_offset, stored.time_ms, cast(bytes, stored.batch))  # msgpack takes views too
        for stored in slice_.batches
    ]
    seen = slice_.visibility
    return encode(
        SliceAnswer(
            batches,
            slice_.next_offset,
            slice_.log_start,
            slice_.end_offset,
            None if seen is None else (seen.time_ms, seen.ttl_ms, seen.withdrawn),
        )
    )


def decode_slice(payload: bytes) -> Slice:
    answer = _slice_decoder.decode(payload)
    return Slice(
        [StoredBatch(Offset(base), time_ms, batch) for base, time_ms, batch in answer.batches],
        Offset(answer.next_offset),
        Offset(answer.log_start),
        Offset(answer.end_offset),
        None if answer.visibility is None else Visibility(*answer.visibility),
    )


def decode_request(payload: bytes, type_: type[R]) -> R:
    """A peer's request. Raises `BadRequest`."""
    try:
        decoded = msgspec.msgpack.decode(payload, type=type_)
    except UNREADABLE as error:
        raise BadRequest(f"a peer's request is not understood: {error}") from error
    if any(len(packed) != PARTITION_ID_BYTES for packed in decoded.packed_partitions()):
        raise BadRequest("a peer's request names no group")
    return decoded
