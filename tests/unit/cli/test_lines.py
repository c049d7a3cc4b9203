"""What a line of a file or a pipe becomes."""

from __future__ import annotations

import io
import json

import pytest

from cli.errors import CliError
from cli.lines import LINE_BYTES_MAX, Message, compact, parse, read_lines


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


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b'{"value": null}', "null"),
        (b'{"value": "x", "priority": "urgent"}', "urgent"),
        (b'{"value": "!", "value_encoding": "base64"}', "base64"),
        (b'{"value": "x", "value_encoding": "rot13"}', "rot13"),
        (b'{"value": "x", "delay": "5s"}', "delayed"),
        (b'{"value": "x", "deliverAt": "2030-01-01T00:00:00Z"}', "delayed"),
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


def test_lines_lose_their_ends_and_empty_ones_are_skipped() -> None:
    stream = io.BytesIO(b"one\r\n\n two \nlast")

    assert list(read_lines(stream)) == [(1, b"one"), (3, b" two "), (4, b"last")]


def test_an_endless_line_is_refused_before_it_fills_memory() -> None:
    stream = io.BytesIO(b"x" * (LINE_BYTES_MAX + 2))

    with pytest.raises(CliError, match="line 1 is longer"):
        list(read_lines(stream))
