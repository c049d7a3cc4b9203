"""What nodes ask each other over the peer link, byte for byte.

Publishes have a fixed header before the untouched batch; everything else is msgpack.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import cast

import msgspec

from goqueue.wire.errors import BadRequest
from goqueue.wire.types import GROUP_ID_BYTES, GroupId, Offset
from node.http.broker import AppendResult, Slice, StoredBatch

APPEND = "append"
READ = "read"
OFFSET_AT = "offset_at"
END_OFFSETS = "end_offsets"
TRACE = "trace"
SYNC = "sync"
COMMAND = "command"

_APPEND = struct.Struct("<QB")
_APPENDED = struct.Struct("<QIQB")
_VALIDATED = 1


class ReadRequest(msgspec.Struct, array_like=True, frozen=True):
    """A read of one partition at its leader."""

    group: bytes
    offset: int
    max_records: int
    max_bytes: int
    wait_ms: int
    to_time_ms: int | None


class SliceAnswer(msgspec.Struct, array_like=True, frozen=True):
    """`Slice` on the wire: batches as (base offset, log time, bytes)."""

    batches: Sequence[tuple[int, int, bytes]]
    next_offset: int
    log_start: int
    end_offset: int


class OffsetRequest(msgspec.Struct, array_like=True, frozen=True):
    """A time or an offset of one partition."""

    group: bytes
    value: int


class EndsRequest(msgspec.Struct, array_like=True, frozen=True):
    """The partitions whose ends are wanted."""

    groups: list[bytes]


class EndsAnswer(msgspec.Struct, array_like=True, frozen=True):
    """(group, earliest, next) of those that could answer."""

    ends: list[tuple[bytes, int, int]]


class TraceAnswer(msgspec.Struct, array_like=True, frozen=True):
    """What the leader knows of one message: (time, type, attributes) of each event."""

    message_id: str | None
    events: list[tuple[int, str, dict[str, str | int | list[str]]]]


class SyncRequest(msgspec.Struct, array_like=True, frozen=True):
    """Sync the write-ahead log; answer with the synced end of each group asked for."""

    groups: list[bytes]


class SyncAnswer(msgspec.Struct, array_like=True, frozen=True):
    """Index through which each group is on disk, in the order asked; 0 where it isn't here."""

    indexes: list[int]


encode = msgspec.msgpack.Encoder().encode
_slice_decoder = msgspec.msgpack.Decoder(SliceAnswer)


def encode_append(group: GroupId, request_id: int, validated: bool, batch: bytes) -> bytes:
    return b"".join((group.pack(), _APPEND.pack(request_id, _VALIDATED if validated else 0), batch))


def decode_append(payload: bytes) -> tuple[GroupId, int, bool, bytes]:
    """(group, request id, validated, batch). Raises `BadRequest` on a short payload."""
    at = GROUP_ID_BYTES + _APPEND.size
    if len(payload) < at:
        raise BadRequest("an append is cut short")
    request_id, flags = _APPEND.unpack_from(payload, GROUP_ID_BYTES)
    return GroupId.unpack(payload), request_id, bool(flags & _VALIDATED), payload[at:]


def encode_appended(result: AppendResult) -> bytes:
    return _APPENDED.pack(result.base_offset, result.count, result.time_ms, result.duplicate)


def decode_appended(payload: bytes) -> AppendResult:
    base_offset, count, time_ms, duplicate = _APPENDED.unpack(payload)
    return AppendResult(Offset(base_offset), count, bool(duplicate), time_ms)


def encode_slice(slice_: Slice) -> bytes:
    batches = [
        (stored.base_offset, stored.time_ms, cast(bytes, stored.batch))  # msgpack takes views too
        for stored in slice_.batches
    ]
    return encode(SliceAnswer(batches, slice_.next_offset, slice_.log_start, slice_.end_offset))


def decode_slice(payload: bytes) -> Slice:
    answer = _slice_decoder.decode(payload)
    return Slice(
        [StoredBatch(Offset(base), time_ms, batch) for base, time_ms, batch in answer.batches],
        Offset(answer.next_offset),
        Offset(answer.log_start),
        Offset(answer.end_offset),
    )
