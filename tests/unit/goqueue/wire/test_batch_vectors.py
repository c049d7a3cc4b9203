"""The format, byte for byte: batches checked in as hex, with what they hold in `vectors.json`.

Compressed batches are only decoded: what a codec's library writes differs between its versions.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import crc32c
import pytest

from goqueue.wire.batch import Record, RecordBatch, encode_batch

VECTORS = Path(__file__).parents[1] / "vectors"
CASES: dict[str, dict[str, Any]] = json.loads((VECTORS / "vectors.json").read_text())


def told(case: dict[str, Any]) -> list[Record]:
    return [
        Record(
            value=bytes.fromhex(record["value"]) * record.get("times", 1),
            key=None if record["key"] is None else bytes.fromhex(record["key"]),
            headers=tuple((name, bytes.fromhex(value)) for name, value in record["headers"]),
            timestamp_ms=record["timestamp_ms"],
            lane=record["lane"],
            deliver_at_ms=record["deliver_at_ms"],
            expires_at_ms=record["expires_at_ms"],
            message_id=record["message_id"],
        )
        for record in case["records"]
    ]


def stored(name: str) -> bytes:
    return bytes.fromhex((VECTORS / f"{name}.hex").read_text())


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case["codec"] == "none"])
def test_encoding_gives_the_checked_in_bytes(name: str) -> None:
    case = CASES[name]

    assert encode_batch(told(case), **case["producer"]).hex() == stored(name).hex()


@pytest.mark.parametrize("name", CASES)
def test_decoding_the_checked_in_bytes_gives_the_records(name: str) -> None:
    batch = RecordBatch.parse(stored(name))

    batch.validate()
    assert batch.records() == told(CASES[name])
    assert batch.codec.name.lower() == CASES[name]["codec"]
    assert {
        "producer_id": batch.producer_id,
        "producer_epoch": batch.producer_epoch,
        "base_sequence": batch.base_sequence,
    } == CASES[name]["producer"]


def test_vectors_are_all_described() -> None:
    assert {path.stem for path in VECTORS.glob("*.hex")} == set(CASES)


def test_the_documented_layout_assembled_by_hand_is_the_smallest_vector() -> None:
    """Independent of the encoder: every field written out as storage-format.md has it."""
    covered = b"".join(
        (
            struct.pack("<I", 72 + 13 + 1 + 2),  # length of the batch
            struct.pack("<I", 1),  # count
            struct.pack("<Q", 0),  # producer id: none
            struct.pack("<q", 1_700_000_000_000),  # base timestamp
            struct.pack("<I", 0),  # producer epoch
            struct.pack("<H", 0),  # flags
            struct.pack("<B", 0),  # codec: none
            b"\0",
            struct.pack("<Q", 0),  # base sequence
            struct.pack("<I", 1),  # keys
            struct.pack("<I", 0),  # headers
            struct.pack("<I", 0),  # message ids
            struct.pack("<I", 2),  # values as stored
            struct.pack("<I", 2),  # values in plain
            struct.pack("<I", 0),
            struct.pack("<I", 0),  # timestamp delta
            struct.pack("<I", 1),  # key length
            struct.pack("<I", 2),  # value length
            b"\x02",  # lane: normal
            b"k",
            b"hi",
        )
    )

    assembled = b"GQB\x01" + struct.pack("<I", crc32c.crc32c(covered)) + covered

    assert assembled.hex() == stored("smallest").hex()
