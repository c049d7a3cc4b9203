"""What a line of a file or a pipe becomes."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest

from cli.output.errors import CliError
from cli.produce.lines import LINE_BYTES_MAX, LineSplitter, Message, compact, parse, read_blocks


def test_a_line_of_plain_text_is_the_value() -> None:
    assert parse(b"hello, world") == Message(b"hello, world")


def test_bytes_that_are_no_text_are_the_value() -> None:
    assert parse(b"\xff\x00{") == Message(b"\xff\x00{")


def test_an_object_without_a_value_is_the_value_as_it_stands() -> None:
    assert parse(b'{"order_id": 123}') == Message(b'{"order_id": 123}')


def test_an_object_with_unknown_fields_is_the_value_as_it_stands() -> None:
    line = b'{"value": 21.5, "unit": "C"}'

    assert parse(line) == Message(line)


def test_an_envelope_gives_its_fields() -> None:
    line = b'{"value": "v", "key": "k", "headers": {"a": "b"}, "partition": 2, "priority": "high"}'

    assert parse(line) == Message(b"v", b"k", (("a", b"b"),), 2, "high")


def test_a_json_value_is_stored_compact_with_its_tokens_untouched() -> None:
    line = b'{"value": {"n": 1.10, "big": 12345678901234567890, "e": "\\u00e9 \\" x", "l": [1, 2]}}'

    value = parse(line).value

    assert value == b'{"n":1.10,"big":12345678901234567890,"e":"\\u00e9 \\" x","l":[1,2]}'


@pytest.mark.parametrize("text", ['{"a": [1, 2, {"b": "  \\\\"}]}', "[ ]", " 1 ", '{ "\\"": " " }'])
def test_compacting_changes_no_meaning(text: str) -> None:
    small = compact(text.encode())

    assert json.loads(small) == json.loads(text)
    assert small == compact(small)


def test_base64_values_become_bytes() -> None:
    assert parse(b'{"value": "/wA=", "value_encoding": "base64"}') == Message(b"\xff\x00")


def test_a_null_value_is_no_text() -> None:
    assert parse(b'{"key": "k", "value": null}') == Message(None, b"k")


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b'{"value": "x", "priority": "urgent"}', "urgent"),
        (b'{"value": "!", "value_encoding": "base64"}', "base64"),
        (b'{"value": "x", "value_encoding": "rot13"}', "rot13"),
        (b'{"value": "x", "delay": "soon"}', "delay: 'soon' is not a duration"),
        (b'{"value": "x", "deliverAt": "tomorrow"}', "deliver_at: 'tomorrow' is not a time"),
        (b'{"value": "x", "delay": "1s", "deliver_at": "2030-01-01T00:00:00Z"}', "exclude each"),
        (b'{"value": "x", "ttl": 0}', "a ttl of nothing"),
    ],
)
def test_an_envelope_that_cant_be_meant_is_refused(line: bytes, problem: str) -> None:
    with pytest.raises(CliError, match=problem):
        parse(line)


def test_what_consume_prints_is_an_envelope() -> None:
    line = (
        b'{"topic":"a","partition":1,"offset":7,"timestamp":"2025-01-15T10:30:00.000Z",'
        b'"value":"v","priority":"low","key":"k","headers":{"h":"x"}}'
    )

    assert parse(line) == Message(b"v", b"k", (("h", b"x"),), 1, "low")


@pytest.mark.parametrize("size", [1, 3, 100])
def test_lines_lose_their_ends_and_empty_ones_are_left_out(size: int) -> None:
    data, splitter = b"one\r\n\n two \nlast", LineSplitter()

    found = [line for at in range(0, len(data), size) for line in splitter.feed(data[at:][:size])]

    assert found + splitter.end() == [(1, b"one"), (3, b" two "), (4, b"last")]
    assert splitter.end() == []


def test_an_endless_line_is_refused_before_it_fills_memory() -> None:
    splitter = LineSplitter()
    splitter.feed(b"one\n" + b"x" * LINE_BYTES_MAX)

    with pytest.raises(CliError, match="line 2 is longer"):
        splitter.feed(b"x")


async def test_a_pipe_is_read_as_it_fills_and_the_loop_goes_on_meanwhile() -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as stream:
        blocks = aiter(read_blocks(stream))
        waiting = asyncio.ensure_future(anext(blocks))
        await asyncio.sleep(0)
        assert not waiting.done()

        os.write(writing, b"a\nb")
        assert await waiting == b"a\nb"

        os.close(writing)
        assert await anext(blocks, None) is None


async def test_a_file_is_read_whole(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"0123456789" * 100_000)

    with (tmp_path / "x").open("rb") as stream:
        blocks = [block async for block in read_blocks(stream)]

    assert b"".join(blocks) == (tmp_path / "x").read_bytes()
