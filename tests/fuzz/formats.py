"""Every format that is read from others or from disk: sound samples of it, who reads it, and how
that may refuse. Anything else that is raised is a defect; so is memory out of proportion."""

from __future__ import annotations

import random
import struct
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec
from crc32c import crc32c

from coordinator.cluster.state import ClusterState
from coordinator.commands.codec import (
    AllocateProducer,
    AlterTopic,
    CreateTopic,
    DeleteTopic,
    RegisterBroker,
    TopicResult,
    decode_command,
    decode_result,
    encode_command,
    encode_result,
)
from coordinator.errors import CommandUnreadable, SnapshotUnreadable
from delivery.config import GroupConfig
from delivery.entries import ops
from delivery.entries.reappended import ReappendedBatch, decode_reappended, encode_reappended
from delivery.entries.records import (
    AppendBatch,
    decode_records,
    decode_trim,
    encode_records,
    encode_trim,
)
from goqueue.wire.batch import RecordBatch
from goqueue.wire.encoding import Record, encode_batch
from goqueue.wire.errors import BadReceipt, BadRequest, BatchError, PayloadTooLarge
from goqueue.wire.layout import CRC_FROM
from goqueue.wire.stream import BatchFrame, decode_frames, encode_frame
from goqueue.wire.types import Incarnation, Index, NodeId, Offset, PartitionId, Term, TopicId, Voter
from goqueue.wire.unreadable import UNREADABLE
from log.copy.manifest import Manifest, SegmentParts
from log.entry import EntryKind, decode_frame, make_entry
from log.errors import FrameDamaged
from node.api.records import AppendResult
from node.queue.receipt import (
    MAC_BYTES,
    decode_receipt,
    encode_receipts,
    place_of,
    signed,
    vouched_of,
)
from node.rpc import moves as move_rpc
from node.rpc import partitions as rpc
from node.rpc import transfer as transfer_rpc
from raft.configuration import (
    Configuration,
    decode_configuration,
    encode_configuration,
    pack_snapshot,
    unpack_snapshot,
)
from tests.fuzz.mutation import any_of
from tests.steps import Steps

GROUP = PartitionId(TopicId(7, 1), 3)
MEMORY_BYTES_MAX = 64 << 20
"""What reading one input may take at its peak."""
STEPS_MAX = 1_000_000
"""What reading one input may take, in lines of Python: a second or so."""
VOTERS = tuple(Voter(NodeId(f"node-{n}"), Incarnation(n << 40)) for n in range(1, 4))


@dataclass(frozen=True)
class Format:
    """`sealed` gives a mutation the checksum that lets it pass, where there is one."""

    name: str
    samples: Sequence[bytes]
    read: Callable[[bytes], object]
    refusals: tuple[type[Exception], ...]
    sealed: Callable[[bytes], bytes] | None = None


def sealed_batch(data: bytes) -> bytes:
    """Its length field and its checksum set right."""
    if len(data) < CRC_FROM + 8:
        return data
    checked = bytearray(data)
    struct.pack_into("<I", checked, 4, crc32c(bytes(checked[CRC_FROM:])))
    return bytes(checked)


def sealed_entry(data: bytes) -> bytes:
    if len(data) < 16:
        return data
    checked = bytearray(data)
    struct.pack_into("<I", checked, 0, len(data))
    struct.pack_into("<I", checked, 4, crc32c(bytes(checked[8:])))
    return bytes(checked)


def read_batch(data: bytes) -> None:
    RecordBatch.parse(data).validate()


def batches() -> list[bytes]:
    plain = [Record(value=b"a"), Record(value=b"b" * 300, key=b"k", lane=1)]
    rich = [
        Record(
            value=str(n).encode() * 40,
            key=f"key-{n}".encode(),
            headers=(("trace", b"1"), ("kind", b"x" * n)),
            deliver_at_ms=1_800_000_000_000 + n,
            expires_at_ms=1_900_000_000_000,
            message_id=f"id-{n}",
            timestamp_ms=1_700_000_000_000,
        )
        for n in range(20)
    ]
    return [
        encode_batch(plain),
        encode_batch(rich),
        encode_batch(rich, codec="zstd"),
        encode_batch(plain, codec="gzip", producer_id=9, base_sequence=4),
    ]


