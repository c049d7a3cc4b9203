"""A short run of each kind of fuzzing; `make fuzz` goes on for as long as is asked."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from h2.errors import ErrorCodes

from tests.cluster.processes import HOST, Node
from tests.fuzz import duplex, expanding, formats, frames, raw
from tests.fuzz.served import (
    GROWTH_BYTES_MAX,
    fuzz_openapi,
    memory_bytes,
    port_of,
    served_node,
)

KNOWN = formats.formats()
UNVERSIONED = "^/(?!v1/)"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    with served_node(tmp_path_factory.mktemp("fuzzed")) as started:
        before = memory_bytes(started)
        yield started
        assert memory_bytes(started) - before < GROWTH_BYTES_MAX


@pytest.mark.parametrize("kind", KNOWN, ids=lambda one: one.name)
def test_what_is_read_from_others_is_read_or_refused_by_name(kind: formats.Format) -> None:
    formats.check_samples(kind)

    found = formats.fuzz(kind, random.Random(1), 800)

    assert found.read + found.refused == 800


def test_a_reader_that_raises_anything_else_is_found() -> None:
    careless = formats.Format("careless", [b"\x01" * 8], lambda data: data[5], (ValueError,))

    with pytest.raises(AssertionError, match="careless: IndexError"):
        formats.fuzz(careless, random.Random(1), 800)


def test_a_reader_that_believes_a_length_is_found() -> None:
    believing = formats.Format(
        "believing", [bytes(4)], lambda data: bytes(int.from_bytes(data[:4], "little")), ()
    )

    with pytest.raises(AssertionError, match="believing"):
        formats.fuzz(believing, random.Random(1), 800)


def test_broken_requests_are_answered_or_cut_off_and_the_node_serves_on(node: Node) -> None:
    kept = raw.samples("fuzzed", "workers")

    tally = asyncio.run(raw.fuzz(HOST, node.http_port, kept, random.Random(1), 1_500))

    assert tally.defects == []
    assert tally.sent == 1_500
    assert tally.statuses[400] > 300
    assert tally.statuses[200] > 10
    assert node.is_ready()


def test_broken_frames_are_answered_or_cut_off_and_the_node_serves_on(node: Node) -> None:
    names = frames.Names("fuzzed", "streamers")

    tally = asyncio.run(frames.fuzz(HOST, node.http_port, names, random.Random(1), 300))

    assert tally.defects == []
    assert tally.sent == tally.statuses[101] == 300
    assert all(tally.statuses[code] for code in (1000, 1002, 1008, 1009)), tally.statuses
    assert node.is_ready()


def test_an_answer_that_is_no_frame_is_found() -> None:
    head, tally = b"HTTP/1.1 101 x\r\n\r\n", raw.Tally()

    assert frames.judge(head + b"\x81\x02{}"[:2] + b"xx", tally)
    assert frames.judge(head + b"\x88\x02\x03\xf3", tally) == "failed"
    assert frames.judge(b"HTTP/1.1 500 x\r\n\r\n", tally)
    assert not frames.judge(head + b"\x88\x02\x03\xe8", tally)


def test_broken_connections_of_http2_are_answered_or_ended_by_name(node: Node) -> None:
    port = port_of(node, "h2")

    tally = asyncio.run(duplex.fuzz(HOST, port, "fuzzed", random.Random(1), 200))

    assert tally.defects == []
    assert tally.sent == 200
    assert all(
        tally.statuses[code]
        for code in (0, ErrorCodes.PROTOCOL_ERROR, ErrorCodes.ENHANCE_YOUR_CALM)
    ), tally.statuses
    assert node.is_ready()


def test_an_answer_of_http2_that_is_none_is_found() -> None:
    tally = raw.Tally()

    assert duplex.judge(duplex.frame(5, b"pushed"), tally)
    assert (
        duplex.judge(duplex.frame(duplex.RST_STREAM, bytes([0, 0, 0, 2]), 0, 1), tally) == "failed"
    )
    assert duplex.judge(b"HTTP/1.1 500 x", tally)
    assert not duplex.judge(duplex.frame(duplex.SETTINGS), tally)


def test_requests_that_expand_take_little_memory_and_are_answered(tmp_path: Path) -> None:
    with served_node(tmp_path) as node:
        before = memory_bytes(node)
        tally = asyncio.run(expanding.fuzz(node, "expanded", "expanders", random.Random(1), 80))

        assert tally.defects == []
        assert tally.sent >= 80
        assert tally.statuses[200] > 5 and tally.statuses[400] > 5
        assert node.is_ready()
        assert memory_bytes(node) - before < expanding.KEPT_BYTES_MAX


def test_requests_from_the_openapi_document_are_answered_as_it_says(node: Node) -> None:
    ran = fuzz_openapi(node, 1, 2, "fuzzing", only=UNVERSIONED)

    assert ran.code == 0, ran.output
    assert ran.cases > 100
    assert node.is_ready()
