"""The write-ahead log's format: file headers, flush blocks and the records inside them.

All little-endian. An LSN counts block bytes, headers included, over all files; file headers are
not counted. So the block at LSN n of a file that starts at LSN s lies at byte
`header_bytes + n - s`, and a record's LSN, the block position after its last byte, is known when it
is appended.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from crc32c import crc32c

from goqueue.wire.types import PARTITION_ID_BYTES, Index, Lsn, PartitionId
from log.errors import NewerFormat, WalDamaged
from log.wal.install import Install

FORMAT = 1
FILE_MAGIC = b"GQ-WAL\r\n"
BLOCK_MAGIC = b"GQwB"

PREFIX = struct.Struct("<8sIHHI")
"""Magic, CRC-32C of all that follows it, format, zero, header bytes: kept by every later format."""
_FILE = struct.Struct("<QQQQQQI")
_GROUP = struct.Struct("<QQQQQQQH")
_NO_VOTE = 0xFFFF
BLOCK = struct.Struct("<4sIQQQII")
BLOCK_BYTES = BLOCK.size
FILE_ID_AT = 8
"""Where in a block's header the file's id stands."""
GOES_ON = 1
"""A flag of a block without payload, the last one of its file: the next file exists, durably, and
may hold more. See `log.wal.writer`."""
_FLAGS_AT = BLOCK_BYTES - 4
RECORD = struct.Struct("<BBHI20s")
RECORD_BYTES = RECORD.size
_PAIR = struct.Struct("<QQ")
_CHECKPOINT_ITEM = struct.Struct("<20sQQ")
_HEADER_BYTES_MAX = 64 << 20


class RecordKind(IntEnum):
    """What a record in a flush block says about its group (or about the node: CHECKPOINT,
    CLOSED)."""

    APPEND = 1
    HARD_STATE = 2
    TRUNCATE = 3
    CREATE = 4
    REMOVE = 5
    CHECKPOINT = 6
    START = 7
    DAMAGED = 8
    DURABILITY = 9
    CLOSED = 10
    INSTALL = 11


RELAXED = 1
SUSPECT = 2
"""Flags of a group: in a DURABILITY record, and behind the groups in a file header."""


@dataclass(slots=True)
class LogMeta:
    """What the write-ahead log knows of a group besides its entries.

    Segments hold, synced, `first_index` to `checkpoint_index`. `base_term` is the term of the entry
    before the first, 0 where unknown. A quarantined group has a damaged range, else both are 0.
    `created_lsn` tells the group from an earlier one of the same id. `relaxed` appends are
    acknowledged unsynced; a `suspect` group may have lost some of them in a power cut.
    """

    term: int = 0
    vote: str | None = None
    checkpoint_index: int = 0
    first_index: int = 1
    base_term: int = 0
    damaged_first: int = 0
    damaged_last: int = 0
    created_lsn: int = 0
    relaxed: bool = False
    suspect: bool = False

    def install(self, install: Install) -> None:
        """The group's log is another one from now on, in files that were synced before."""
        self.first_index, self.base_term = install.first_index, install.base_term
        self.checkpoint_index = install.last_index
        known = (Index(self.damaged_first), Index(self.damaged_last))
        self.damaged_first, self.damaged_last = install.damage_left(known) or (0, 0)