def commands() -> list[bytes]:
    return [
        encode_command(one)
        for one in (
            CreateTopic("orders", {"partitions": 3, "labels": {"team": "pay"}}, ["node-2"]),
            AlterTopic("orders", {"retention_ms": 5}, "x"),
            DeleteTopic("orders", "y"),
            AllocateProducer("tx"),
            RegisterBroker("node-1", 7, "127.0.0.1:1", "http://x", "zone", "1", {"a": "b"}),
        )
    ]


def cluster_snapshots() -> list[bytes]:
    state = ClusterState(9)
    for index, body in enumerate(reversed(commands()), start=1):
        if b"delete" not in body and b"alter" not in body:
            state.apply(Index(index), 1_700_000_000_000, decode_command(body))
    return [state.snapshot()]


def queue_ops() -> list[bytes]:
    leased = [(9, [3, 4]), (12, [2**40])]
    made: list[ops.Op] = [
        ops.OpenGroup(5, "billing", 3, GroupConfig(), 7),
        ops.Delivered(5, "anna", 30_000, [1, 2, 2**40], 77, 3),
        ops.Settled(5, 1, leased, "no route", 500, True, 0, 78, "anna", 3),
        ops.Expired(5, leased),
        ops.Sought(5, 9, 79),
        ops.Redriven(5, [1, 2], 4, True),
        ops.Parked(5, b"key"),
        ops.Halted(5, "by hand"),
        ops.Own(5, "bob", 4, fence=True),
        ops.RequireArchive(True),
        ops.Archived("s3://bucket/archive", 2**40, anew=True),
    ]
    return [ops.encode_ops([one]) for one in made] + [ops.encode_ops([*made, ops.Tick()])]


def receipts() -> list[bytes]:
    """Without a code, and with one."""
    place, run = place_of(GROUP.pack(), 4, 9), [2**40, 2**40 + 1]
    plain = encode_receipts(GROUP.pack(), 4, 9, [1, 2**40])
    vouched = signed(vouched_of(place, run), 1, bytes(MAC_BYTES), run)
    return [text.encode() for text in (*plain, *vouched)]


def manifests() -> list[bytes]:
    segments = tuple(
        SegmentParts(Index(first), Index(first + 9), 4096, 120) for first in (1, 11, 21)
    )
    manifest = Manifest(GROUP, Index(1), 0, Index(30), Term(3), 20, 77, 5, segments)
    return [transfer_rpc.encode_manifest(4, manifest)]


