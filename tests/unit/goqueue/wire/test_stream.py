"""Frames of stored batches, as a binary read answers them."""

from __future__ import annotations

import struct
import subprocess
import sys

import pytest

from goqueue.wire.batch import RecordBatch, encode_columns
from goqueue.wire.errors import BatchError
from goqueue.wire.stream import BatchFrame, decode_frames, encode_frame
from goqueue.wire.types import Offset

FRAMES = [
    BatchFrame(Offset(0), 1_700_000_000_000, encode_columns([b"a", b"b"])),
    BatchFrame(Offset(2), 1_700_000_000_005, encode_columns([b"c"])),
]


def test_frames_come_back_in_order() -> None:
    body = b"".join(map(encode_frame, FRAMES))

    frames = list(decode_frames(body))

    assert [(f.base_offset, f.time_ms) for f in frames] == [
        (0, 1_700_000_000_000),
        (2, 1_700_000_000_005),
    ]
    assert [RecordBatch.parse(f.batch).values() for f in frames] == [[b"a", b"b"], [b"c"]]


def test_a_frame_is_offset_time_length_and_batch() -> None:
    frame = FRAMES[0]

    assert encode_frame(frame) == struct.pack("<QQI", 0, frame.time_ms, len(frame.batch)) + bytes(
        frame.batch
    )


def test_an_empty_body_has_no_frames() -> None:
    assert list(decode_frames(b"")) == []


def test_every_truncation_inside_a_frame_is_detected() -> None:
    body = b"".join(map(encode_frame, FRAMES))
    boundaries = {0, len(encode_frame(FRAMES[0])), len(body)}

    for cut in set(range(len(body))) - boundaries:
        with pytest.raises(BatchError):
            list(decode_frames(body[:cut]))


def test_the_wire_needs_neither_aiohttp_nor_msgspec() -> None:
    code = (
        "import sys; import goqueue.wire.batch, goqueue.wire.stream, goqueue.wire.ids;"
        "print(sorted({'aiohttp', 'msgspec', 'asyncio'} & set(sys.modules)))"
    )

    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert found.stdout.strip() == "[]"