@dataclass(slots=True)
class WalState:
    """The fold of all records up to some LSN: what a file header states.

    Of every group, everything logged up to `checkpoint_lsn` is in synced segments, or was logged
    again behind it (`log.store.wal_only`). `boot_id` is that of the machine's boot in which it was
    written, empty where it was not noted.
    """

    checkpoint_lsn: int = 0
    partitions: dict[PartitionId, LogMeta] = field(default_factory=dict)
    boot_id: str = ""
    closed: bool = False
    """Nothing unsynced was left behind: the last process closed the log, and nobody went on."""

    def begin(self, boot_id: str, *, sync_failed: bool = False) -> bool:
        """A process opens the log in this boot, maybe after a sync failed in it; whether unsynced
        appends may have been lost.

        If so, every group that had such appends is suspect from now on.
        """
        unclean = (self.boot_id not in ("", boot_id) or sync_failed) and not self.closed
        for meta in self.partitions.values():
            meta.suspect |= unclean and meta.relaxed
        self.boot_id, self.closed = boot_id, False
        return unclean

    def apply(self, record: Record) -> None:
        """Folds one record in; appends change nothing here."""
        kind, payload = record.kind, record.payload
        if kind == RecordKind.APPEND:
            return
        partition_id = PartitionId.unpack(record.key)
        if kind == RecordKind.CHECKPOINT:
            self._checkpoint(payload)
        elif kind == RecordKind.CLOSED:
            self.closed = True
        elif kind == RecordKind.CREATE:
            self.partitions[partition_id] = LogMeta(created_lsn=record.lsn)
        elif kind == RecordKind.REMOVE:
            self.partitions.pop(partition_id, None)
        elif (meta := self.partitions.get(partition_id)) is not None:
            if kind == RecordKind.HARD_STATE:
                meta.term = int.from_bytes(payload[:8], "little")
                meta.vote = bytes(payload[8:]).decode() if record.flags else None
            elif kind == RecordKind.TRUNCATE:
                lowered = int.from_bytes(payload, "little") - 1
                meta.checkpoint_index = min(meta.checkpoint_index, lowered)
            elif kind == RecordKind.START:
                first, term = _PAIR.unpack(payload)
                meta.first_index, meta.base_term = first, term
            elif kind == RecordKind.INSTALL:
                meta.install(Install.unpack(payload))
            elif kind == RecordKind.DAMAGED:
                meta.damaged_first, meta.damaged_last = _PAIR.unpack(payload)
            elif kind == RecordKind.DURABILITY:
                meta.relaxed = bool(record.flags & RELAXED)
                meta.suspect = bool(record.flags & SUSPECT)

    def _checkpoint(self, payload: bytes | memoryview) -> None:
        self.checkpoint_lsn = int.from_bytes(payload[:8], "little")
        for item in checkpoint_items(payload):
            if (meta := self.partitions.get(item.partition_id)) is not None:
                meta.checkpoint_index = item.lowered


class CheckpointItem(NamedTuple):
    """A group that had changed: its last entry as of the checkpoint's LSN, in synced segments.

    `lowered` is what is left of that when the record is written: truncations may come between.
    """

    partition_id: PartitionId
    last: int
    lowered: int


@dataclass(slots=True)
class Record:
    """One record of a block; `lsn` is the position after its last byte."""

    lsn: Lsn
    kind: int
    flags: int
    key: bytes
    """The packed group id."""
    payload: bytes | memoryview


@dataclass(slots=True)
class FileHeader:
    """A file's first bytes; written after the previous file's last sync, ending at `start_lsn`."""

    file_id: int
    number: int
    start_lsn: Lsn
    file_bytes: int
    incarnation: int
    state: WalState
    header_bytes: int = 0


def hard_state_payload(term: int, vote: str | None) -> bytes:
    return term.to_bytes(8, "little") + (vote or "").encode()


def pair_payload(first: int, second: int) -> bytes:
    return _PAIR.pack(first, second)


def checkpoint_payload(lsn: int, items: Sequence[CheckpointItem]) -> bytes:
    packed = (
        _CHECKPOINT_ITEM.pack(partition_id.pack(), *indexes) for partition_id, *indexes in items
    )
    return lsn.to_bytes(8, "little") + b"".join(packed)


def checkpoint_items(payload: bytes | memoryview) -> list[CheckpointItem]:
    """The groups that a checkpoint record speaks of."""
    items = _CHECKPOINT_ITEM.iter_unpack(payload[8:])
    return [CheckpointItem(PartitionId.unpack(packed), *indexes) for packed, *indexes in items]


def encode_header(header: FileHeader) -> bytes:
    """The file header's bytes; sets `header.header_bytes`."""
    parts = [
        _FILE.pack(
            header.file_id,
            header.number,
            header.start_lsn,
            header.file_bytes,
            header.incarnation,
            header.state.checkpoint_lsn,
            len(header.state.partitions),
        )
    ]
    for partition_id, meta in header.state.partitions.items():
        vote = b"" if meta.vote is None else meta.vote.encode()
        parts += (
            partition_id.pack(),
            _GROUP.pack(
                meta.term,
                meta.checkpoint_index,
                meta.first_index,
                meta.base_term,
                meta.damaged_first,
                meta.damaged_last,
                meta.created_lsn,
                _NO_VOTE if meta.vote is None else len(vote),
            ),
            vote,
        )
    parts.append(_encode_boot(header.state))
    body = b"".join(parts)
    header.header_bytes = PREFIX.size + len(body)
    tail = struct.pack("<HHI", FORMAT, 0, header.header_bytes)
    return b"".join((FILE_MAGIC, struct.pack("<I", crc32c(body, crc32c(tail))), tail, body))