def formats() -> list[Format]:
    """All of them; samples are made anew."""
    records = batches()
    entry = make_entry(
        index=4, term=2, time_ms=5, kind=EntryKind.RECORDS, body=records[0], base_offset=3,
        record_count=2, matches=(1, 2, 3),
    )  # fmt: skip
    appended = [
        AppendBatch(batch, count, 5) for batch, count in zip(records, (2, 20), strict=False)
    ]
    carried = [ReappendedBatch(5, (1, 4), records[0]), ReappendedBatch(6, (9, 12), records[0])]
    configuration = Configuration(VOTERS[:2], VOTERS[2:], Index(9))
    rows = ((Offset(4), False), (Offset(9), True))
    results = (AppendResult(Offset(4), 2, False, 5, "relaxed", rows),)
    damaged = (BatchError, PayloadTooLarge)
    return [
        Format("record batch", records, read_batch, damaged),
        Format("record batch, sealed", records, read_batch, damaged, sealed_batch),
        Format(
            "answer of batches",
            [b"".join(encode_frame(BatchFrame(Offset(3), 5, one)) for one in records)],
            lambda data: list(decode_frames(data)),
            (BatchError,),
        ),
        Format("entry", [bytes(entry.frame)], decode_frame, (FrameDamaged,)),
        Format("entry, sealed", [bytes(entry.frame)], decode_frame, (FrameDamaged,), sealed_entry),
        Format(
            "records of an entry",
            [b"".join(encode_records(appended))],
            lambda data: [one.stamp() for one in decode_records(data)],
            (ValueError, struct.error),
        ),
        Format(
            "carried records",
            [encode_reappended(carried)],
            lambda data: list(decode_reappended(data)),
            (ValueError, struct.error),
        ),
        Format("trim", [encode_trim(Index(5), Offset(9))], decode_trim, (struct.error,)),
        Format("queue operations", queue_ops(), ops.decode_ops, UNREADABLE),
        Format("commands", commands(), decode_command, (CommandUnreadable,)),
        Format(
            "results",
            [encode_result(TopicResult("orders", "id", 3, ["w"]))],
            decode_result,
            (CommandUnreadable,),
        ),
        Format(
            "cluster snapshot",
            cluster_snapshots(),
            ClusterState.restore,
            (SnapshotUnreadable,),
        ),
        Format(
            "configuration",
            [encode_configuration(configuration)],
            lambda data: decode_configuration(data, 5),
            UNREADABLE,
        ),
        Format(
            "snapshot with configuration",
            [bytes(pack_snapshot(configuration, b"state"))],  # type: ignore[arg-type]
            unpack_snapshot,
            (*UNREADABLE, struct.error),
        ),
        Format(
            "receipts",
            receipts(),
            lambda data: decode_receipt(data.decode("latin-1")),
            (BadReceipt,),
        ),
        Format(
            "forwarded append",
            [rpc.encode_append(GROUP, 7, True, records[0])],
            rpc.decode_append,
            (BadRequest,),
        ),
        Format(
            "answer to an append",
            [rpc.encode_appended(one) for one in results],
            rpc.decode_appended,
            (struct.error,),
        ),
        Format(
            "slice", [msgspec.msgpack.encode([[[3, 5, records[0]]], 4, 0, 9, None])],
            rpc.decode_slice, UNREADABLE,
        ),
        Format(
            "list of files",
            manifests(),
            lambda data: transfer_rpc.decode_manifest(data, GROUP),
            (BadRequest,),
        ),
        Format(
            "request for a chunk",
            [transfer_rpc.ChunkRequest(4, 1, 5, 0, 4096).pack()],
            transfer_rpc.decode_chunk_request,
            (BadRequest,),
        ),
        Format(
            "chunk",
            [transfer_rpc.encode_chunk(b"asked", b"data" * 50)],
            lambda data: transfer_rpc.decode_chunk(b"asked", data, 200),
            (struct.error,),
        ),
        Format(
            "session",
            [transfer_rpc.encode_session(4)],
            transfer_rpc.decode_session,
            (BadRequest,),
        ),
        Format(
            "what a leader tells",
            [
                msgspec.msgpack.encode(
                    [GROUP.pack(), 5, [["n1", 2]], [], "n1", ["n1"], [], False, 0, []]
                )
            ],
            move_rpc.decode_seen,
            (BadRequest,),
        ),
        Format(
            "progress",
            [msgspec.msgpack.encode([[[GROUP.pack(), "why", 5, 6]], {"drain": "why"}])],
            move_rpc.decode_progress,
            (BadRequest,),
        ),
    ]  # fmt: skip


def check_samples(format_: Format) -> None:
    """A sound sample is read: else mutations of it would say nothing."""
    for sample in format_.samples:
        format_.read(sample)


@dataclass
class Found:
    """What came of reading so many inputs."""

    read: int = 0
    refused: int = 0
    most_steps: int = 0
    peak_bytes: int = 0


def fuzz(format_: Format, rng: random.Random, count: int) -> Found:
    """Raises AssertionError, with the input, where one does what it must not."""
    found = Found()
    tracemalloc.start()
    try:
        for _ in range(count):
            data = any_input(format_, rng)
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            counted = Steps()
            try:
                with counted:
                    format_.read(data)
                found.read += 1
            except format_.refusals:
                found.refused += 1
            except Exception as error:
                raise AssertionError(f"{format_.name}: {error!r} from {data.hex()}") from error
            found.most_steps = max(found.most_steps, counted.count)
            found.peak_bytes = max(found.peak_bytes, tracemalloc.get_traced_memory()[1] - before)
            assert found.peak_bytes < MEMORY_BYTES_MAX, f"{format_.name}: {data.hex()}"
            assert found.most_steps < STEPS_MAX, f"{format_.name}: {data.hex()}"
    finally:
        tracemalloc.stop()
    return found


def any_input(format_: Format, rng: random.Random) -> bytes:
    data = any_of(format_.samples, rng)
    return format_.sealed(data) if format_.sealed is not None else data
