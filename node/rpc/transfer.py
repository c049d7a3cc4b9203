"""What two nodes say to each other while one copies a replica of the other's, byte for byte."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import msgspec
from crc32c import crc32c

from goqueue.wire.errors import BadRequest, Unavailable
from goqueue.wire.types import Index, PartitionId, Term
from goqueue.wire.unreadable import UNREADABLE
from log.copy.manifest import FileKind, Manifest, SegmentParts
from node.rpc.partitions import PartitionRequest

OFFER = "transfer_offer"
"""A leader to a replica that needs what its log no longer has: come and copy it."""
OPEN = "transfer_open"
READ = "transfer_read"
CLOSE = "transfer_close"
CHUNK_BYTES_MAX = 1 << 20

_READ = struct.Struct("<QBQQI")
_SESSION = struct.Struct("<Q")
_CRC = struct.Struct("<I")


class ChunkDamaged(Unavailable):
    """A chunk did not arrive as it was sent, time and again."""

    code = "chunk_damaged"


class TransferRequest(PartitionRequest, array_like=True, frozen=True):
    """One group: its copy is offered, or asked for."""

    partition: bytes

    def packed_partitions(self) -> Sequence[bytes]:
        return (self.partition,)


class ManifestAnswer(msgspec.Struct, array_like=True, frozen=True):
    """`Manifest` on the wire, and the session in which its parts can be read; segments as (first
    index, last index, bytes of frames file, bytes of offset index)."""

    session: int
    partition: bytes
    first_index: int
    base_term: int
    last_index: int
    last_term: int
    snapshot_index: int
    state_bytes: int
    state_crc: int
    segments: list[tuple[int, int, int, int]]


class ChunkRequest(msgspec.Struct, frozen=True):
    """Bytes of one part. On the wire a fixed header, which the answer's checksum covers too."""

    session: int
    kind: int
    first: int
    offset: int
    length: int

    def pack(self) -> bytes:
        return _READ.pack(self.session, self.kind, self.first, self.offset, self.length)


_manifest_decoder = msgspec.msgpack.Decoder(ManifestAnswer)


def encode_manifest(session: int, manifest: Manifest) -> bytes:
    return msgspec.msgpack.encode(
        ManifestAnswer(
            session,
            manifest.partition_id.pack(),
            manifest.first_index,
            manifest.base_term,
            manifest.last_index,
            manifest.last_term,
            manifest.snapshot_index,
            manifest.state_bytes,
            manifest.state_crc,
            [
                (part.first_index, part.last_index, part.segment_bytes, part.offsets_bytes)
                for part in manifest.segments
            ],
        )
    )


def decode_manifest(payload: bytes, partition_id: PartitionId) -> tuple[int, Manifest]:
    """(session, manifest). Raises `BadRequest` where it describes no replica of this group."""
    try:
        answer = _manifest_decoder.decode(payload)
    except UNREADABLE as error:
        raise BadRequest(f"a list of files is not understood: {error}") from error
    manifest = Manifest(
        partition_id,
        Index(answer.first_index),
        answer.base_term,
        Index(answer.last_index),
        Term(answer.last_term),
        answer.snapshot_index,
        answer.state_bytes,
        answer.state_crc,
        tuple(
            SegmentParts(Index(first), Index(last), size, offsets)
            for first, last, size, offsets in answer.segments
        ),
    )
    problem = "of another group" if answer.partition != partition_id.pack() else manifest.problem()
    if problem:
        raise BadRequest(f"a list of files is impossible: {problem}")
    return answer.session, manifest


def decode_chunk_request(payload: bytes) -> ChunkRequest:
    """Raises `BadRequest`."""
    if len(payload) != _READ.size:
        raise BadRequest("a request for a chunk is cut short")
    request = ChunkRequest(*_READ.unpack(payload))
    if request.kind not in frozenset(FileKind) or not 0 < request.length <= CHUNK_BYTES_MAX:
        raise BadRequest("a request for a chunk is impossible")
    return request


def encode_chunk(request: bytes, data: bytes) -> bytes:
    """The answer: a checksum over what was asked and what was read, then that."""
    return _CRC.pack(crc32c(data, crc32c(request))) + data


def decode_chunk(request: bytes, answer: bytes, length: int) -> bytes | None:
    """The bytes asked for; None where the answer is not whole, or is another's."""
    data = answer[_CRC.size :]
    if len(data) != length or _CRC.unpack_from(answer)[0] != crc32c(data, crc32c(request)):
        return None
    return data


def encode_session(session: int) -> bytes:
    return _SESSION.pack(session)


def decode_session(payload: bytes) -> int:
    """Raises `BadRequest`."""
    if len(payload) != _SESSION.size:
        raise BadRequest("a request names no session")
    session: int = _SESSION.unpack(payload)[0]
    return session