def decode_header(data: bytes, name: str) -> FileHeader:
    """The header at the start of a file. Raises WalDamaged, or NewerFormat naming the file."""
    if len(data) < PREFIX.size:
        raise WalDamaged(name, 0, "shorter than a file header")
    magic, crc, version, _zero, length = PREFIX.unpack_from(data)
    if magic != FILE_MAGIC:
        raise WalDamaged(name, 0, "not a write-ahead log file")
    if not PREFIX.size + _FILE.size <= length <= min(len(data), _HEADER_BYTES_MAX) and (
        version <= FORMAT
    ):
        raise WalDamaged(name, 0, "header cut short")
    if crc32c(memoryview(data)[12:length]) != crc:
        raise WalDamaged(name, 0, "header checksum mismatch")
    if version > FORMAT:
        raise NewerFormat(name, version, FORMAT)
    file_id, number, start, size, incarnation, checkpoint, count = _FILE.unpack_from(
        data, PREFIX.size
    )
    state = WalState(checkpoint)
    at = PREFIX.size + _FILE.size
    for _ in range(count):
        partition_id = PartitionId.unpack(data, at)
        *values, vote_bytes = _GROUP.unpack_from(data, at + PARTITION_ID_BYTES)
        at += PARTITION_ID_BYTES + _GROUP.size
        vote = None
        if vote_bytes != _NO_VOTE:
            vote = data[at : at + vote_bytes].decode()
            at += vote_bytes
        term, *rest = values
        state.partitions[partition_id] = LogMeta(term, vote, *rest)
    if at < length:
        _decode_boot(data[at:length], state)
    return FileHeader(file_id, number, Lsn(start), size, incarnation, state, length)


def durability_flags(*, relaxed: bool, suspect: bool) -> int:
    return (RELAXED if relaxed else 0) | (SUSPECT if suspect else 0)


def _encode_boot(state: WalState) -> bytes:
    """The boot id, and a byte of flags per group; headers of earlier releases end before it."""
    boot_id = state.boot_id.encode()
    flags = (
        durability_flags(relaxed=meta.relaxed, suspect=meta.suspect)
        for meta in state.partitions.values()
    )
    return bytes((len(boot_id), *boot_id, *flags))


def _decode_boot(data: bytes, state: WalState) -> None:
    end = 1 + data[0]
    state.boot_id = data[1:end].decode()
    for meta, flags in zip(state.partitions.values(), data[end:], strict=True):
        meta.relaxed, meta.suspect = bool(flags & RELAXED), bool(flags & SUSPECT)


def encode_block(file_id: int, lsn: int, synced_lsn: int, payload: bytes, flags: int = 0) -> bytes:
    """A flush block's header; the payload follows it."""
    rest = BLOCK.pack(BLOCK_MAGIC, 0, file_id, lsn, synced_lsn, len(payload), flags)[8:]
    return BLOCK_MAGIC + struct.pack("<I", crc32c(payload, crc32c(rest))) + rest


def block_length(data: bytes) -> int:
    """The payload's length that the block at the beginning of these bytes claims."""
    return int(BLOCK.unpack_from(data)[5]) if len(data) >= BLOCK_BYTES else 0


def read_block(data: memoryview, at: int, file_id: int, lsn: int) -> tuple[int, int] | None:
    """(payload length, synced LSN) of the valid block of this file and LSN here, else None."""
    if len(data) - at < BLOCK_BYTES:
        return None
    magic, crc, block_file, block_lsn, synced, length, _flags = BLOCK.unpack_from(data, at)
    if magic != BLOCK_MAGIC or block_file != file_id or block_lsn != lsn:
        return None
    if length > len(data) - at - BLOCK_BYTES:
        return None
    if crc32c(data[at + 8 : at + BLOCK_BYTES + length]) != crc:
        return None
    return length, synced


def goes_on(data: memoryview, at: int) -> bool:
    """Whether the valid block here says that its file was followed by another one."""
    flags = int.from_bytes(data[at + _FLAGS_AT : at + BLOCK_BYTES], "little")
    return bool(flags & GOES_ON)


def records(payload: memoryview, lsn: int) -> Iterator[Record]:
    """The records of a verified block's payload, which starts at this LSN."""
    at = 0
    while at < len(payload):
        kind, flags, _pad, length, key = RECORD.unpack_from(payload, at)
        body = at + RECORD_BYTES
        at = body + length
        yield Record(Lsn(lsn + at), kind, flags, key, payload[body:at])
